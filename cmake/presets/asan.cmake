# Initial cache: address and undefined-behaviour sanitizers, CPU only.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(COPUS_SANITIZE address,undefined CACHE STRING "")
set(COPUS_CUDA OFF CACHE STRING "")
set(COPUS_NCCL OFF CACHE STRING "")
set(COPUS_CUDNN OFF CACHE STRING "")
