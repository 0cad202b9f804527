#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

// Figures that preflight measures. Rates are per second; 0: not measured.

/// Measurements of one rank by itself.
struct RankFigures {
    std::string host, device;
    int64_t node = 0;             ///< ranks with the same number share a host
    double matrix_f32 = 0;        ///< FLOP/s of a dense f32 matrix product
    double matrix_bf16 = 0;       ///< FLOP/s of a dense bf16 product; 0: not measured, or no bf16
    double copy_bytes = 0;        ///< rate of copies in the device's memory: bytes read plus bytes written
    double write_bytes = 0;       ///< rate of writing to a file in the checked folder, including fsync
    double read_bytes = 0;        ///< rate of reading the file, bypassing the page cache if the system allows it
    double sync_s = 0;            ///< time to write 4 KiB and fsync
    std::string storage_problem;  ///< why the folder cannot be used: "cannot write ...: No space left on device"
};

/// Measurements of the link between ranks a and b; `a` is the lower rank.
struct PairFigures {
    int64_t a = 0, b = 0;
    bool one_node = true;
    double latency_s = 0;    ///< half of the time of a round trip of 8 bytes
    double there_bytes = 0;  ///< rate from a to b, without other traffic
    double back_bytes = 0;   ///< rate from b to a, without other traffic
    double both_bytes = 0;   ///< sum of the rates of both directions at once
    int64_t message_bytes = 0;
    int64_t wrong_bytes = 0;  ///< received bytes that differ from those sent
};

/// The ranks that take part in a collective.
enum class Reach : uint8_t {
    node,  ///< the ranks of one host; all hosts are measured at once
    rail,  ///< one rank of each host; all such groups are measured at once
    all,
};

/// Measurements of one collective in one group of ranks.
struct CollectiveFigures {
    std::string name;  ///< all_reduce, all_gather, reduce_scatter, all_to_all, broadcast
    Reach reach = Reach::all;
    int64_t group = 0;  ///< number of the node or of the rail
    std::vector<int64_t> ranks;
    int64_t bytes = 0;     ///< size of the larger of input and output
    double seconds = 0;    ///< time of a call on the slowest rank
    double bus_bytes = 0;  ///< bus bandwidth as defined by nccl-tests
    double latency_s = 0;  ///< time of a call with the smallest tensors
    int64_t wrong = 0;     ///< number of wrong elements in results
};

/// Figures of all ranks; the same on each rank.
struct PreflightFigures {
    std::vector<RankFigures> ranks;
    std::vector<PairFigures> pairs;  ///< measured pairs, sorted by a and b
    int64_t pairs_left_out = 0;      ///< pairs that were not measured for lack of time
    std::vector<CollectiveFigures> collectives;
    int64_t nodes = 1;
    bool host_memory = true;  ///< whether the device's memory is host memory
};

}  // namespace orrery
