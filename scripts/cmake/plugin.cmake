# orrery_plugin() and the compiler's part of the ABI, for this build and for the installed package alike.

# What a plugin and liborrery.so must share besides the headers: "gnu-12-cxx11-release-address".
function(orrery_compiler_abi result sanitizers)
  include(CheckCXXSourceCompiles)
  check_cxx_source_compiles("#include <string>
    #if defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
    #error old
    #endif
    int main() {}" orrery_has_cxx11_strings)
  set(strings old)
  if(orrery_has_cxx11_strings)
    set(strings cxx11)
  endif()
  string(REGEX MATCH "^[0-9]+" major ${CMAKE_CXX_COMPILER_VERSION})
  string(TOLOWER "${CMAKE_CXX_COMPILER_ID}-${major}-${strings}-${CMAKE_BUILD_TYPE}-${sanitizers}" abi)
  string(REGEX REPLACE "[^a-z0-9]+" "-" abi "${abi}")
  string(REGEX REPLACE "-+$" "" abi "${abi}")
  set(${result} ${abi} PARENT_SCOPE)
endfunction()

# orrery_digested(TARGET): the build id of this shared library is the digest of the code that it is linked of (scripts/
# cmake/link.cpp), which ranks compare and checkpoints record.
function(orrery_digested target)
  set(link ${ORRERY_LINK})
  if(TARGET orrery_link)
    set(link ${CMAKE_BINARY_DIR}/scripts/orrery_link)
    add_dependencies(${target} orrery_link)
  endif()
  set_target_properties(${target} PROPERTIES CXX_LINKER_LAUNCHER ${link})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${link})
  target_compile_options(${target} PRIVATE ${orrery_relative_names})
endfunction()
# Asserts name their file: by its place in the project, whatever folder that is in.
set(orrery_asserts $<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>>)
set(orrery_relative_names $<${orrery_asserts}:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)

# Compiles .cu files with nvcc, for the target's other sources with ORRERY_CUDA defined; leaves them out, and that
# undefined, where orrery is built without CUDA. A CUDA runtime of the plugin's own is linked: streams are the driver's.
function(orrery_plugin_cuda target)
  if(NOT ORRERY_HAVE_CUDA OR ARGC EQUAL 1)
    return()
  endif()
  find_program(orrery_nvcc nvcc PATHS /usr/local/cuda/bin ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin)
  if(NOT orrery_nvcc)
    message(STATUS "${target}: without its CUDA kernels: nvcc was not found (on PATH, in /usr/local/cuda or CUDA_HOME)")
    return()
  endif()
  get_filename_component(toolkit ${orrery_nvcc} REALPATH)
  get_filename_component(toolkit ${toolkit}/../.. ABSOLUTE)
  find_library(orrery_cudart cudart_static HINTS ${toolkit}/lib64 ${toolkit}/lib ${toolkit}/targets/x86_64-linux/lib)
  set(flags -std=c++20 -O3 --threads=1 -Xcompiler=-fPIC,-fvisibility=hidden)
  foreach(architecture IN LISTS ORRERY_CUDA_ARCHITECTURES)
    list(APPEND flags -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_${name}.o)
    add_custom_command(OUTPUT ${object} DEPFILE ${object}.d DEPENDS ${source}
      WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} COMMENT "nvcc ${name}" VERBATIM
      COMMAND ${CMAKE_CUDA_COMPILER_LAUNCHER} ${orrery_nvcc} ${flags} -MD -MF ${object}.d -c ${source} -o ${object})
    target_sources(${target} PRIVATE ${object})
  endforeach()
  target_compile_definitions(${target} PRIVATE ORRERY_CUDA)
  find_package(Threads REQUIRED)
  target_link_libraries(${target} PRIVATE ${orrery_cudart} Threads::Threads dl rt)
endfunction()

# orrery_plugin(KIND NAME sources...): target KIND_NAME, file liborrery_KIND_NAME.so in build/plugins. KIND is codec,
# data, device, op, transport, strategy, store, rendezvous, launcher or engine; NAME is lower case. .cu files are
# compiled where orrery has CUDA, and the others see ORRERY_CUDA then. Libraries: target_link_libraries(KIND_NAME ...).
function(orrery_plugin kind name)
  if(NOT kind MATCHES "^(codec|data|device|engine|op|transport|strategy|store|rendezvous|launcher)$"
     OR NOT name MATCHES "^[a-z0-9_]+$")
    message(FATAL_ERROR "orrery_plugin(${kind} ${name}): kinds are codec, data, device, op, transport, "
      "strategy, store, rendezvous, launcher, engine; names are a-z 0-9 _")
  endif()
  set(target ${kind}_${name})
  file(REMOVE ${CMAKE_BINARY_DIR}/plugins/liborrery_${kind}_${name}.why)
  set(cuda_sources ${ARGN})
  list(FILTER cuda_sources INCLUDE REGEX "\\.cu$")
  list(FILTER ARGN EXCLUDE REGEX "\\.cu$")
  add_library(${target} MODULE ${ARGN})
  orrery_plugin_cuda(${target} ${cuda_sources})
  if(TARGET orrery::orrery)
    target_link_libraries(${target} PRIVATE orrery::orrery)
  else()
    target_link_libraries(${target} PRIVATE orrery)
  endif()
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_definitions(${target} PRIVATE ORRERY_ABI="${ORRERY_ABI}")
  set_target_properties(${target} PROPERTIES OUTPUT_NAME orrery_${kind}_${name} PREFIX lib SUFFIX .so
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS_NO_SHARED ON  # another liborrery of the same ABI is no reason to link it again
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins INSTALL_RPATH "$ORIGIN/../..")
  orrery_digested(${target})
  if(TARGET all_plugins)
    add_dependencies(all_plugins ${target})
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/orrery/plugins COMPONENT orrery)
endfunction()

