#include "cli/preflight/preflight_flags.h"

#include "base/text.h"

namespace orrery {

CLI::App* add_preflight(CLI::App& app, PreflightCommand& command) {
    CLI::App* preflight = app.add_subcommand(
        "preflight", "measure the machines at hand before a run: devices, memory, storage, clocks, links, collectives");
    preflight->add_option("-c,--config", command.config, "TOML file, as of a run");
    preflight->add_option("-s,--set", command.sets, "table.key=value, over the config file; may repeat")
        ->allow_extra_args(false);
    preflight->add_option("--device", command.device, "device plugin, over run.device");
    preflight->add_option("--transport", command.transport, "transport plugin, over run.transport");
    preflight->add_option("--folder", command.folder, "where storage is looked at, over run.folder; else .");
    preflight->add_option("--ranks", command.ranks,
                          "processes on all hosts together; the mesh's, a launcher's, or 2 if left out");
    preflight->add_option("--nodes", command.nodes, "hosts that take part");
    preflight->add_option("--node-rank", command.node_rank, "which of them this is, from 0");
    preflight->add_option("--rendezvous", command.rendezvous, "host:port where node 0 listens");
    preflight->add_option("--cluster", command.cluster,
                          "TOML file of a cluster, configs/clusters, that says what the machines do");
    preflight
        ->add_option(
            "--expect", command.expect,
            "KEY=NUMBER that the machines are said to do, over --cluster; may repeat: " + join(expected_names(), ", "))
        ->allow_extra_args(false);
    preflight->add_option(
        "--slow", command.slow,
        "of the others' median: less is too slow; 0.6 on processors (0.3 where ranks share them), else 0.7");
    preflight->add_flag("--quick", command.quick, "shorter pieces: a few seconds for a few ranks");
    preflight->add_flag("--json", command.json, "one JSON object instead of tables");
    preflight->footer(
        "Ends with 0 when all is fit, 1 when something is not, 2 for a mistake of the command.\n"
        "Examples:\n"
        "  orrery preflight --quick --ranks 2 --transport shm\n"
        "  orrery preflight --transport ucx --ranks 16 --nodes 2 --node-rank 0 --rendezvous n1:29500\n"
        "  srun -N 16 --ntasks-per-node 8 orrery preflight --device cuda --transport nccl "
        "--cluster configs/clusters/h100.toml");
    return preflight;
}

}  // namespace orrery
