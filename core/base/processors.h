#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace orrery {

/// The processors that this thread may run on, ascending: what taskset, cpusets or a batch system have left of the
/// host's. {0} when the kernel does not say.
std::vector<int> allowed_processors();

/// Seconds for which this thread was given a processor since it began.
double processor_s();

/// Lets this thread, and the threads and processes that it starts from here on, run on these processors only. False,
/// with errno set, when the kernel refuses.
bool run_on(const std::vector<int>& processors);

/// Disjoint neighbours out of `processors`, as many for each of `ranks`, or nothing when there are not `threads` for
/// each: {0..7} for two ranks of three threads: {0..3} and {4..7}.
std::vector<std::vector<int>> shares(const std::vector<int>& processors, int64_t ranks, int64_t threads);

/// Ranks that are started here to measure them, at most: each waits for the others, and 64 on each processor that this
/// process may run on take seconds a step already.
int64_t most_measured_ranks();

/// Calls each(i) once for every i below `count`, on a thread for each of those processors but at most four (each holds
/// what it works on in memory), this one among them; returns when all are done. Where some throw, that of the least i
/// is thrown here.
void in_parallel(size_t count, const std::function<void(size_t)>& each);
/// The same on so many threads, as each(thread, i) with threads from 0 on, of which this one is the first.
void in_parallel(size_t count, size_t threads, const std::function<void(size_t, size_t)>& each);

}  // namespace orrery
