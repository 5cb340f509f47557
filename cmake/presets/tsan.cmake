# Initial cache: thread sanitizer, CPU only; loops run on one thread a rank (see cmake/Features.cmake).
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(COPUS_SANITIZE thread CACHE STRING "")
set(COPUS_CUDA OFF CACHE STRING "")
set(COPUS_NCCL OFF CACHE STRING "")
set(COPUS_CUDNN OFF CACHE STRING "")
