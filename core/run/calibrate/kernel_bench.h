#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "orrery/device.h"
#include "plan/cost_table.h"

namespace orrery {

struct KernelCase {
    KernelSpec row;  ///< the kernel spec that is recorded in the cost table
    KernelSpec run;  ///< the spec that runs; differs from `row` only in attributes that depend on the rank
    std::vector<std::pair<int, int>> in_place = {};  ///< (output, input) pairs that share memory
    std::string name = {};                           ///< label in a benchmark's tables
};

struct KernelBench {
    double budget_s = 30;  ///< wall time for all cases; the last round is cut short if it is exceeded
    int threads = 1;       ///< number of threads of the device, recorded in the cost table
    /// Bytes of each of two pools of operands. Launches use different operands of a pool in turn, so that a launch
    /// finds as little in caches as in a training step that touches as much memory.
    int64_t pool_bytes = int64_t{256} << 20;
    int64_t most_bytes = int64_t{4} << 30;  ///< max bytes of one case's operands; larger cases are left out
    /// Called before each case of a round: cases done, all cases, and the case's kernel. May be empty.
    std::function<void(size_t done, size_t all, const KernelSpec&)> progress = {};
};

/// Returns rows of a cost table in the order of the cases. Each case is timed in three rounds over all cases, so that
/// temporary load affects all equally; its samples' median counts. A sample is one launch and the wait for its end; of
/// a short kernel several launches; on a device that queues launches, as many as take some milliseconds. Operands hold
/// normal numbers and valid ids. `notes` receives cases left out, and why. Throws what Device::allocate throws.
std::vector<KernelCost> measure_kernels(Device& device, const std::vector<KernelCase>& cases, const KernelBench& bench,
                                        std::vector<std::string>& notes);

/// Returns the median of samples, with the interquartile range over the median as spread. Needs at least one sample.
Measured measured_of(std::vector<double> seconds);

/// Returns a pool size that exceeds the caches: three times the last-level cache, 64 to 256 MiB.
int64_t pool_bytes_here();

}  // namespace orrery
