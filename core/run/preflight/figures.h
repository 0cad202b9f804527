#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

// What preflight measures. Rates are per second; 0: not measured.

/// Of one rank, by itself.
struct RankFigures {
    std::string host, device;
    int64_t node = 0;             ///< ranks of one number share a host
    double matrix_f32 = 0;        ///< FLOP/s of a dense product
    double matrix_bf16 = 0;       ///< FLOP/s; 0 too where the device has none
    double copy_bytes = 0;        ///< of the device's memory, read and written
    double write_bytes = 0;       ///< to a file in the folder, fsync included
    double read_bytes = 0;        ///< from it, the page cache emptied as far as the system lets
    double sync_s = 0;            ///< of 4 KiB written and fsynced
    std::string storage_problem;  ///< why the folder cannot be used: "cannot write ...: No space left on device"
};

/// Between two ranks, `a` the lower one.
struct PairFigures {
    int64_t a = 0, b = 0;
    bool one_node = true;
    double latency_s = 0;       ///< half a round trip of 8 bytes
    double there_bytes = 0;     ///< a to b, alone
    double back_bytes = 0;      ///< b to a, alone
    double both_bytes = 0;      ///< both ways at once, added
    int64_t message_bytes = 0;  ///< what was sent to measure that
    int64_t wrong_bytes = 0;    ///< received otherwise than sent
};

/// Who takes part in a collective.
enum class Reach : uint8_t {
    node,  ///< the ranks of one host, all hosts at once
    rail,  ///< one rank of each host, all such groups at once
    all,
};

/// Of one collective of one group.
struct CollectiveFigures {
    std::string name;  ///< all_reduce, all_gather, reduce_scatter, all_to_all, broadcast
    Reach reach = Reach::all;
    int64_t group = 0;  ///< which node or rail
    std::vector<int64_t> ranks;
    int64_t bytes = 0;     ///< of the larger tensor
    double seconds = 0;    ///< of the slowest member
    double bus_bytes = 0;  ///< bandwidth, as nccl-tests counts it
    double latency_s = 0;  ///< of the smallest call
    int64_t wrong = 0;     ///< elements
};

/// Of all ranks: the same on each.
struct PreflightFigures {
    std::vector<RankFigures> ranks;
    std::vector<PairFigures> pairs;  ///< those that were measured, by a and b
    int64_t pairs_left_out = 0;      ///< that there was no time for
    std::vector<CollectiveFigures> collectives;
    int64_t nodes = 1;
    bool host_memory = true;  ///< the device's memory is the host's
};

}  // namespace orrery
