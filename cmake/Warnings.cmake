# Warnings are errors in our own code, and only there. COPUS_WERROR=OFF is for a compiler that nobody here has seen.
option(COPUS_WERROR "Warnings of our own code are errors" ON)
function(copus_warnings target)
  set(host_warnings -Wall -Wextra -Wconversion -Wshadow)
  set(device_warnings "")
  if(COPUS_WERROR)
    list(APPEND host_warnings -Werror)
    # A kernel that spills registers into memory does not compile: scripts/kernel_resources.sh shows what each takes.
    set(device_warnings -Werror=all-warnings -Xptxas=-warn-spills,-Werror)
  endif()
  list(JOIN host_warnings "," through_nvcc)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${host_warnings}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:${device_warnings};-Xcompiler=${through_nvcc}>")
endfunction()
