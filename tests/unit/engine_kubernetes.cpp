// Manifests of the engine kubernetes, its calls of kubectl, and what it refuses.
#include <catch2/catch.hpp>

#include "config/load.h"
#include "folders.h"
#include "orrery/engine.h"
#include "orrery/registry.h"
#include "plugin/loader.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

EngineJob job() {
    EngineJob job;
    job.name = "Tiny_gpt";
    job.folder = "/work/me/runs/Tiny_gpt";
    job.work = "/work/me";
    job.command = {"/opt/orrery/bin/orrery", "run", "scripts/gpt.lua", "--set", "script.title=a: \"b\" $HOME"};
    job.ranks = 8;
    job.nodes = 2;
    job.ranks_per_node = 4;
    job.time_s = 3600;
    job.grace_s = 89.5;
    return job;
}

const std::string usual =
    "namespace = \"team\"\nimage = \"registry.example/orrery:1\"\nclaim = \"work\"\nmount = \"/work\"\n"
    "secret = \"orrery\"\n";

/// The engine of a table [submit.kubernetes].
class Made {
public:
    explicit Made(const std::string& table) : config_(parse_toml("[submit.kubernetes]\n" + table, "job.toml")) {
        Loader({in_build("plugins")}).load("engine", "kubernetes", registry_, {});
        Config& own = config_.table("submit").table("kubernetes");
        engine_ = registry_.engine("kubernetes", {})(own);
        own.reject_unused();
    }
    const Engine* operator->() const { return engine_.get(); }

private:
    Config config_;
    Registry registry_;
    std::unique_ptr<Engine> engine_;
};

std::string refusal(const std::string& table, const EngineJob& of = job()) {
    try {
        Made(table)->text(of);
    } catch (const Error& error) {
        return error.what();
    }
    return "no refusal";
}

std::string line(const EngineCall& call) {
    std::string text;
    for (const std::string& word : call.arguments) text += (text.empty() ? "" : " ") + word;
    return text;
}

Environment environment(const std::string& name, const std::string& value) {
    return Environment([=](const char* asked) { return asked == name ? value.c_str() : nullptr; });
}

}  // namespace

TEST_CASE("kubernetes: kubectl is called in the job's namespace", "[engine]") {
    const Made jobset(usual), trainjob(usual + "kind = \"trainjob\"\n"), bare("");
    const std::string text = jobset->text(job());
    const EngineCall submit = jobset->submit(job(), text);
    CHECK(line(submit) == "kubectl apply --filename=- --namespace=team");
    CHECK(submit.input == text);
    CHECK(jobset->name_in(job(), "jobset.jobset.x-k8s.io/tiny-gpt created\n") == "team/jobset/tiny-gpt");
    CHECK(trainjob->name_in(job(),
                            "trainingruntime.trainer.kubeflow.org/tiny-gpt unchanged\n"
                            "trainjob.trainer.kubeflow.org/tiny-gpt configured\n") == "team/trainjob/tiny-gpt");
    CHECK_THROWS_WITH(jobset->name_in(job(), "jobset.jobset.x-k8s.io/tiny-gpt unchanged\n"),
                      Contains("jobset/tiny-gpt is there already") && Contains("--now jobset/tiny-gpt"));
    CHECK_THROWS_WITH(jobset->name_in(job(), ""), Contains("did not name jobset/tiny-gpt"));
    CHECK(line(bare->status("tiny-gpt")) ==
          "kubectl get jobset,pods --selector=app.kubernetes.io/instance=tiny-gpt --output=wide");
    CHECK(line(bare->status("team/trainjob/a")) ==
          "kubectl get trainjob,pods --selector=app.kubernetes.io/instance=a --output=wide --namespace=team");
    CHECK(line(jobset->stop("trainjob/a", false).at(0)) ==
          "kubectl patch trainjob/a --type=merge --patch={\"spec\":{\"suspend\":true}} --namespace=team");
    const auto now = bare->stop("trainjob/a", true);
    REQUIRE(now.size() == 2);
    CHECK(line(now[0]) ==
          "kubectl delete trainjob,trainingruntime --selector=app.kubernetes.io/instance=a --wait=false");
    CHECK(line(now[1]) == "kubectl delete pods --selector=app.kubernetes.io/instance=a --now --wait=false");
    CHECK(line(*bare->logs("a", {}, true)) ==
          "kubectl logs --selector=app.kubernetes.io/instance=a --tail=-1 "
          "--max-log-requests=1000 --prefix --follow");
    CHECK_THAT(line(*bare->logs("a", 0, false)), Contains("instance=a,batch.kubernetes.io/job-completion-index=0"));
    CHECK_FALSE(bare->logs("a", 3, false));
    for (const char* wrong : {"", "pod/a", "a/b/c/d", "-x"}) CHECK_THROWS_WITH(bare->status(wrong), Contains("KIND"));
    CHECK(bare->own_name(environment("ORRERY_KUBERNETES", "jobset/a")) == "jobset/a");
    CHECK(bare->own_name(environment("JOB_COMPLETION_INDEX", "1")).empty());
}