# The test TEST runs the installed suite PROGRAM on this project's plugin NAME, chosen by the variable NAMES. With
# CONFIG FILE the plugin gets the keys of [KIND.NAME] there, a data source those of [data].
function(orrery_suite_test test program names folder name)
  cmake_parse_arguments(PARSE_ARGV 5 suite "" "CONFIG" "")
  if(NOT EXISTS "${ORRERY_SUITES}/${program}")
    message(WARNING "there is no test ${test}: the installed orrery has no ${program}, which was not built before it "
      "was installed\nbuild all of orrery (scripts/build, with ORRERY_DEV=ON, the default; scripts/quickstart builds "
      "the program alone), and install it again")
    return()
  endif()
  set(environment ${names}=${name} ${folder}=${CMAKE_BINARY_DIR}/plugins)
  if(suite_CONFIG)
    get_filename_component(config ${suite_CONFIG} ABSOLUTE)
    list(APPEND environment ORRERY_CONFORMANCE_CONFIG=${config})
  endif()
  add_test(NAME ${test} COMMAND ${ORRERY_SUITES}/${program})
  set_tests_properties(${test} PROPERTIES TIMEOUT 1200 ENVIRONMENT "${environment}")
endfunction()

# orrery_conformance(NAME): the test conformance.NAME of this project's transport NAME: collectives, messages, every
# line of its contract, and what happens when a member dies.
function(orrery_conformance name)
  orrery_suite_test(conformance.${name} conformance ORRERY_CONFORMANCE_TRANSPORTS ORRERY_CONFORMANCE_PLUGINS ${name})
endfunction()

# orrery_op_tests(NAME): the test ops.NAME of all that this project's plugin op/NAME adds, with the samples that it
# gives: gradients, factor rules, kernels, text.
function(orrery_op_tests name)
  orrery_suite_test(ops.${name} op_tests ORRERY_TESTED_OPS ORRERY_TESTED_OP_PLUGINS ${name})
endfunction()

# The test KIND.NAME of this project's plugin KIND/NAME, each promise of the header that it implements:
# orrery_store_tests(NAME [CONFIG FILE]): orrery/checkpoint.h
function(orrery_store_tests name)
  orrery_suite_test(store.${name} store_tests ORRERY_CONFORMANCE_STORES ORRERY_CONFORMANCE_PLUGINS ${name} ${ARGN})
endfunction()
# orrery_data_tests(NAME [CONFIG FILE]): orrery/data.h
function(orrery_data_tests name)
  orrery_suite_test(data.${name} data_tests ORRERY_CONFORMANCE_DATA ORRERY_CONFORMANCE_PLUGINS ${name} ${ARGN})
endfunction()
# orrery_device_tests(NAME [CONFIG FILE]): orrery/device.h
function(orrery_device_tests name)
  orrery_suite_test(device.${name} device_tests ORRERY_CONFORMANCE_DEVICES ORRERY_CONFORMANCE_PLUGINS ${name} ${ARGN})
endfunction()
# orrery_rendezvous_tests(NAME [CONFIG FILE]): orrery/rendezvous.h
function(orrery_rendezvous_tests name)
  orrery_suite_test(rendezvous.${name} rendezvous_tests ORRERY_CONFORMANCE_RENDEZVOUS ORRERY_CONFORMANCE_PLUGINS ${name}
                    ${ARGN})
endfunction()
# orrery_launcher_tests(NAME [CONFIG FILE]): orrery/launcher.h; FILE has ranks as it starts them, [launcher.NAME.RANK]
function(orrery_launcher_tests name)
  orrery_suite_test(launcher.${name} launcher_tests ORRERY_CONFORMANCE_LAUNCHERS ORRERY_CONFORMANCE_PLUGINS ${name}
                    ${ARGN})
endfunction()
# orrery_engine_tests(NAME [CONFIG FILE]): orrery/engine.h; FILE has answers of its programs, [engine.NAME.CASE]
function(orrery_engine_tests name)
  orrery_suite_test(engine.${name} engine_tests ORRERY_CONFORMANCE_ENGINES ORRERY_CONFORMANCE_PLUGINS ${name} ${ARGN})
endfunction()
# orrery_codec_tests(NAME): orrery/codec.h
function(orrery_codec_tests name)
  orrery_suite_test(codec.${name} codec_tests ORRERY_CONFORMANCE_CODECS ORRERY_CONFORMANCE_PLUGINS ${name})
endfunction()

# orrery_absent(KIND NAME why): the plugin is not built; `orrery plugins` and whoever asks for it are told why.
function(orrery_absent kind name why)
  set(stem ${CMAKE_BINARY_DIR}/plugins/liborrery_${kind}_${name})
  file(REMOVE ${stem}.so)
  file(WRITE ${stem}.why "${why}\n")
  message(STATUS "${kind}/${name}: not built, ${why}")
  install(FILES ${stem}.why DESTINATION ${CMAKE_INSTALL_LIBDIR}/orrery/plugins COMPONENT orrery)
endfunction()
