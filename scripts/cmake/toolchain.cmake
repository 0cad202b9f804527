# Compiler cache, linker, warnings and sanitizers, for this project's own targets.
find_program(ccache_program ccache)
if(ccache_program AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_program})
endif()
find_program(mold_program mold)
if(mold_program)
  add_link_options(-fuse-ld=mold)
endif()
# -Wrestrict has false alarms in g++ 12's own strings (gcc bug 105651); members of nouns have defaults.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-restrict;-Wno-missing-field-initializers>")
if(ORRERY_DEV AND NOT ORRERY_SANITIZE) # sanitizers give g++ 12 more false alarms
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(ORRERY_SANITIZE)
  string(REPLACE ";" "," sanitizers "${ORRERY_SANITIZE}")
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${sanitizers})
endif()