TEST_CASE("kubernetes: a manifest that cannot run is refused with the setting", "[engine]") {
    const auto without = [](const std::string& key) {
        const size_t at = usual.find(key);
        return usual.substr(0, at) + usual.substr(usual.find('\n', at) + 1);
    };
    CHECK_THAT(refusal(without("image")), Contains("job.toml:1") && Contains("submit.kubernetes.image is not set"));
    CHECK_THAT(refusal(without("claim")), Contains("submit.kubernetes.claim is not set") && Contains("ReadWriteMany"));
    CHECK_THAT(refusal(without("mount")), Contains("submit.kubernetes.mount is not set"));
    CHECK_THAT(refusal(without("secret")),
               Contains("kubectl create secret generic orrery") && Contains("--namespace=team"));
    CHECK_THAT(refusal(usual + "kind = \"job\"\n"), Contains("job.toml:7") && Contains("\"jobset\" or \"trainjob\""));
    CHECK_THAT(refusal(usual + "uid = 0\n"), Contains("job.toml:7") && Contains("do not run as root"));
    CHECK_THAT(refusal(usual + "shared_memory = \"8GB\"\n"), Contains("8GB") && Contains("16Gi"));
    CHECK_THAT(refusal(usual + "resources = { memory = \"1..5Gi\" }\n"), Contains("resources.memory is"));
    CHECK_THAT(refusal(usual + "extra = [\"volumes: []\"]\n"), Contains("its own volumes") && Contains("claim"));
    CHECK_THAT(refusal(usual + "imaeg = \"x\"\n"), Contains("imaeg") && Contains("image"));
    EngineJob other = job();
    other.work = "/home/me";
    other.folder = "/home/me/runs/a";
    CHECK_THAT(refusal(usual, other), Contains("set submit.kubernetes.work"));
    CHECK(refusal(usual + "work = \"/work/me\"\n", other) == "no refusal");
    other.folder = "/scratch/a";
    CHECK_THAT(refusal(usual + "work = \"/work/me\"\n", other),
               Contains("run.folder is /scratch/a") && Contains("lost with the pod"));
    other = job();
    other.name = std::string(50, 'a');
    CHECK_THAT(refusal(usual, other), Contains("too long") && Contains("2 characters shorter"));
    other.nodes = 1;
    other.name = "7b";
    CHECK_THAT(Made(without("secret"))->text(other), Contains("name: run-7b\n"));
    other.before = {std::string("a\0b", 3)};
    CHECK_THAT(refusal(usual, other), Contains("the command has a NUL byte"));
    other.before = {"\xff"};
    CHECK_THAT(refusal(usual, other), Contains("not UTF-8"));
}
