#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/config.h"
#include "orrery/layout.h"

namespace orrery {

/// Settings of `orrery bench`; names follow nccl-tests.
struct CollectiveBench {
    enum class Average : uint8_t { first, mean, least, most };  ///< statistic of rank times; nccl-tests' 0 to 3
    std::string collective = "all_reduce";  ///< or all_gather, reduce_scatter, all_to_all, broadcast, send_receive
    std::string transport = "shm";
    std::optional<int64_t> ranks;  ///< number of ranks on all hosts; unset: 2, or those that a launcher started
    int64_t nodes = 1, node_rank = 0;
    std::string rendezvous;   ///< "host:port", for several nodes
    int64_t begin = 1 << 10;  ///< -b: bytes of the larger tensor in the first line; 0: empty tensors first
    int64_t end = 256 << 20;  ///< -e: max bytes of the larger tensor
    int64_t factor = 4;       ///< -f: factor between the sizes of two lines
    int64_t iterations = 0;   ///< -n: timed calls per size; 0: 20 to 10,000, by size
    int64_t warmup = 5;       ///< -w: untimed calls per size
    bool check = true;        ///< -c: compare results with the expected ones
    DType dtype = DType::f32;
    bool signed_bytes = false;  ///< --dtype i8: run as u8, which gives the same bits
    ReduceOp op = ReduceOp::sum;
    Average average = Average::mean;  ///< -a: statistic over the ranks' times

    std::string type_name() const;
    const char* average_name() const;
};

/// Parses "1K", "256M", "2G" or plain bytes, including "0". Throws Error naming the text.
int64_t parse_size(std::string_view text);

/// Names of the collectives that can be timed.
const std::vector<std::string>& bench_collective_names();

/// Starts this host's ranks as processes with the same `arguments` (argv[0] and on), which call this function again;
/// under another launcher (torchrun, srun, mpirun) this process is one of the ranks. Rank 0 prints nccl-tests' columns
/// on stdout. `config` holds [transport.NAME]. Returns 0, or 1 if a result was wrong or a rank failed. Throws Error for
/// unknown names and invalid sizes before anything starts.
int bench_collectives(const CollectiveBench& bench, Config& config, const std::vector<std::string>& arguments);

/// Flags of `orrery bench`.
struct BenchCommand {
    CollectiveBench bench;
    std::string begin = "1K", end = "256M", dtype = "f32", op, config;
    int average = 1;
    std::vector<std::string> sets, arguments;
};

/// The names of the reduce operations of --op; "" selects the first.
std::vector<std::string> bench_op_names();
/// Runs `orrery bench` with these flags and returns the exit code.
int bench_command(BenchCommand& command);

}  // namespace orrery
