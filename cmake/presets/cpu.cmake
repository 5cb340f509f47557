# Initial cache: CPU only. cmake -C cmake/presets/cpu.cmake -S . -B build -G Ninja
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(COPUS_CUDA OFF CACHE STRING "")
set(COPUS_NCCL OFF CACHE STRING "")
set(COPUS_CUDNN OFF CACHE STRING "")
