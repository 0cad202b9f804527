#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/config.h"
#include "orrery/layout.h"

namespace orrery {

/// Settings of a benchmark of one collective; names follow nccl-tests.
struct CollectiveBench {
    enum class Average : uint8_t { first, mean, least, most };  ///< how the ranks' times become one; nccl-tests' 0 to 3
    std::string collective = "all_reduce";  ///< or all_gather, reduce_scatter, all_to_all, broadcast, send_receive
    std::string transport = "shm";
    std::optional<int64_t> ranks;  ///< number of ranks on all hosts; unset: 2, or those that a launcher started
    int64_t nodes = 1, node_rank = 0;
    std::string rendezvous;   ///< "host:port", for several nodes
    int64_t begin = 1 << 10;  ///< -b: bytes of the larger tensor in the first line; 0: begin with empty tensors
    int64_t end = 256 << 20;  ///< -e: max bytes of the larger tensor
    int64_t factor = 4;       ///< -f: factor between the sizes of two lines
    int64_t iterations = 0;   ///< -n: timed calls per size; 0: 20 to 10,000, by size
    int64_t warmup = 5;       ///< -w: untimed calls per size
    bool check = true;        ///< -c: compare results with the expected ones
    DType dtype = DType::f32;
    bool signed_bytes = false;  ///< --dtype i8: run as u8, which gives the same bits
    ReduceOp op = ReduceOp::sum;
    Average average = Average::mean;  ///< -a: how the ranks' times become one

    std::string type_name() const;
    const char* average_name() const;
};

/// Parses "1K", "256M", "2G" or plain bytes, including "0". Throws Error naming the text.
int64_t parse_size(std::string_view text);

const std::vector<std::string>& bench_collective_names();

/// Runs a benchmark. Starts this host's ranks as processes with `arguments` (argv[0] and on), which call this function
/// again; under torchrun, srun or mpirun this process is one of the ranks. Rank 0 prints nccl-tests' columns on stdout.
/// `config` holds [transport.NAME]. Returns 1 if a result was wrong or a rank failed, else 0. Throws Error for unknown
/// names and invalid sizes before anything starts.
int bench_collectives(const CollectiveBench& bench, Config& config, const std::vector<std::string>& arguments);

struct BenchCommand {
    CollectiveBench bench;
    std::string begin = "1K", end = "256M", dtype = "f32", op, config;
    int average = 1;
    std::vector<std::string> sets, arguments;
};

/// Names of the reduce operations that --op accepts; "" selects the first.
std::vector<std::string> bench_op_names();
int bench_command(BenchCommand& command);

}  // namespace orrery
