// What the ranks of a running job can do, measured by themselves at the start.
#pragma once
#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"
#include "copus/plan/hardware.h"

namespace copus {

// Every rank calls it, so that each is measured while the others work too. `world`: for tensors in
// the backend's memory. `peak_flops`: of this
// rank's device in `precision`, measured the same way; the rate of fp32 is known in any case.
// `hosts`: that the world spans. `memory_bytes`: of this rank. Attention's share of the peak is
// Hardware's default: steps correct it. The same on every rank.
Hardware measure_hardware(Backend& backend, Communicator& world, double peak_flops,
                          Precision precision, int hosts, std::int64_t memory_bytes);

}  // namespace copus
