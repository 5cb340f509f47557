# Warnings are errors in our own code, and only there.
function(copus_warnings target)
  set(host_warnings -Wall -Wextra -Wconversion -Wshadow -Werror)
  list(JOIN host_warnings "," through_nvcc)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${host_warnings}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=${through_nvcc}>")
endfunction()
