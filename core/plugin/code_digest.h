#pragma once
#include <filesystem>
#include <string>

namespace orrery {

/// A library, with the digest of its code in hexadecimal digits; "" when it has none. That is the library's GNU build
/// id, which orrery_digested() (scripts/cmake/plugin.cmake) makes of all objects that are linked: equal for equal
/// sources and compiler, in whatever folder they are built.
struct LibraryCode {
    std::string path, digest;
};

/// The loaded library that holds an address.
LibraryCode code_at(const void* address);
/// liborrery.so, or the program that has its objects.
LibraryCode this_code();
/// The digest of a file, of which nothing runs; "" also when it cannot be read as a library of this machine.
std::string code_digest_of(const std::filesystem::path& file);

}  // namespace orrery
