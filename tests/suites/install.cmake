# orrery_install_suite(TARGET NAME): the conformance suite TARGET is installed as lib/orrery/NAME, as the functions of
# scripts/cmake/plugin.cmake run it. One that is not built (scripts/quickstart builds none) is left out.
function(orrery_install_suite target name)
  install(PROGRAMS $<TARGET_FILE:${target}> DESTINATION ${CMAKE_INSTALL_LIBDIR}/orrery RENAME ${name}
          COMPONENT dev OPTIONAL)
  if(NOT TARGET installed_suites)
    add_custom_target(installed_suites)
  endif()
  add_dependencies(installed_suites ${target})
  install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
    list(APPEND orrery_unbuilt ${target})
  endif()" COMPONENT dev)
endfunction()

# orrery_tell_unbuilt_suites(): `cmake --install` says which suites it has left out so far.
function(orrery_tell_unbuilt_suites)
  install(CODE "if(orrery_unbuilt)
    list(JOIN orrery_unbuilt \" \" orrery_unbuilt)
    message(WARNING \"conformance suites that are not built are left out: \${orrery_unbuilt}\\n\"
      \"tests of plugins in other projects need them: cmake --build ${CMAKE_BINARY_DIR}, then install again\")
  endif()" COMPONENT dev)
endfunction()
