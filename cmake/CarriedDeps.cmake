# COPUS_DEPS: the libraries we need as one folder (include/, lib/libz.a) instead of installed packages. Header-only
# throughout, so the folder serves any Linux compiler; the targets have the names that find_package would give them.
get_filename_component(COPUS_DEPS "${COPUS_DEPS}" ABSOLUTE)
foreach(file include/nlohmann/json.hpp include/fmt/format.h include/spdlog/spdlog.h include/CLI/CLI.hpp
    include/catch2/catch.hpp include/xxhash.h include/zlib.h lib/libz.a)
  if(NOT EXISTS ${COPUS_DEPS}/${file})
    message(FATAL_ERROR "COPUS_DEPS=${COPUS_DEPS}: ${file} is missing; scripts/gpu_deps.sh collects the folder")
  endif()
endforeach()
message(STATUS "COPUS_DEPS: ${COPUS_DEPS}")

function(copus_carried name)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name} SYSTEM INTERFACE ${COPUS_DEPS}/include)
endfunction()

copus_carried(nlohmann_json::nlohmann_json)
copus_carried(CLI11::CLI11)
copus_carried(Catch2::Catch2)
copus_carried(fmt::fmt)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
copus_carried(spdlog::spdlog)
target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
copus_carried(ZLIB::ZLIB)
target_link_libraries(ZLIB::ZLIB INTERFACE ${COPUS_DEPS}/lib/libz.a)
set(XXHASH_INCLUDE_DIR ${COPUS_DEPS}/include)
