# find_package(discreet): one target per room, and discreet::discreet for all of them.
include(CMakePackageConfigHelpers)
get_property(rooms GLOBAL PROPERTY DISCREET_ROOMS)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/discreet)

install(TARGETS ${rooms} discreet EXPORT discreet ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT discreet NAMESPACE discreet:: FILE discreetTargets.cmake DESTINATION ${package_dir})
install(DIRECTORY discreet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*_impl.h" EXCLUDE PATTERN "*_testing.h" EXCLUDE)
install(TARGETS discreet_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
configure_package_config_file(cmake/discreetConfig.cmake.in
  ${PROJECT_BINARY_DIR}/discreetConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/discreetConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/discreetConfig.cmake
  ${PROJECT_BINARY_DIR}/discreetConfigVersion.cmake DESTINATION ${package_dir})
