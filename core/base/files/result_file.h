#pragma once
#include <string>
#include <string_view>

namespace orrery {

/// Checks that a file named by the user can be written, before the work that has the file as its result. Creates
/// nothing. Throws Error "OPTION FILE: why" for an empty name, a folder, a missing folder, or insufficient permissions.
void require_writable(std::string_view option, const std::string& file);

/// Whether the file is a regular file or does not exist yet, so that `write_result` replaces it.
bool is_own_file(const std::string& file);

/// Writes a result to the file that the user named. A regular file is replaced atomically: a full disk leaves the old
/// contents. For a link, its target is replaced. A shared target (a pipe, a device, /dev/stdout) is appended to. Throws
/// Error, Fault::failed.
void write_result(const std::string& file, std::string_view contents);

}  // namespace orrery
