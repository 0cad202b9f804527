#include "cli/bench/bench_flags.h"

#include "base/suggest.h"
#include "base/text.h"
#include "cli/flag_checks.h"
#include "config/load.h"

namespace orrery {
namespace {

std::vector<std::string> types() {
    std::vector<std::string> names;
    using enum DType;
    for (const DType type : {f32, bf16, f16, f64, i32, i64, u32, u16, u8}) names.emplace_back(name_of(type));
    names.emplace_back("i8");
    return names;
}

/// A file may be a run's, with tables that the bench has no use for; what is set for the bench itself must be read.
void refuse_idle_sets(const std::vector<std::string>& sets) {
    for (const std::string& set : sets) {
        const bool read =
            set.starts_with("transport.") || set.starts_with("device.cpu.") || set.starts_with("plugins.");
        if (!read || set.starts_with("transport.axis."))
            throw Error(
                "--set " + set +
                ": the bench does not read this\n  it reads transport.NAME.KEY, device.cpu.KEY and plugins.path");
    }
}

}  // namespace

void add_bench_flags(CLI::App& bench, BenchCommand& command) {
    bench.add_option("collective", command.bench.collective, "which one")
        ->required()
        ->check(CLI::IsMember(bench_collective_names()));
    bench.add_option("-b,--begin", command.begin, "smallest size, as 1K or 16M; 0: empty ones first");
    bench.add_option("-e,--end", command.end, "largest size");
    bench.add_option("-f,--factor", command.bench.factor, "each size is this many times the last")
        ->check(CLI::Range(2, 1024));
    bench.add_option("-n,--iters", command.bench.iterations, "iterations; 0 chooses by size");
    bench.add_option("-w,--warmup", command.bench.warmup, "iterations before timing");
    bench.add_option("-c,--check", command.bench.check, "compare the results");
    bench.add_option("-a,--average", command.average, "whose time: 0 rank 0, 1 the mean, 2 the fastest, 3 the slowest")
        ->check(CLI::Range(0, 3));
    bench.add_option("--transport", command.bench.transport, "transport plugin");
    bench.add_option("--ranks", command.bench.ranks,
                     "processes on all hosts together; 2, or those that srun, mpirun or torchrun has started");
    bench.add_option("--nodes", command.bench.nodes, "hosts that take part");
    bench.add_option("--node-rank", command.bench.node_rank, "which of them this is, from 0");
    bench.add_option("--rendezvous", command.bench.rendezvous, "host:port where node 0 listens");
    bench.add_option("--dtype", command.dtype, "f32, bf16, f16, f64, i32, i8 ...");
    command.op = "sum";
    bench.add_option("--op", command.op, "sum, max or min")->check(CLI::IsMember({"sum", "max", "min"}));
    bench.add_option("--config", command.config, "TOML file with [transport.NAME]");
    bench.add_option("-s,--set", command.sets, "table.key=value")->allow_extra_args(false);
    add_examples(bench, {"bench all_reduce --transport shm --ranks 2 -b 1K -e 256M",
                         "bench send_receive --transport gloo --dtype bf16",
                         "bench all_reduce --transport gloo --ranks 8 --nodes 2 --node-rank 0 --rendezvous n1:1234"});
}

int bench_command(BenchCommand& command) {
    command.bench.begin = parse_size(command.begin);
    command.bench.end = parse_size(command.end);
    command.bench.signed_bytes = command.dtype == "i8";
    const auto dtype = command.bench.signed_bytes ? DType::u8 : parse_dtype(command.dtype);
    if (!dtype)
        throw Error("--dtype " + command.dtype + ": no such type" + choices("there are", command.dtype, types()));
    command.bench.dtype = *dtype;
    command.bench.op = command.op == "max" ? ReduceOp::max : command.op == "min" ? ReduceOp::min : ReduceOp::sum;
    command.bench.average = static_cast<CollectiveBench::Average>(command.average);
    refuse_idle_sets(command.sets);
    Config config = load_config(command.config, command.sets);
    return bench_collectives(command.bench, config, command.arguments);
}

}  // namespace orrery
