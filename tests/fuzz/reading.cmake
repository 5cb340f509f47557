# The code that reads files, and nothing of what runs them: the fuzzers instrument it, and test_fuzz is
# linked to the same, so that a build without clang sees when the list has become too short.
add_library(fuzz_reading OBJECT)
foreach(source files safetensors safetensors_header safetensors_writer hf_config hf_model hf_place checkpoint_files checkpoint_state)
  target_sources(fuzz_reading PRIVATE ${PROJECT_SOURCE_DIR}/src/state/${source}.cpp)
endforeach()
# What state.json keeps of the planner's.
foreach(source planner_memory layout_json)
  target_sources(fuzz_reading PRIVATE ${PROJECT_SOURCE_DIR}/src/plan/${source}.cpp)
endforeach()
target_include_directories(fuzz_reading PUBLIC ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src PRIVATE ${XXHASH_INCLUDE_DIR})
target_link_libraries(fuzz_reading PUBLIC copus_core copus_parallel copus_data nlohmann_json::nlohmann_json fmt::fmt)
