#pragma once
#include <cstdint>
#include <exception>
#include <string>

#include "orrery/error.h"

namespace orrery {

/// Raises the soft limit of open files, sockets included, to at least `count` for this process and its children. Throws
/// Error, naming `who` and both numbers, if the hard limit is lower.
void need_descriptors(int64_t count, const std::string& who);

/// Throws Error, with what is left and the limit's file, if the control groups of this process do not allow it `bytes`
/// more of memory: Linux would let it allocate them, and kill it when it writes to them.
void need_memory(int64_t bytes);

/// Returns the exception's message. For a failed allocation or thread creation, adds this process's limits.
std::string explain(const std::exception& error);

/// Returns the fault of an Error, or Fault::failed for other exceptions.
Fault fault_of(const std::exception& error);

}  // namespace orrery
