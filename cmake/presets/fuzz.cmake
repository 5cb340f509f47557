# Initial cache: libFuzzer's instrumentation and the address and undefined-behaviour sanitizers, by clang.
set(CMAKE_CXX_COMPILER clang++ CACHE STRING "")
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(COPUS_FUZZ ON CACHE BOOL "")
set(COPUS_SANITIZE address,undefined,fuzzer-no-link CACHE STRING "")
set(COPUS_WERROR OFF CACHE BOOL "")  # GCC's warnings are the ones that count
set(COPUS_TESTS OFF CACHE BOOL "")
set(COPUS_MPI OFF CACHE STRING "")
set(COPUS_CUDA OFF CACHE STRING "")
set(COPUS_NCCL OFF CACHE STRING "")
set(COPUS_CUDNN OFF CACHE STRING "")
set(COPUS_ONEDNN OFF CACHE STRING "")
