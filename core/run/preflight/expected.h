#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace orrery {

/// What a cluster is said to do, per second and rank, before bars are taken of it. 0: nothing is said.
struct ExpectedFigures {
    double matrix_f32 = 0, matrix_bf16 = 0;                  ///< dense peaks, FLOP/s
    double memory_bytes = 0;                                 ///< of the device's memory
    double node_link_bytes = 0;                              ///< between two devices of a node, one way
    double fabric_bytes = 0;                                 ///< between two nodes, one way, of what one rank can use
    double storage_write_bytes = 0, storage_read_bytes = 0;  ///< of all ranks together

    /// Nodes of which a part is not said though it is of others: not held against it.
    struct Unsaid {
        double ExpectedFigures::*part;
        int64_t begin = 0, end = 0;  ///< by number
    };
    std::vector<Unsaid> unsaid;
};

/// Parts of what is expected that must be reached.
struct PreflightBars {
    double matrix = 0.7;
    double memory = 0.7;
    double node_link = 400.0 / 450;  ///< 400 GB/s each way of NVLink 4's 450; 800 of 900 both ways at once
    double fabric = 0.8;
    double storage = 0.8;
    double share = 0.7;           ///< of the others' median: less of a rank, link or group is too slow
    double storage_share = 0.5;   ///< the same of storage, whose times scatter more
    double latency_share = 0.33;  ///< the same of latencies
};

/// Of links and ranks that a scheduler moves about, as processors are, a smaller share of the median is usual.
inline PreflightBars usual_bars(bool host_memory) {
    PreflightBars bars;
    if (host_memory) bars.share = 0.6;
    return bars;
}

/// What the data sheet of a GPU of this name says (device limits' name, "NVIDIA H100 80GB HBM3"): dense products,
/// memory, NVLink. Nothing for what is not in the table.
ExpectedFigures known_figures(std::string_view device);
/// `said`, and where that says nothing what is known of the device. `node`: the rank's; -1: any.
ExpectedFigures expected_of(const ExpectedFigures& said, std::string_view device, int64_t node = -1);

}  // namespace orrery
