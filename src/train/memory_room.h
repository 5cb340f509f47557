// Whether a run fits the memory of a rank's GPU, before anything is reserved there.
#pragma once
#include <cstdint>
#include <string>

#include "copus/backend/attention_kernel.h"
#include "copus/core/config.h"
#include "copus/parallel/layout.h"

namespace copus {

// What a rank's device needs beyond the planned memory: workspaces of the matrix library, partial
// sums, gradients' landing places.
inline constexpr std::int64_t kDeviceReserveBytes = std::int64_t{256} << 20;
// That, and the workspace of cuDNN's attention where the run goes by it.
std::int64_t device_reserve_bytes(const Config& config, const Layout& layout, std::int64_t micro);

// The attention of a run's layers, as the choice of its kernel looks at it.
AttentionTask attention_task(const Config& config);

// Empty where rank `rank` of the run's world fits `free_bytes`; else the key, the memory table, and
// the nearest change that would fit.
std::string memory_problem(const Config& config, const Layout& layout, std::int64_t micro, int rank,
                           std::int64_t free_bytes);

}  // namespace copus
