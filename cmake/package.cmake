# What `make install` installs: find_package(discreet) with one target per room and discreet::discreet for
# all of them, the same for pkg-config, and the command with its manual pages and completion scripts.
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

# The linker resolves static libraries from left to right: a room before those that it includes.
set(pkgconfig_libraries ${rooms})
list(REVERSE pkgconfig_libraries)
list(TRANSFORM pkgconfig_libraries PREPEND -l)
list(JOIN pkgconfig_libraries " " pkgconfig_libraries)
file(RELATIVE_PATH pkgconfig_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)  # the prefix may be chosen when installing
configure_file(cmake/discreet.pc.in ${PROJECT_BINARY_DIR}/discreet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/discreet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE SECURITY.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The command writes both of itself, so they always match it.
set(manuals ${PROJECT_BINARY_DIR}/man1)
set(completions ${PROJECT_BINARY_DIR}/completions)
install(CODE "
  file(REMOVE_RECURSE \"${manuals}\" \"${completions}\")
  file(MAKE_DIRECTORY \"${manuals}\" \"${completions}\")
  execute_process(COMMAND \"$<TARGET_FILE:discreet_cli>\" manual \"${manuals}\" COMMAND_ERROR_IS_FATAL ANY)
  foreach(shell bash zsh fish)
    execute_process(COMMAND \"$<TARGET_FILE:discreet_cli>\" completion \${shell}
      OUTPUT_FILE \"${completions}/\${shell}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()")
install(DIRECTORY ${manuals} DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${completions}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME discreet)
install(FILES ${completions}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _discreet)
install(FILES ${completions}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME discreet.fish)
