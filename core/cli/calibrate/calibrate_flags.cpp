#include "cli/calibrate/calibrate_flags.h"

#include "cli/flag_checks.h"

namespace orrery {

void add_calibrate_flags(CLI::App& calibrate, CalibrateCommand& command) {
    calibrate.get_option("script")->required(false);
    calibrate.add_option_function<std::string>(
        "-o,--out", [&command](const std::string& file) { command.out = file; },
        "JSON file; standard output if left out");
    calibrate.add_flag("--keep", command.keep,
                       "keep the rows for this machine, over those kept before, in the user's cache folder: runs are "
                       "held against them");
    calibrate.add_option("--refit", command.refit,
                         "measure nothing: runs' folders whose costs.json go into the table of -o or --keep");
    calibrate.add_option("--threads", command.rank_threads, "threads of a rank; 0: as `run` would have, or all")
        ->check(CLI::Range(0, 1024));
    calibrate.add_option_function<std::string>(
        "--transports", [&command](const std::string& names) { command.transports = names; },
        "transport plugins: shm,gloo; none: no communication; left out: those of the script, or all");
    calibrate.add_option("--ranks", command.ranks, "how many ranks communicate: 2,4; left out: as the script, or 2");
    calibrate.add_option("--seconds", command.seconds, "time to measure for, in all")->check(number_from(0.01, 86400));
    calibrate.add_option("--dtype", command.dtype, "of the grid: f32, bf16 or f16")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}));
    calibrate.add_option("--bytes", command.bytes, "sizes of messages; left out: 1 KiB to 64 MiB")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::Range(int64_t{4}, int64_t{1} << 32));
    calibrate.add_option("--wire", command.wire)->group("");  // the processes that this command starts
    calibrate.add_option("--wire-ranks", command.wire_ranks)->group("");
    calibrate.add_option("--wire-seconds", command.wire_seconds)->group("");
    add_examples(calibrate, {"calibrate --threads 1 --transports shm,gloo --ranks 2,4 -o here.json",
                             "calibrate scripts/gpt.lua --config configs/two_ranks.toml -o gpt.json",
                             "calibrate --threads 1 --keep", "calibrate --refit runs/gpt runs/mlp --keep"});
}

}  // namespace orrery
