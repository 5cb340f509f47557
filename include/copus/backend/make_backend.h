// The backend that a configuration's `device` asks for.
#pragma once
#include <memory>

#include "copus/backend/backend.h"
#include "copus/core/config.h"

namespace copus {

// `automatic` is the first CUDA device where one can be used, else the CPU; `cuda` where none can
// be used is a ConfigError with the reason. `threads` is for the CPU.
std::unique_ptr<Backend> make_backend(DeviceChoice device, int threads);

}  // namespace copus
