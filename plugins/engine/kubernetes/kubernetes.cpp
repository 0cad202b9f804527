#include "manifest.h"
#include "orrery/plugin.h"

namespace orrery::kubernetes {
namespace {

/// The engine's name of a job: "jobset/gpt", or with its namespace "team/jobset/gpt". A name alone is of the kind and
/// the namespace of the settings.
struct JobName {
    JobName(const std::string& text, const Settings& settings) : kind(settings.kind), name_space(settings.name_space) {
        const size_t last = text.rfind('/');
        name = last == std::string::npos ? text : text.substr(last + 1);
        if (last != std::string::npos) {
            const std::string rest = text.substr(0, last);
            const size_t first = rest.find('/');
            kind = first == std::string::npos ? rest : rest.substr(first + 1);
            if (first != std::string::npos) name_space = rest.substr(0, first);
        }
        if (name.empty() || name.front() == '-' || (kind != "jobset" && kind != "trainjob"))
            throw Error("\"" + text +
                        "\" is not a job of Kubernetes\n  expected its name, or KIND/NAME, or "
                        "NAMESPACE/KIND/NAME, where KIND is jobset or trainjob");
    }
    std::string kind, name_space, name;

    /// A call of kubectl in the job's namespace.
    EngineCall call(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), "kubectl");
        if (!name_space.empty()) arguments.push_back("--namespace=" + name_space);
        return {arguments, ""};
    }
    std::string object() const { return kind + "/" + name; }
    std::string selector() const { return "--selector=app.kubernetes.io/instance=" + name; }
};

class Kubernetes : public Engine {
public:
    explicit Kubernetes(Config& config) : settings_(config) {}

    std::string text(const EngineJob& job) const override { return manifest(settings_, job); }

    EngineCall submit(const EngineJob& job, const std::string& text) const override {
        EngineCall call = JobName(object_name(job), settings_).call({"apply", "--filename=-"});
        call.input = text;
        return call;
    }

    /// kubectl apply prints a line for each object: "jobset.jobset.x-k8s.io/gpt created".
    std::string name_in(const EngineJob& job, const std::string& output) const override {
        const JobName name(object_name(job), settings_);
        const std::string line = settings_.kind + "." +
                                 (settings_.kind == "jobset" ? "jobset.x-k8s.io/" : "trainer.kubeflow.org/") +
                                 name.name + " ";
        const size_t at = output.find(line);
        if (at == std::string::npos)
            throw Error("kubectl apply did not name " + name.object() + ", it printed: " + output, Fault::failed);
        if (output.substr(at + line.size()).starts_with("unchanged"))
            throw Error(name.object() +
                        " is there already, and the cluster has nothing to change: it runs, or it has "
                        "ended\n  orrery stop --engine kubernetes --now " +
                        name.object() + " deletes it; or choose another run.folder");
        return (name.name_space.empty() ? "" : name.name_space + "/") + name.object();
    }

    std::string own_name(const Environment& environment) const override {
        const std::string name = environment.text("ORRERY_KUBERNETES").value_or("");
        const std::string name_space = environment.text("ORRERY_KUBERNETES_NAMESPACE").value_or("");
        return name.empty() || name_space.empty() ? name : name_space + "/" + name;
    }

    EngineCall status(const std::string& text) const override {
        const JobName name(text, settings_);
        return name.call({"get", name.kind + ",pods", name.selector(), "--output=wide"});
    }

    std::vector<EngineCall> stop(const std::string& text, bool now) const override {
        const JobName name(text, settings_);
        // A suspended job has no pods: they get SIGTERM and their grace period, in which they save.
        if (!now) return {name.call({"patch", name.object(), "--type=merge", "--patch={\"spec\":{\"suspend\":true}}"})};
        const std::string kinds = name.kind == "jobset" ? name.kind : name.kind + ",trainingruntime";
        return {name.call({"delete", kinds, name.selector(), "--wait=false"}),
                name.call({"delete", "pods", name.selector(), "--now", "--wait=false"})};
    }

    /// A pod prints what its node's launcher prints: the output of rank 0 is in the pod of node 0.
    std::optional<EngineCall> logs(const std::string& text, std::optional<int64_t> rank, bool follow) const override {
        if (rank.value_or(0) != 0) return std::nullopt;
        const JobName name(text, settings_);
        const std::string first = rank ? ",batch.kubernetes.io/job-completion-index=0" : "";
        std::vector<std::string> arguments = {"logs", name.selector() + first, "--tail=-1", "--max-log-requests=1000"};
        if (!rank) arguments.emplace_back("--prefix");
        if (follow) arguments.emplace_back("--follow");
        return name.call(arguments);
    }

private:
    Settings settings_;
};

void add(Registry& registry) {
    registry.add_engine("kubernetes", [](Config& config) { return std::make_unique<Kubernetes>(config); });
}

}  // namespace
}  // namespace orrery::kubernetes

ORRERY_FACTS("variables=ORRERY_KUBERNETES programs=kubectl start=ORRERY_KUBERNETES_JOB remote");
ORRERY_PLUGIN("engine.kubernetes", "0.1", orrery::kubernetes::add);
