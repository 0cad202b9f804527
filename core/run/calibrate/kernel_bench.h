#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "orrery/device.h"
#include "plan/cost_table.h"

namespace orrery {

/// A launch to be timed.
struct KernelCase {
    KernelSpec row;  ///< what the table says
    KernelSpec run;  ///< what runs: the same, but for attributes that depend on the rank
    std::vector<std::pair<int, int>> in_place = {};  ///< (output, input) that are one place
    std::string name = {};                           ///< for tables of a benchmark
};

struct KernelBench {
    double budget_s = 30;  ///< of wall time, for all; the last round is cut where it is over
    int threads = 1;       ///< of the device, for the rows
    /// Operands lie in as many places as this takes, in turn: a launch finds in a cache what a step that touches as
    /// much memory would.
    int64_t pool_bytes = int64_t{256} << 20;  ///< two are allocated
    int64_t most_bytes = int64_t{4} << 30;    ///< of one case's operands; a larger one is left out
    /// Before a case of a round; may be empty.
    std::function<void(size_t done, size_t all, const KernelSpec&)> progress = {};
};

/// Rows in the order of the cases. Each is timed in three rounds over all cases, so that what else the machine does for
/// a while falls on all alike; the median of its samples counts. One sample is a launch and the wait for its end, of
/// short ones several, and on a device that queues as many as take some milliseconds. Operands hold numbers of ordinary
/// size, ids that there are. `notes`: cases that were left out, and why. Throws as Device::allocate does.
std::vector<KernelCost> measure_kernels(Device& device, const std::vector<KernelCase>& cases, const KernelBench& bench,
                                        std::vector<std::string>& notes);

/// The median, and the quartiles' distance over it. At least one sample.
Measured measured_of(std::vector<double> seconds);

/// A pool of which no cache holds much: three times the processor's last one, 64 to 256 MiB.
int64_t pool_bytes_here();

}  // namespace orrery
