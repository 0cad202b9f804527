#pragma once
#include <string>
#include <string_view>

namespace orrery {

/// Looks whether a file that somebody named can be written, before the work whose result it takes. Makes nothing.
/// Throws Error "OPTION FILE: why" where the name is empty or a folder's, its folder is not there, or rights are
/// missing.
void require_writable(std::string_view option, const std::string& file);

/// Whether it is a regular file, or will be one, which `write_result` replaces.
bool is_own_file(const std::string& file);

/// Writes a result to the file that somebody named for it. A regular file is replaced whole: a full disk leaves the old
/// one as it was. Of a link the file that it leads to is replaced, the link stays. What others may read or write at the
/// same time (a pipe, a device, /dev/stdout) is appended to. Throws Error, Fault::failed.
void write_result(const std::string& file, std::string_view contents);

}  // namespace orrery
