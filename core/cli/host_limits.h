#pragma once
#include <cstdint>
#include <string>

namespace orrery {

/// What narrows the processors and the memory of this host for this process: the affinity mask or a cpuset, a CPU
/// quota, a memory limit. "this host: 8 of 64 processors (1 socket, 4 cores), ...", "" if nothing does. `needed_bytes`:
/// host memory that the ranks of this host need; a limit that is too small for them is reported as such.
std::string host_limits_text(int64_t needed_bytes);

/// Prints the CPU quota on stderr if it allows less than the processors that this process may run on.
void tell_quota();

}  // namespace orrery
