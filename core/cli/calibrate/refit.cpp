#include "cli/calibrate/refit.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/env.h"
#include "base/text.h"
#include "run/calibrate/kept_costs.h"
#include "sim/local/local_costs.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

CostTable costs_of_run(const std::string& run) {
    std::error_code ignored;
    const std::string file = fs::is_directory(run, ignored) ? run + "/costs.json" : run;
    if (!fs::exists(file, ignored))
        throw Error(file == run ? fmt::format("--refit {}: no run's folder, and no table, has that name", run)
                                : fmt::format("--refit {}: there is no {}; a run writes it at its end, where it has "
                                              "trained a step behind its first",
                                              run, file));
    CostTable table = read_costs(file);
    if (table.made_by != "run")
        throw Error(
            fmt::format("--refit {}: {} was made by {}, expected a run's costs.json", run, file, table.made_by));
    return table;
}

std::optional<CostTable> table_before(const CalibrateCommand& command, const std::string& machine) {
    std::error_code ignored;
    if (!command.out.empty() && fs::exists(command.out, ignored)) return read_costs(command.out);
    return command.keep ? kept_costs(machine) : std::nullopt;
}

void write(const CostTable& table, const std::string& text, const std::string& file) {
    system_env()->replace_file(file, text);
    std::printf("%s: %s of kernels, %s of communication\n", file.c_str(),
                plural(static_cast<int64_t>(table.kernels.size()), "row").c_str(),
                plural(static_cast<int64_t>(table.wires.size()), "row").c_str());
}

}  // namespace

int refit_command(const ScriptCommand& script, const CalibrateCommand& command) {
    if (!script.script.empty())
        throw Error(fmt::format("calibrate {}: --refit measures nothing and takes no script\n  name runs' folders "
                                "behind --refit",
                                script.script),
                    Fault::usage);
    std::vector<CostTable> runs;
    for (const std::string& run : command.refit) {
        runs.push_back(costs_of_run(run));
        if (!same_machine(runs.back().machine, runs.front().machine))
            throw Error(
                fmt::format("--refit {}: it ran on another machine than {}, or with another number of threads\n"
                            "  a table is of one: refit them by themselves",
                            run, command.refit.front()));
    }
    const std::optional<CostTable> before = table_before(command, runs.front().machine);
    if (before && !same_machine(before->machine, runs.front().machine))
        throw Error(
            fmt::format("{} is of another machine than {}, or of another number of threads of a rank\n  write "
                        "another file",
                        command.out, command.refit.front()));
    write_table(refitted(before ? &*before : nullptr, runs), command);
    return 0;
}

void write_table(const CostTable& table, const CalibrateCommand& command) {
    const std::string text = cost_table_text(table);
    if (command.out.empty() && !command.keep) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        return;
    }
    if (!command.out.empty()) write(table, text, command.out);
    if (!command.keep) return;
    const std::string file = kept_costs_path(table.machine);
    if (file.empty()) throw Error("--keep: there is neither XDG_CACHE_HOME nor HOME\n  write a file: -o FILE");
    system_env()->make_folders(fs::path(file).parent_path().string());
    write(table, text, file);
}

}  // namespace orrery
