# Initial cache: with CUDA, refusing to configure without it.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(COPUS_CUDA ON CACHE STRING "")
