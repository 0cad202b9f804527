#pragma once
#include <cstdint>
#include <exception>
#include <string>

#include "orrery/error.h"

namespace orrery {

/// Lets this process and those that it starts open `count` files, sockets included: raises the soft limit where it is
/// lower. Throws Error, naming `who` and both numbers, where the hard limit is lower, too.
void need_descriptors(int64_t count, const std::string& who);

/// What it says; of memory or threads that the system refuses, that, and the limits set for this process.
std::string explain(const std::exception& error);

/// Of an Error, its own; of anything else, Fault::failed.
Fault fault_of(const std::exception& error);

}  // namespace orrery
