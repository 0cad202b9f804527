# cmake --install: bin/orrery, lib/liborrery.so, lib/orrery/plugins, include/orrery, share/orrery (Lua, configs, manual)
# and a CMake package: find_package(orrery) gives orrery::orrery, orrery_plugin(), and the conformance suites
# orrery_conformance() and orrery_KIND_tests(), which run lib/orrery/conformance and KIND_tests (tests/conformance, ops,
# suites); orrery_plugin() links with lib/orrery/orrery_link.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/orrery)
install(TARGETS orrery_link RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/orrery COMPONENT orrery)
install(TARGETS orrery EXPORT orrery LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT orrery)
install(DIRECTORY core/include/orrery DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT orrery
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY scripts/orrery DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/scripts COMPONENT orrery OPTIONAL)
file(GLOB experiments scripts/*.lua)
install(FILES ${experiments} DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/scripts COMPONENT orrery OPTIONAL)
install(DIRECTORY scripts/templates scripts/ray DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/scripts
        COMPONENT orrery OPTIONAL)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery COMPONENT orrery OPTIONAL)
install(CODE "set(ORRERY_SOURCE \"${PROJECT_SOURCE_DIR}\")
  set(ORRERY_MANUAL \"${CMAKE_BINARY_DIR}/manual\")
  include(\"${PROJECT_SOURCE_DIR}/scripts/cmake/manual.cmake\")" COMPONENT orrery)
install(DIRECTORY ${CMAKE_BINARY_DIR}/manual/ DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/manual COMPONENT orrery)
install(EXPORT orrery NAMESPACE orrery:: DESTINATION ${package_folder} FILE orrery-targets.cmake COMPONENT orrery)
if(TARGET orrery_program)
  install(TARGETS orrery_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT orrery)
  set_target_properties(orrery_program PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

configure_package_config_file(scripts/cmake/orrery-config.cmake.in ${CMAKE_BINARY_DIR}/package/orrery-config.cmake
  INSTALL_DESTINATION ${package_folder} NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/orrery-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/orrery-config.cmake ${CMAKE_BINARY_DIR}/package/orrery-config-version.cmake
  scripts/cmake/plugin.cmake DESTINATION ${package_folder} COMPONENT orrery)
