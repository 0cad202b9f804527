#pragma once
#include <cstdint>
#include <map>
#include <string>

/// What this program allocates, on all of its threads: it has its own malloc and its kin, over glibc's.
namespace orrery::steps {

/// From here on allocations are noted with who asked for them; what was noted before is forgotten.
void begin_noting();
void end_noting();

struct Noted {
    int64_t times = 0;
    int64_t bytes = 0;
    std::string first;  ///< where the first was asked for: modules and symbols, the innermost first
};
/// By module: the innermost caller that is neither the C nor the C++ library, "core" being this program, which has the
/// core's objects. Between begin and end all threads are looked at, also those of libraries.
std::map<std::string, Noted> noted();

/// Bytes that malloc has given and not got back, in all of the program.
int64_t bytes_in_use();

}  // namespace orrery::steps
