#pragma once
#include <string>
#include <vector>

#include "cli/bench/bench_collectives.h"

namespace orrery {

/// Flags of `orrery bench`.
struct BenchCommand {
    CollectiveBench bench;
    std::string begin = "1K", end = "256M", dtype = "f32", op, config;
    int average = 1;
    std::vector<std::string> sets, arguments;
};

/// The values of --op; "" is the first.
std::vector<std::string> bench_op_names();
/// Returns the exit code.
int bench_command(BenchCommand& command);

}  // namespace orrery
