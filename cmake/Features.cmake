# What each AUTO|ON|OFF option found. A missing optional library is one STATUS line and a stub.
find_package(Threads REQUIRED)
if(COPUS_DEPS)
  include(CarriedDeps)  # a machine without packages: what scripts/gpu_deps.sh has collected
else()
  find_package(nlohmann_json 3.11 REQUIRED)
  find_package(fmt REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(ZLIB REQUIRED)
  find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
endif()

foreach(feature MPI CUDA NCCL CUDNN ONEDNN)
  if(NOT COPUS_${feature} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "COPUS_${feature}=${COPUS_${feature}}: it takes AUTO, ON or OFF")
  endif()
endforeach()

function(copus_feature name found detail)
  if(COPUS_${name} STREQUAL "OFF")
    set(COPUS_HAVE_${name} OFF PARENT_SCOPE)
    message(STATUS "COPUS_${name}: off, as asked")
  elseif(found)
    set(COPUS_HAVE_${name} ON PARENT_SCOPE)
    message(STATUS "COPUS_${name}: ${detail}")
  elseif(COPUS_${name} STREQUAL "ON")
    message(FATAL_ERROR "COPUS_${name}=ON, but it was not found. Install it, or use AUTO or OFF.")
  else()
    set(COPUS_HAVE_${name} OFF PARENT_SCOPE)
    message(STATUS "COPUS_${name}: not found, built without")
  endif()
endfunction()

if(NOT COPUS_ONEDNN STREQUAL "OFF")
  find_package(OneDNN QUIET)
endif()
copus_feature(ONEDNN "${OneDNN_FOUND}" "oneDNN ${OneDNN_VERSION}")

include(Cuda)
copus_find_cuda()

if(NOT COPUS_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)
  set(MPI_DETERMINE_LIBRARY_VERSION ON)
  find_package(MPI QUIET COMPONENTS CXX)
  # "Open MPI v4.1.4, package: ..." or MPICH's several lines: the part before the first comma or line end
  string(REGEX REPLACE "[,\n].*" "" mpi_version "${MPI_CXX_LIBRARY_VERSION_STRING}")
endif()
copus_feature(MPI "${MPI_CXX_FOUND}" "${mpi_version}")
if(COPUS_HAVE_CUDA AND NOT COPUS_NCCL STREQUAL "OFF")
  find_package(NCCL QUIET)
endif()
copus_feature(NCCL "${NCCL_FOUND}" "NCCL ${NCCL_VERSION}")
if(COPUS_HAVE_CUDA AND NOT COPUS_CUDNN STREQUAL "OFF")
  find_package(CUDNN 9.8 QUIET)  # from then on it plans for a described device
endif()
copus_feature(CUDNN "${CUDNN_FOUND}" "cuDNN ${CUDNN_VERSION}")

# Our own loops share the OpenMP threads of oneDNN. ThreadSanitizer cannot see into libgomp, so there they run serially;
# a fuzzer runs none of them.
if(NOT COPUS_SANITIZE MATCHES "thread" AND NOT COPUS_FUZZ)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
