#include "orrery/launcher.h"
#include "orrery/plugin.h"

namespace orrery {
namespace {

/// The variables that number a pod and count the pods of its job.
struct Numbered {
    const char *index, *count;
};
constexpr Numbered of_job = {"JOB_COMPLETION_INDEX", "ORRERY_NODES"};  // an Indexed Job; the manifest counts its pods
constexpr Numbered of_trainer = {"PET_NODE_RANK", "PET_NNODES"};       // Kubeflow's, for torchrun

bool numbers(const Numbered& by, const Environment& environment) {
    return environment.has(by.index) && environment.has(by.count);
}

/// The name of the pod of index 0, if an Indexed Job gave this one its host name: "train-3" -> "train-0".
std::string first_pod(const Environment& environment) {
    std::string name = environment.text("HOSTNAME").value_or("");
    const std::string end = "-" + environment.text(of_job.index).value_or("");
    return name.size() > end.size() && name.ends_with(end) ? name.substr(0, name.size() - end.size()) + "-0" : "JOB-0";
}

/// Each pod is a task, and has its node for itself.
class Kubernetes : public Launcher {
public:
    /// torchrun, started in a pod, starts tasks of its own, which inherit the pod's variables.
    bool detect(const Environment& environment) const override {
        return !environment.has("TORCHELASTIC_RUN_ID") &&
               (numbers(of_job, environment) || numbers(of_trainer, environment));
    }

    LaunchedRank read(const Environment& environment) const override {
        const Numbered& by = numbers(of_job, environment) ? of_job : of_trainer;
        LaunchedRank pod;
        pod.rank = pod.node = environment.count(by.index);
        pod.ranks = pod.nodes = environment.count(by.count);
        if (pod.rank >= pod.ranks)
            throw Error("environment: " + std::string(by.index) + "=" + std::to_string(pod.rank) + " and " + by.count +
                        "=" + std::to_string(pod.ranks) + ": pods are numbered from 0 to " + by.count + " - 1");
        pod.first_host = environment.text("PET_MASTER_ADDR").value_or(pod.first_host);
        // The name of the first pod is unique in the cluster's network and the same in all pods, also after restarts.
        pod.job = environment.text("MASTER_ADDR").value_or(pod.first_host);
        pod.hint = "MASTER_ADDR=" + first_pod(environment) +
                   ".SERVICE, where SERVICE is the headless service that the pods' subdomain names";
        return pod;
    }

    std::string left_out(const Environment& environment) const override {
        if (!environment.has(of_job.index) || environment.has(of_job.count)) return "";
        return "this is pod " + environment.text(of_job.index).value_or("") +
               " of an Indexed Job, and the ranks start in this pod alone\n  to use all its pods for one run, set "
               "ORRERY_NODES to their number and MASTER_ADDR to " +
               first_pod(environment) + ".SERVICE";
    }
};

void add(Registry& registry) {
    registry.add_launcher("kubernetes", [] { return std::make_unique<Kubernetes>(); });
}

}  // namespace
}  // namespace orrery

// PyTorchJob sets RANK and WORLD_SIZE besides, which are torchrun's.
ORRERY_FACTS("variables=JOB_COMPLETION_INDEX,PET_NODE_RANK inside=torchrun restarts late_name");
ORRERY_PLUGIN("launcher.kubernetes", "0.1", orrery::add);
