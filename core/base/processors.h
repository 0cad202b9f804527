#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace orrery {

/// Returns the processors that this thread may run on, ascending, as taskset, cpusets or a batch system allow. {0} if
/// the kernel does not report them.
std::vector<int> allowed_processors();

/// Number of processors that this process may use at the same time: those of allowed_processors(), or fewer by the CPU
/// quota of its control groups, rounded down, but at least 1. Threads are counted by it.
int64_t usable_processors();

/// Whether this process may run on fewer processors than its cpuset has and a process above it may: it was bound, by
/// taskset or a launcher. True if the kernel does not report them all.
bool is_bound();

double processor_s();

/// Restricts this thread, and threads and processes that it starts later, to these processors. Returns false and sets
/// errno if the kernel refuses.
bool run_on(const std::vector<int>& processors);

/// Gives each rank an equal number of neighbouring processors, none of them twice; returns nothing if a rank would get
/// fewer than `threads`. {0..7} for two ranks of three threads gives {0..3} and {4..7}.
std::vector<std::vector<int>> shares(const std::vector<int>& processors, int64_t ranks, int64_t threads);

/// Max number of ranks started on this host for measurements: 64 for each usable processor. With so many, a step
/// already takes seconds, since ranks wait for each other.
int64_t most_measured_ranks();

/// Calls each(i) once for each i below `count`, and returns when all calls are done. Uses one thread per usable
/// processor, including this thread, but at most four, since each holds its work in memory. If calls throw, rethrows
/// the exception of the smallest i.
void in_parallel(size_t count, const std::function<void(size_t)>& each);
/// Calls each(thread, i) once for each i below `count`, on `threads` threads (thread 0 is the caller's). Returns when
/// all calls are done, and rethrows the exception of the smallest i.
void in_parallel(size_t count, size_t threads, const std::function<void(size_t, size_t)>& each);

}  // namespace orrery
