#include <string>

#include "node_list.h"
#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

class Slurm : public Launcher {
public:
    /// A batch script is not a task: only those that srun started count.
    bool detect(const Environment& environment) const override {
        return environment.has("SLURM_STEP_NUM_TASKS") && environment.has("SLURM_PROCID");
    }

    LaunchedRank read(const Environment& environment) const override {
        if (const auto groups = environment.text("SLURM_HET_SIZE"))
            throw Error("environment: SLURM_HET_SIZE=" + *groups +
                        ": the ranks of a heterogeneous job are not supported, since each of its components numbers "
                        "its tasks and nodes from 0\n  request all nodes in one component");
        LaunchedRank rank;
        rank.job =
            environment.text("SLURM_JOB_ID").value_or("0") + "." + environment.text("SLURM_STEP_ID").value_or("0");
        rank.rank = environment.count("SLURM_PROCID");
        rank.ranks = environment.count("SLURM_STEP_NUM_TASKS");
        rank.local_rank = environment.count("SLURM_LOCALID");
        rank.node = environment.count_or("SLURM_NODEID", -1);
        rank.nodes = environment.count_or("SLURM_STEP_NUM_NODES", 0);
        rank.local_ranks = slurm::tasks_on(environment.text("SLURM_STEP_TASKS_PER_NODE").value_or(""),
                                           environment.count_or("SLURM_NODEID", 0));
        rank.counted = rank.local_ranks > 0;
        if (!rank.counted) rank.local_ranks = environment.count_or("SLURM_NTASKS_PER_NODE", 1);
        rank.threads = environment.count_or("SLURM_CPUS_PER_TASK", 0);
        rank.generation = environment.count_or("SLURM_RESTART_COUNT", 0);
        rank.hint = "srun --export=ALL,MASTER_ADDR=10.0.0.1";
        // The step's first host may differ from the host where srun was called.
        if (const auto list = environment.text("SLURM_STEP_NODELIST")) {
            const slurm::NodeList hosts = slurm::node_list(*list);
            if (!hosts.problem.empty())
                throw Error("environment: SLURM_STEP_NODELIST=" + *list + " is not a list of hosts: " + hosts.problem);
            rank.first_host = hosts.first;
        }
        return rank;
    }

    std::string left_out(const Environment& environment) const override {
        const int64_t nodes = environment.count_or("SLURM_JOB_NUM_NODES", environment.count_or("SLURM_NNODES", 1));
        if (nodes <= 1) return "";
        return "the Slurm job " + environment.text("SLURM_JOB_ID").value_or("") + " has " + std::to_string(nodes) +
               " nodes, but the ranks start on this node alone\n  to use all nodes: srun orrery run ..., with one task "
               "per rank or one per node";
    }
};

void add(Registry& registry) {
    registry.add_launcher("slurm", [] { return std::make_unique<Slurm>(); });
}

}  // namespace
}  // namespace orrery

ORRERY_FACTS("variables=SLURM_STEP_NUM_TASKS,SLURM_JOB_NUM_NODES,SLURM_NNODES uncounted restarts");
ORRERY_PLUGIN("launcher.slurm", "0.1", orrery::add);
