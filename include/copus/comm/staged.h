// A communicator for tensors that the host cannot touch: they pass through its memory, piece by
// piece, and another transport moves them there.
#pragma once
#include <cstdint>
#include <memory>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"

namespace copus {

// What a group keeps in (pinned) host memory at most, in bytes; taken at its first large call.
inline constexpr std::int64_t kStagingBytes = std::int64_t{16} << 20;

// The ranks of `world` once more, for tensors in `backend`'s memory, which outlives it: as they are
// where the host reaches that. A call takes its tensors as the backend's calls before it leave
// them, and returns when it is done, so several ranks of one device, of one process or several,
// may be in it. `staging_bytes`: the same on every rank; tests set it low.
std::unique_ptr<Communicator> stage_through_host(Communicator& world, Backend& backend,
                                                 std::int64_t staging_bytes = kStagingBytes);

}  // namespace copus
