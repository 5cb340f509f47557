# COPUS_SANITIZE=address,undefined (or thread) instruments everything that is built here.
if(COPUS_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${COPUS_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${COPUS_SANITIZE})
endif()
