#include <algorithm>
#include <charconv>
#include <string_view>

#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

/// The first host of a Slurm list: "n[003-005,9],login" -> "n003".
std::string first_host(std::string_view list) {
    std::string host;
    bool inside = false, chosen = false;  // inside brackets; the first number in them is taken
    for (const char c : list) {
        if (c == '[') {
            inside = true;
            chosen = false;
        } else if (c == ']') {
            inside = false;
        } else if (!inside && c == ',') {
            break;
        } else if (inside && (c == ',' || c == '-')) {
            chosen = true;
        } else if (!chosen || !inside) {
            host += c;
        }
    }
    return host;
}

/// Tasks on a node by a Slurm list: node 2 of "4(x2),3" has 3. 0 when the list does not have the node or is malformed.
int64_t tasks_on(std::string_view list, int64_t node) {
    while (!list.empty()) {
        const std::string_view group = list.substr(0, list.find(','));
        list.remove_prefix(std::min(group.size() + 1, list.size()));
        int64_t tasks = 0, nodes = 1;
        const char* end = group.data() + group.size();
        const auto [at, fault] = std::from_chars(group.data(), end, tasks);
        if (fault != std::errc()) return 0;
        if (std::string_view(at, static_cast<size_t>(end - at)).starts_with("(x")) std::from_chars(at + 2, end, nodes);
        if (node < nodes) return tasks;
        node -= nodes;
    }
    return 0;
}

class Slurm : public Launcher {
public:
    /// A batch script is not a rank: only tasks that srun started count.
    bool detect(const Environment& environment) const override {
        return environment.has("SLURM_STEP_NUM_TASKS") && environment.has("SLURM_PROCID");
    }

    LaunchedRank read(const Environment& environment) const override {
        LaunchedRank rank;
        rank.job =
            environment.text("SLURM_JOB_ID").value_or("0") + "." + environment.text("SLURM_STEP_ID").value_or("0");
        rank.rank = environment.count("SLURM_PROCID");
        rank.ranks = environment.count("SLURM_STEP_NUM_TASKS");
        rank.local_rank = environment.count("SLURM_LOCALID");
        rank.local_ranks = tasks_on(environment.text("SLURM_STEP_TASKS_PER_NODE").value_or(""),
                                    environment.count_or("SLURM_NODEID", 0));
        rank.counted = rank.local_ranks > 0;
        if (!rank.counted) rank.local_ranks = environment.count_or("SLURM_NTASKS_PER_NODE", 1);
        rank.threads = environment.count_or("SLURM_CPUS_PER_TASK", 0);
        rank.generation = environment.count_or("SLURM_RESTART_COUNT", 0);
        // The step's first host may differ from the host where srun was called.
        rank.first_host = first_host(environment.text("SLURM_STEP_NODELIST").value_or("127.0.0.1"));
        return rank;
    }

    std::string left_out(const Environment& environment) const override {
        const int64_t nodes = environment.count_or("SLURM_JOB_NUM_NODES", environment.count_or("SLURM_NNODES", 1));
        if (nodes <= 1) return "";
        return "the Slurm job " + environment.text("SLURM_JOB_ID").value_or("") + " has " + std::to_string(nodes) +
               " nodes, but the ranks start on this node alone\n  to use all nodes: srun orrery run ..., with one task "
               "per rank";
    }
};

void add(Registry& registry) {
    registry.add_launcher("slurm", [] { return std::make_unique<Slurm>(); });
}

}  // namespace
}  // namespace orrery

ORRERY_FACTS("variables=SLURM_STEP_NUM_TASKS,SLURM_JOB_NUM_NODES,SLURM_NNODES uncounted restarts");
ORRERY_PLUGIN("launcher.slurm", "0.1", orrery::add);
