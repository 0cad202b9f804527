#include "cli/simulate/simulate_flags.h"

#include "cli/flag_checks.h"

namespace orrery {
namespace {

void add_cluster(CLI::App& app, SimulateCommand& command) {
    app.add_option("--cluster", command.cluster, "TOML file of the cluster; see configs/clusters/")
        ->required()
        ->check(file_name());
    app.add_option("--cluster-nodes", command.cluster_nodes, "so many nodes, instead of what the file says")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    app.add_option("--software", command.software,
                   "what runs the kernels: compiled, eager, megatron, unfused or eight_bit");
    app.add_option("--tp-chunks", command.tp_chunks,
                   "what if collectives of tp ran in so many chunks beside their products; `run` cannot do that")
        ->check(CLI::Range(2, 64));
}

/// Without a cluster.
void add_local(CLI::App& app, SimulateCommand& command) {
    CLI::Option* const cluster = app.get_option("--cluster")->required(false);
    for (const char* of_cluster : {"--cluster-nodes", "--software", "--tp-chunks"})
        app.get_option(of_cluster)->needs(cluster);
    app.add_option("--table", command.tables,
                   "measured costs of this machine, as calibrate or a run writes; may repeat")
        ->allow_extra_args(false)
        ->check(file_name())
        ->excludes(cluster);
    app.add_option("--link-gbit", command.link_gbit, "what if each rank had a link of so many Gbit/s each way")
        ->check(number_from(1e-6, 1e6))
        ->excludes(cluster);
    app.add_option("--link-us", command.link_us, "and its messages took so long to come, in microseconds")
        ->check(number_from(0, 1e9))
        ->excludes(cluster);
    app.add_option("--processors", command.processors, "what if the host had so many processors")
        ->check(whole_number_from(1, 1'000'000))
        ->excludes(cluster);
}

}  // namespace

void add_simulate_flags(CLI::App& simulate, SimulateCommand& command) {
    add_cluster(simulate, command);
    add_local(simulate, command);
    simulate.add_option("--mapping", command.mapping, "axes from the one inside a node outwards, as in tp,dp,pp")
        ->delimiter(',');
    simulate
        .add_option("--slow", command.slow, "RANK:TIMES, a rank whose kernels take so many times as long; may repeat")
        ->allow_extra_args(false);
    simulate.add_option("--jitter", command.jitter, "kernels take up to this part longer, by chance")
        ->check(number_from(0, 10));
    simulate.add_option("--restart-s", command.restart_s, "seconds from a failure until training goes on")
        ->check(number_from(0, 1e9));
    simulate.add_option("-o,--out", command.out, "draw the timeline to this .svg file")->check(file_name());
    simulate.add_option("--trace", command.trace, "write the step of every rank for Perfetto to this .json file")
        ->check(file_name());
    simulate.add_flag("--json", command.json, "print the prediction as JSON");
    for (const char* of_cluster : {"--mapping", "--restart-s"}) simulate.get_option(of_cluster)->needs("--cluster");
    add_examples(simulate,
                 {"simulate scripts/gpt.lua --config configs/llama405b.toml --cluster configs/clusters/h100.toml "
                  "--cluster-nodes 2048",
                  "simulate my.lua --config mine.toml --cluster configs/clusters/b300.toml -o step.svg",
                  "simulate runs/gpt --set run.transport=gloo --link-gbit 1"});
}

void add_plan_flags(CLI::App& plan, PlanCommand& command) {
    add_cluster(plan, command.simulate);
    command.simulate.searched = true;
    add_local(plan, command.simulate);
    plan.add_option("--ranks", command.ranks,
                    "so many of the cluster's accelerators, or ranks of this machine; if left out all of them, or one "
                    "a processor, those that the run of a folder had")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    plan.add_option("--most-tp", command.most_tp,
                    "the largest tp that is looked at; a node's accelerators, or all ranks here, if left out")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    plan.add_option("--most-pp", command.most_pp, "the largest pp that is looked at; 64 if left out")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    plan.add_option("--jobs", command.jobs, "choices that are looked at at the same time; one a processor if left out")
        ->check(CLI::Range(1, 1024));
    plan.add_option("-o,--out", command.simulate.out, "draw time against memory of all choices to this .svg file")
        ->check(file_name());
    plan.add_option("--keep", command.keep,
                    "stays as configured: mesh, samples, zero, schedule, sequence, recompute, mapping")
        ->delimiter(',');
    plan.add_flag("--json", command.simulate.json, "print every choice that runs, and its settings, as JSON");
    add_examples(plan, {"plan scripts/gpt.lua --config configs/llama70b.toml --cluster configs/clusters/h100.toml",
                        "plan my.lua --cluster configs/clusters/b300.toml --keep zero,recompute",
                        "plan scripts/gpt.lua --config configs/two_ranks.toml --ranks 2 --table here.json"});
}

}  // namespace orrery
