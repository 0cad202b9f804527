# Compiler cache, linker, warnings and sanitizers, for this project's own targets.
find_program(ccache_program ccache)
# Headers are half of a cold build. `scripts/test --address` compiles core, plugins and their tests without this, which
# shows missing includes.
option(ORRERY_PRECOMPILE "precompiled standard headers, and the files of a folder compiled in groups" ON)
set(precompiles OFF)
if(ORRERY_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(precompiles ON)
endif()
if(ccache_program AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  if(precompiles)
    # What ccache demands where headers are precompiled; the .sum file below stands for the 90 MB that it would read.
    # Relative names, so that two build folders of one checkout share the objects of the same command.
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1
        CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${ccache_program})
  else()
    set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_program})
  endif()
endif()
find_program(mold_program mold)
if(mold_program)
  add_link_options(-fuse-ld=mold)
endif()
# -Wrestrict has false alarms in g++ 12's own strings (gcc bug 105651); members of nouns have defaults.
# A switch over an enum names every case: a new one compiles nowhere before each place has decided.
set(warnings
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror=switch;-Wno-restrict;-Wno-missing-field-initializers>")
option(ORRERY_WERROR "warnings are errors; for the compiler that CI has" ON)
set(plain_options "${warnings}")
if(ORRERY_DEV AND ORRERY_WERROR)
  list(APPEND plain_options "$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
endif()
set(quick_address OFF)  # as `scripts/test --address` builds, without --long
if(NOT ORRERY_SANITIZE)
  add_compile_options("${plain_options}")
else()
  add_compile_options("${warnings}")  # sanitizers give g++ 12 more false alarms: no -Werror
  string(REPLACE ";" "," sanitizers "${ORRERY_SANITIZE}")
  set(sanitizer_flags -fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${sanitizers})
  # These four cost almost half of the time that a file takes to compile, and the address sanitizer finds most of what
  # they find; `scripts/test --address --long` names them.
  if("address" IN_LIST ORRERY_SANITIZE AND NOT "vptr" IN_LIST ORRERY_SANITIZE)
    set(quick_address ON)
    list(APPEND sanitizer_flags -fno-sanitize=null,vptr,alignment,object-size)
  endif()
  add_compile_options(${sanitizer_flags})
endif()

function(orrery_precompiled_flags target)
  # For ccache; and strings of precompiled headers give g++ 12 two more false alarms (like gcc bug 105651).
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess;-Wno-stringop-overflow;-Wno-array-bounds>)
endfunction()

# orrery_precompile(TARGET headers...): the target's sources, and those of targets that reuse it, begin with these
# headers of the system, fmt and Catch2. What they hold is named by the versions in the .sum file.
function(orrery_precompile target)
  if(NOT precompiles)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE ${ARGN})
  orrery_precompiled_flags(${target})
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} --version OUTPUT_VARIABLE versions)
  set(folders /usr/include)
  foreach(package fmt::fmt Catch2::Catch2)
    if(TARGET ${package})
      get_target_property(found ${package} INTERFACE_INCLUDE_DIRECTORIES)
      list(APPEND folders ${found})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    file(GLOB headers ${folder}/fmt/core.h ${folder}/fmt/format.h ${folder}/catch2/catch.hpp)
    foreach(header IN LISTS headers)
      file(SHA256 ${header} hash)
      string(APPEND versions "${header} ${hash}\n")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.gch.sum
       CONTENT "${versions}${ARGN}\n" @ONLY)
endfunction()

# orrery_reuse_precompiled(TARGET OTHER): TARGET, with the same flags, uses OTHER's precompiled headers.
function(orrery_reuse_precompiled target other)
  if(precompiles)
    target_precompile_headers(${target} REUSE_FROM ${other})
    orrery_precompiled_flags(${target})
  endif()
endfunction()

# orrery_together(TARGET BYTES files...): compiles the files of a folder in groups, each of at most so many bytes of
# source, as headers cost more than what a file adds. A change of one file compiles its group. Names of their own must
# differ within a folder. A file with flags of its own stays alone.
function(orrery_together target most)
  if(NOT ORRERY_PRECOMPILE)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  list(SORT ARGN)
  foreach(source IN LISTS ARGN)
    get_source_file_property(own_flags ${source} COMPILE_OPTIONS)
    if(own_flags)
      continue()
    endif()
    file(SIZE ${source} bytes)
    file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    get_filename_component(folder ${name} DIRECTORY)
    string(REPLACE "/" "_" folder ${folder})
    math(EXPR bytes_${folder} "0${bytes_${folder}} + ${bytes}")
    if(NOT number_${folder} OR bytes_${folder} GREATER most)
      math(EXPR number_${folder} "0${number_${folder}} + 1")
      set(bytes_${folder} ${bytes})
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${number_${folder}})
  endforeach()
endfunction()
