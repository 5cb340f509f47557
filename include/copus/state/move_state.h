// Carries out a transfer plan: the state buffers of the old layout into those of the new, between
// ranks.
#pragma once
#include <cstdint>
#include <functional>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"
#include "copus/parallel/transfer.h"
#include "copus/state/train_state.h"

namespace copus {

// Of one rank, over all three buffers.
struct MovedBytes {
  std::int64_t sent = 0, local = 0;
};

// The memory that move_state needs beyond the two states, at most, in bytes: of the device, and for
// a landing on the host half as much there.
inline constexpr std::int64_t kMoveStagingBytes = std::int64_t{2} * (8 << 20);

// Whose memory `to` is in: the backend's, or the host's.
enum class Landing : std::uint8_t { device, host };

// `transfer`: this rank's part of a plan, equal on all ranks of `ranks`, whose numbers are the
// plan's. `ranks` is for tensors in `backend`'s memory. `from` and `to`: flat f32 buffers of the
// old and new layout, empty where a rank holds nothing; counters are not looked at. Stretches that
// lie in one piece on both sides go straight from the one to the other, unless they have to leave
// the device; the rest is packed in pieces of bounded size. `from` is only read. `before_local`:
// called before the local copies; what it throws is thrown after the exchange is complete (a test's
// way to fail in the middle).
MovedBytes move_state(Communicator& ranks, Backend& backend, const RankTransfer& transfer,
                      const TrainState& from, const TrainState& to, Landing landing,
                      const std::function<void()>& before_local = {});

}  // namespace copus
