#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

// Figures that preflight measures. Rates are per second; 0: not measured.

/// Figures of one rank by itself.
struct RankFigures {
    std::string host, device;
    int64_t node = 0;             ///< ranks with the same number share a host
    double matrix_f32 = 0;        ///< FLOP/s of a dense product
    double matrix_bf16 = 0;       ///< FLOP/s; 0 also if the device has no bf16
    double copy_bytes = 0;        ///< bandwidth of the device's memory, bytes read and written
    double write_bytes = 0;       ///< rate of writing to a file in the folder, including fsync
    double read_bytes = 0;        ///< rate of reading that file, bypassing the page cache if the system allows it
    double sync_s = 0;            ///< time of writing 4 KiB and fsync
    std::string storage_problem;  ///< why the folder cannot be used: "cannot write ...: No space left on device"
};

/// Figures of a link between two ranks; `a` is the lower one.
struct PairFigures {
    int64_t a = 0, b = 0;
    bool one_node = true;
    double latency_s = 0;       ///< half a round trip of 8 bytes
    double there_bytes = 0;     ///< rate from a to b, without other traffic
    double back_bytes = 0;      ///< rate from b to a, without other traffic
    double both_bytes = 0;      ///< sum of the rates of both directions at once
    int64_t message_bytes = 0;  ///< size of the message used
    int64_t wrong_bytes = 0;    ///< received bytes that differ from those sent
};

/// The ranks that take part in a collective.
enum class Reach : uint8_t {
    node,  ///< the ranks of one host; all hosts at once
    rail,  ///< one rank of each host; all such groups at once
    all,
};

/// Figures of one collective in one group.
struct CollectiveFigures {
    std::string name;  ///< all_reduce, all_gather, reduce_scatter, all_to_all, broadcast
    Reach reach = Reach::all;
    int64_t group = 0;  ///< number of the node or rail
    std::vector<int64_t> ranks;
    int64_t bytes = 0;     ///< size of the larger tensor
    double seconds = 0;    ///< time of the slowest member
    double bus_bytes = 0;  ///< bus bandwidth as defined by nccl-tests
    double latency_s = 0;  ///< time of the smallest call
    int64_t wrong = 0;     ///< number of wrong elements
};

/// Figures of all ranks; the same on each rank.
struct PreflightFigures {
    std::vector<RankFigures> ranks;
    std::vector<PairFigures> pairs;  ///< measured pairs, sorted by a and b
    int64_t pairs_left_out = 0;      ///< pairs that were not measured for lack of time
    std::vector<CollectiveFigures> collectives;
    int64_t nodes = 1;
    bool host_memory = true;  ///< the device's memory is host memory
};

}  // namespace orrery
