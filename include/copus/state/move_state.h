// Carries out a transfer plan: one state buffer of the old layout into one of the new, between
// ranks.
#pragma once
#include "copus/comm/communicator.h"
#include "copus/parallel/transfer.h"

namespace copus {

// `transfer`: this rank's part of a plan, equal on all ranks of `ranks`, whose numbers are the
// plan's. `from` and `to` are flat f32 buffers on the host (master, m or v) of the old and new
// layout, empty where a rank holds nothing.
void move_state(Communicator& ranks, const RankTransfer& transfer, const TensorView& from,
                const TensorView& to);

}  // namespace copus
