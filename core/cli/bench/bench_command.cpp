#include "cli/bench/bench_command.h"

#include "base/suggest.h"
#include "base/text.h"
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

/// A file may be a run's, with tables that the bench ignores; --set keys, however, must be used by the bench.
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

std::vector<std::string> bench_op_names() { return {"sum", "max", "min"}; }

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
