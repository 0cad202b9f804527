#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace orrery {

/// Expected performance of a cluster, per second and rank, before multiplying with PreflightBars. 0: unknown.
struct ExpectedFigures {
    double matrix_f32 = 0, matrix_bf16 = 0;                  ///< dense peak rates of matrix products, FLOP/s
    double memory_bytes = 0;                                 ///< bandwidth of the device's memory
    double node_link_bytes = 0;                              ///< bandwidth between two devices of a node, one way
    double fabric_bytes = 0;                                 ///< one rank's bandwidth between two nodes, one way
    double storage_write_bytes = 0, storage_read_bytes = 0;  ///< storage bandwidth of all ranks together

    /// A range of nodes for which a figure is not expected, although it is for other nodes.
    struct Unsaid {
        double ExpectedFigures::*part;
        int64_t begin = 0, end = 0;  ///< the nodes [begin, end)
    };
    std::vector<Unsaid> unsaid;
};

/// Fractions of the expected figures that must be reached.
struct PreflightBars {
    double matrix = 0.7;
    double memory = 0.7;
    double node_link = 400.0 / 450;  ///< 400 of NVLink 4's 450 GB/s in each direction, or 800 of 900 in both at once
    double fabric = 0.8;
    double storage = 0.8;
    double share = 0.7;           ///< share of the others' median below which a rank, link or group is an outlier
    double storage_share = 0.5;   ///< `share` for storage bandwidth, which scatters more
    double latency_share = 0.33;  ///< latencies above the others' median / latency_share are outliers
};

/// Returns the default bars. `host_memory`: whether ranks run on processors, where larger scatter is normal.
inline PreflightBars usual_bars(bool host_memory) {
    PreflightBars bars;
    if (host_memory) bars.share = 0.6;
    return bars;
}

/// Figures from the data sheet of a GPU with this name (the device's name in its limits, "NVIDIA H100 80GB HBM3"):
/// dense matrix products, memory, NVLink. Zeros for unknown devices.
ExpectedFigures known_figures(std::string_view device);
/// Returns the figures of `said` and, for those not set there, of known_figures(). `node`: the rank's node; -1: any.
ExpectedFigures expected_of(const ExpectedFigures& said, std::string_view device, int64_t node = -1);

}  // namespace orrery
