#pragma once
#include <string>
#include <string_view>

namespace orrery {

/// Checks that a file named by the user can be written, before the work whose result it receives. Creates nothing.
/// Throws Error "OPTION FILE: why" if the name is empty, a folder or a disk, its folder is missing, or permissions are
/// insufficient.
void require_writable(std::string_view option, const std::string& file);

/// Whether the file is a regular file or does not exist yet, so that `write_result` replaces it.
bool is_own_file(const std::string& file);

/// Writes a result to the file that the user named. A regular file is replaced atomically: a full disk leaves the old
/// contents. For a link, its target is replaced. A shared target (a pipe, a device, /dev/stdout) is appended to. Throws
/// Error, Fault::failed.
void write_result(const std::string& file, std::string_view contents);

}  // namespace orrery
