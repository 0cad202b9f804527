# cmake --install, and packages by CPack. Component orrery: bin/orrery, lib/liborrery.so, lib/orrery/plugins,
# share/orrery (Lua, configs, manual), completion in bash, a manual page. Component dev, for plugins in other projects:
# include/orrery and a CMake package: find_package(orrery) gives orrery::orrery, orrery_plugin(), and the conformance
# suites orrery_conformance() and orrery_KIND_tests(), which run lib/orrery/conformance and KIND_tests (tests/
# conformance, ops, suites); orrery_plugin() links with lib/orrery/orrery_link.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/orrery)
install(TARGETS orrery_link RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/orrery COMPONENT dev)
install(TARGETS orrery EXPORT orrery LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT orrery)
install(DIRECTORY core/include/orrery DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY scripts/orrery DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/scripts COMPONENT orrery OPTIONAL
        PATTERN README.md EXCLUDE)
file(GLOB experiments scripts/*.lua)
install(FILES ${experiments} DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/scripts COMPONENT orrery OPTIONAL)
install(DIRECTORY scripts/templates scripts/ray DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/scripts
        COMPONENT orrery OPTIONAL)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery COMPONENT orrery OPTIONAL)
install(CODE "set(ORRERY_SOURCE \"${PROJECT_SOURCE_DIR}\")
  set(ORRERY_MANUAL \"${CMAKE_BINARY_DIR}/manual\")
  include(\"${PROJECT_SOURCE_DIR}/scripts/cmake/manual.cmake\")" COMPONENT orrery)
install(DIRECTORY ${CMAKE_BINARY_DIR}/manual/ DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/manual COMPONENT orrery)
install(FILES scripts/completion/orrery DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        COMPONENT orrery)
if(TARGET orrery_program)
  set(man_page ${CMAKE_BINARY_DIR}/package/orrery.1)
  install(CODE "execute_process(COMMAND $<TARGET_FILE:orrery_program> --man-page OUTPUT_FILE ${man_page}
    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT orrery)
  install(FILES ${man_page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT orrery)
endif()
install(EXPORT orrery NAMESPACE orrery:: DESTINATION ${package_folder} FILE orrery-targets.cmake COMPONENT dev)
if(TARGET orrery_program)
  install(TARGETS orrery_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT orrery)
  set_target_properties(orrery_program PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

configure_package_config_file(scripts/cmake/orrery-config.cmake.in ${CMAKE_BINARY_DIR}/package/orrery-config.cmake
  INSTALL_DESTINATION ${package_folder} NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/orrery-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/orrery-config.cmake ${CMAKE_BINARY_DIR}/package/orrery-config-version.cmake
  scripts/cmake/plugin.cmake DESTINATION ${package_folder} COMPONENT dev)

# cpack -G DEB: orrery and orrery-dev, with all files in /usr.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME orrery)
set(CPACK_PACKAGE_CONTACT "the Orrery project <orrery@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training of foundation models on many machines")
set(CPACK_COMPONENT_DEV_DESCRIPTION "headers, CMake package and conformance suites for plugins of Orrery")
set(CPACK_COMPONENTS_ALL orrery dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_ORRERY_PACKAGE_NAME orrery)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME orrery-dev)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
foreach(library IN ITEMS ${orrery_cublasLt_library} ${orrery_nccl_library})  # of no package, and optional
  get_filename_component(folder ${library} DIRECTORY)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${folder})
endforeach()
set(CPACK_DEBIAN_ORRERY_PACKAGE_SUGGESTS "bash-completion, openssh-client")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "orrery (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "g++, cmake")
include(CPack)
