# COPUS_CUDA: finds nvcc (PATH, CUDACXX, /usr/local/cuda), enables the language and sets COPUS_HAVE_CUDA.
# A macro, because the variables of an enabled language must reach the caller.
macro(copus_find_cuda)
  set(COPUS_NVCC_WORKS OFF)
  if(NOT COPUS_CUDA STREQUAL "OFF")
    find_program(COPUS_NVCC nvcc HINTS $ENV{CUDACXX} ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(COPUS_NVCC)
    if(COPUS_NVCC)
      set(CMAKE_CUDA_ARCHITECTURES ${COPUS_CUDA_ARCHITECTURES})
      # An nvcc that cannot work with this host compiler is, to AUTO, no nvcc. ON wants to see its error.
      set(ENV{CUDACXX} ${COPUS_NVCC})
      if(COPUS_CUDA STREQUAL "AUTO")
        include(CheckLanguage)
        check_language(CUDA)
      endif()
    endif()
    if(COPUS_NVCC AND (COPUS_CUDA STREQUAL "ON" OR CMAKE_CUDA_COMPILER))
      enable_language(CUDA)
      find_package(CUDAToolkit REQUIRED)
      # Beside the toolkit, or where COPUS_CUBLAS_ROOT says; packages of Python carry the library without its plain name.
      find_path(COPUS_CUBLASLT_INCLUDE_DIR cublasLt.h
        HINTS ${COPUS_CUBLAS_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
      find_library(COPUS_CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13
        HINTS ${COPUS_CUBLAS_ROOT} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
      mark_as_advanced(COPUS_CUBLASLT_INCLUDE_DIR COPUS_CUBLASLT_LIBRARY)
      if(COPUS_CUBLASLT_INCLUDE_DIR AND COPUS_CUBLASLT_LIBRARY)
        add_library(copus_cublaslt INTERFACE)
        target_include_directories(copus_cublaslt SYSTEM INTERFACE
          ${COPUS_CUBLASLT_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
        target_link_libraries(copus_cublaslt INTERFACE ${COPUS_CUBLASLT_LIBRARY})
        set(COPUS_NVCC_WORKS ON)
      else()
        message(STATUS "COPUS_CUDA: nvcc is here, cuBLASLt is not (COPUS_CUBLAS_ROOT may name its folder)")
      endif()
      # CMake 3.25 knows no C++20 flag for nvcc 13 and would drop CUDA_STANDARD 20 without a word.
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA_STANDARD 20)
      set(CMAKE_CUDA_STANDARD_REQUIRED ON)
      set(CMAKE_CUDA_EXTENSIONS OFF)
    endif()
  endif()
  list(JOIN COPUS_CUDA_ARCHITECTURES ", " architectures)
  copus_feature(CUDA "${COPUS_NVCC_WORKS}"
    "CUDA ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${architectures}")
endmacro()
