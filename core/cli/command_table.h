#pragma once
#include <string>
#include <vector>

#include "cli/bench/bench_collectives.h"
#include "cli/checkpoints/checkpoints.h"
#include "cli/commands.h"
#include "cli/data/data.h"
#include "cli/evaluate.h"
#include "cli/export/export_command.h"
#include "cli/flags.h"
#include "cli/preflight/preflight.h"
#include "cli/scale/scale.h"
#include "cli/submit/submit.h"

namespace orrery {

struct Asked {
    ScriptCommand script;
    SubmitCommand submit;
    JobCommand job;
    EvaluateCommand evaluate;
    DrawCommand draw;
    TokenizeCommand tokenize;
    ExportCommand exported;
    CheckpointsCommand checkpoints;
    DataCommand data;
    std::vector<std::string> plugin_folders;
    SimulateCommand simulate;
    PlanCommand plan;
    InitCommand init;
    NewPluginCommand new_plugin;
    ProductsCommand products;
    CalibrateCommand calibrate;
    BenchCommand bench;
    PreflightCommand preflight;
    ScaleCommand scale;
};

/// All commands with their flags, in the order of `orrery --help`. `asked` must outlive the table.
std::vector<Command> command_table(Asked& asked);

}  // namespace orrery
