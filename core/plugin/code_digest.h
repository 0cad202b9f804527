#pragma once
#include <filesystem>
#include <string>

namespace orrery {

/// A library, and the digest of its code in hexadecimal digits, "" when it has none. The digest is the GNU build id
/// that orrery_digested() (scripts/cmake/plugin.cmake) computes from all linked objects: the same sources and compiler
/// give the same digest in any folder.
struct LibraryCode {
    std::string path, digest;
};

/// Returns path and code digest of the loaded library that contains an address.
LibraryCode code_at(const void* address);
/// Returns path and code digest of liborrery.so, or of a program linked with its objects.
LibraryCode this_code();
/// Returns the code digest of a library file without running its code; "" also for files that are not a library.
std::string code_digest_of(const std::filesystem::path& file);

}  // namespace orrery
