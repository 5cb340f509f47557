// Whether a run fits the memory of a rank's GPU, before anything is reserved there.
#pragma once
#include <cstdint>
#include <string>

#include "copus/core/attention_task.h"
#include "copus/core/config.h"
#include "copus/parallel/layout.h"

namespace copus {

// What a rank's device needs beyond the planned memory: partial sums, gradients' landing places,
// plans of libraries. The matrix library's workspace (32 MiB) is reserved with the backend, before
// anybody asks what is free.
inline constexpr std::int64_t kDeviceReserveBytes = std::int64_t{256} << 20;

// Empty where rank `rank` of the run's world fits `free_bytes`; else the key, the memory table, and
// the nearest change that would fit. `library`: the device's.
std::string memory_problem(const Config& config, const Layout& layout, std::int64_t micro, int rank,
                           std::int64_t free_bytes, AttentionLibrary library);

}  // namespace copus
