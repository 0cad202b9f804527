#include "cli/calibrate/refit.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "cli/calibrate/table_files.h"
#include "config/load.h"
#include "plugin/loader.h"
#include "run/calibrate/kept_costs.h"
#include "run/control/job.h"
#include "run/session.h"
#include "run/settings.h"
#include "sim/local/local_costs.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

CostTable costs_of_run(const std::string& run) {
    std::error_code ignored;
    const std::string file = fs::is_directory(run, ignored) ? run + "/costs.json" : run;
    if (!fs::exists(file, ignored))
        throw Error(
            file == run
                ? fmt::format("--refit {}: not found; expected a run's folder or a table of measured costs", run)
                : fmt::format("--refit {}: {} is missing; a run writes it when it ends after at least 2 steps", run,
                              file));
    CostTable table = read_costs(file);
    if (table.made_by != "run")
        throw Error(
            fmt::format("--refit {}: {} was made by {}, expected a run's costs.json", run, file, table.made_by));
    return table;
}

std::optional<CostTable> table_of_out(const CalibrateCommand& command, const TableFiles& files, const CostTable& run) {
    std::optional<CostTable> table = files.before();
    if (table && !same_machine(table->machine, run.machine))
        throw Error(
            fmt::format("-o {}: it was measured on another machine than {}, or with another number of threads of a "
                        "rank: {}\n  choose another file",
                        *command.out, command.refit.front(), differences(table->machine, run.machine, "in the run")));
    if (table) files.tell(fmt::format("starting from the table {}", *command.out));
    return table;
}

std::optional<CostTable> table_kept(const TableFiles& files, const CostTable& run) {
    std::optional<CostTable> table = files.kept(run.machine, run.device);
    if (table)
        files.tell(fmt::format("starting from {}, the saved table of this machine", kept_costs_path(run.machine)));
    return table;
}

/// Returns the cost table that the runs update, and reports its name. A table at the destination takes precedence,
/// since it will be overwritten.
std::optional<CostTable> table_before(const CalibrateCommand& command, const TableFiles& files, const CostTable& run) {
    std::optional<CostTable> table = command.keep ? table_kept(files, run) : table_of_out(command, files, run);
    if (!table) table = command.keep ? table_of_out(command, files, run) : table_kept(files, run);
    if (!table) files.tell("starting from an empty table: none is saved for this machine");
    return table;
}

/// Says that the run's machine is not this one, or that this is not known; "" if it is.
std::string not_here(const ScriptCommand& script, const CostTable& run) {
    Config config = load_config(script.config, script.sets);
    Settings settings = read_settings(config);
    settings.device = run.device;
    try {
        Registry registry;
        Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
        loader.load("device", run.device, registry, {});
        return other_machine(run.machine, machine_of(*make_device(settings, config, registry, Job{})));
    } catch (const Error& problem) {
        return fmt::format("costs may be of another machine: {}", problem.what());
    }
}

}  // namespace

int refit_command(const ScriptCommand& script, const CalibrateCommand& command) {
    if (!script.script.empty())
        throw Error(fmt::format("calibrate {}: --refit takes no script, since it measures nothing\n  name folders of "
                                "runs after --refit",
                                script.script),
                    Fault::usage);
    TableFiles files(command);
    std::vector<CostTable> runs;
    for (const std::string& run : command.refit) {
        runs.push_back(costs_of_run(run));
        if (!same_machine(runs.back().machine, runs.front().machine))
            throw Error(fmt::format(
                "--refit {}: it ran on another machine than {}, or with another number of threads: {}\n"
                "  refit the runs of each machine in a command of its own",
                run, command.refit.front(), differences(runs.back().machine, runs.front().machine, "there")));
    }
    if (const std::string other = not_here(script, runs.front()); !other.empty()) files.tell(other);
    files.choose_kept(runs.front().machine);
    const std::optional<CostTable> before = table_before(command, files, runs.front());
    const CostTable table = refitted(before ? &*before : nullptr, runs);
    files.write(table);
    for (const std::string& note : table.notes) files.tell("  " + note);
    return 0;
}

}  // namespace orrery
