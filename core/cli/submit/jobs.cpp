#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/files/json_file.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "base/text.h"
#include "cli/submit/engine_call.h"
#include "cli/submit/engines.h"
#include "cli/submit/job_file.h"
#include "cli/submit/logs.h"
#include "cli/submit/submit.h"
#include "config/load.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// A job that an engine has.
struct Held {
    JobFile job;
    LoadedEngine engine;
};

/// Returns the job that a command names, with its engine.
Held held(const JobCommand& command) {
    JobFile job{command.engine, command.run};
    std::string config = command.config;
    if (command.engine.empty()) {
        const auto found = read_job_file(command.run);
        if (!found)
            throw Error(
                fmt::format("{} has no job.json, which `orrery submit` and jobs of an engine write\n  name the "
                            "folder of a submitted run, or --engine and the engine's name of the job",
                            command.run));
        job = *found;
        std::error_code ignored;
        if (config.empty() && fs::exists(command.run + "/config.toml", ignored)) config = command.run + "/config.toml";
    }
    Config read = load_config(config, command.sets);
    return {job, load_engine(job.engine, read, {"", command.engine.empty() ? command.run + "/job.json" : "--engine"})};
}

/// Returns the last step that a run's metrics.jsonl has, as text; "": none.
std::string last_step(const std::string& run) {
    constexpr int64_t tail = 1 << 16;
    const RegularFile file(run + "/metrics.jsonl");
    if (!file.problem().empty()) return "";
    std::string text(tail, '\0');
    text.resize(file.read(std::max<int64_t>(0, file.bytes() - tail), text.data(), text.size()));
    std::string last;
    for (const std::string& line : split(text, '\n')) {
        const Json step = Json::parse(line, nullptr, false);
        if (step.is_object() && step.contains("step") && step.contains("loss"))
            last = fmt::format(", step {}, loss {}", message_text(step["step"]), message_text(step["loss"]));
    }
    return last;
}

/// Prints how far a run has come, from its run.json.
void tell_start(const std::string& run) {
    std::error_code ignored;
    const std::string path = run + "/run.json";
    if (!fs::exists(path, ignored)) return;
    const Json last = read_json(path, int64_t{64} << 20);
    const auto text = [&](const char* key) {
        const auto found = last.find(key);
        return found == last.end() || !found->is_string() ? std::string() : found->get<std::string>();
    };
    std::printf("started %s%s", text("start").c_str(), last_step(run).c_str());
    if (!text("end").empty())
        std::printf(", ended %s with exit code %s: %s", text("end").c_str(), message_text(last.at("exit_code")).c_str(),
                    text("why").c_str());
    std::printf("\n");
}

}  // namespace

int status_command(const JobCommand& command) {
    const Held of = held(command);
    std::printf("job %s of %s%s%s\n", of.job.name.c_str(), of.engine.name.c_str(),
                of.job.submitted.empty() ? "" : ", submitted ", of.job.submitted.c_str());
    if (command.engine.empty()) tell_start(command.run);
    return of.job.ended ? 0 : show_call(of.engine.name, of.engine.engine->status(of.job.name));
}

int stop_command(const JobCommand& command) {
    const Held of = held(command);
    for (const EngineCall& call : of.engine.engine->stop(of.job.name, command.now))
        if (const int code = show_call(of.engine.name, call); code != 0)
            throw Error(fmt::format("engine {}: cannot stop job {} (exit code {}); its message is above",
                                    of.engine.name, of.job.name, code),
                        Fault::failed);
    std::printf("job %s of %s %s\n", of.job.name.c_str(), of.engine.name.c_str(),
                command.now ? "is being ended" : "was asked to save and to end");
    return 0;
}

int logs_command(const JobCommand& command) {
    const int64_t rank = command.rank.value_or(0);
    if (command.engine.empty()) {
        std::error_code ignored;
        const bool is_run =
            fs::exists(command.run + "/job.json", ignored) || fs::exists(command.run + "/logs", ignored);
        if ((command.follow && is_run) || !newest_log(command.run, rank).empty())
            return show_logs(command.run, rank, command.follow);
    }
    const Held of = held(command);
    if (const auto call = of.engine.engine->logs(of.job.name, command.rank, command.follow))
        become_call(of.engine.name, *call);
    if (!command.engine.empty())
        throw Error(
            fmt::format("engine {} does not show the output of rank {}\n  name the run's folder instead, or read "
                        "logs/g*-rank{}.txt in it",
                        of.engine.name, rank, rank));
    throw Error(fmt::format("{} has no logs/g*-rank{}.txt: the rank has not started, or its logs are in another folder",
                            command.run, rank),
                Fault::failed);
}

}  // namespace orrery
