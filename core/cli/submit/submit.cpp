#include "cli/submit/submit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "base/env.h"
#include "base/files/atomic_file.h"
#include "base/text.h"
#include "cli/launch.h"
#include "cli/ranks.h"
#include "cli/run_record/run_record.h"
#include "cli/script_runner.h"
#include "cli/submit/engine_call.h"
#include "cli/submit/engines.h"
#include "cli/submit/job_file.h"
#include "cli/submit/submit_settings.h"
#include "run/control/rendezvous.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr const char* token_name = "token";
// Killing the call that hands a job over could leave a part of the job. poll() counts milliseconds in an int.
constexpr auto no_limit = std::chrono::hours(24 * 20);

/// Returns the command that each task of the job runs: `orrery run` with the flags that this command was given, except
/// for --fresh, since the job may start several times.
std::vector<std::string> run_of(const ScriptCommand& command) {
    std::error_code ignored;
    std::vector<std::string> run = {fs::canonical("/proc/self/exe", ignored).string(), "run", command.script};
    const auto add = [&](const char* flag, const std::string& value) { run.insert(run.end(), {flag, value}); };
    if (!command.config.empty()) add("--config", command.config);
    for (const std::string& set : command.sets) add("--set", set);
    if (command.from_step >= 0) add("--from-step", std::to_string(command.from_step));
    if (command.restarts > 0) add("--restarts", std::to_string(command.restarts));
    if (command.spares > 0) add("--spares", std::to_string(command.spares));
    if (command.wait_node_s) add("--wait-node", fmt::format("{}", *command.wait_node_s));
    if (command.drain_ends_job) run.push_back("--drain-ends-job");
    return run;
}

int64_t gpus_of(const SubmitSettings& submit, ScriptRunner& script) {
    const bool own_memory = !script.device_facts().host_memory;
    if (submit.gpus_per_node < 0) return own_memory ? submit.ranks_per_node : 0;
    if (own_memory && submit.gpus_per_node < submit.ranks_per_node)
        throw Error(
            script.config().table("submit").where("gpus_per_node"),
            fmt::format("submit.gpus_per_node = {}, but {} ranks of device {} are on each node\n  each rank needs "
                        "a GPU of its own: change [submit] or [mesh]",
                        submit.gpus_per_node, submit.ranks_per_node, script.settings.device));
    return submit.gpus_per_node;
}

/// The folder's last name, of characters that every engine takes.
std::string name_of(const std::string& folder) {
    std::string name = fs::path(folder).filename().string();
    std::ranges::replace_if(
        name,
        [](unsigned char c) {
            return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '_' || c == '.');
        },
        '-');
    return name;
}

EngineJob job_of(const ScriptCommand& command, const SubmitSettings& submit, ScriptRunner& script, bool sees) {
    EngineJob job;
    job.folder = fs::absolute(script.folder()).lexically_normal().string();
    while (job.folder.size() > 1 && job.folder.ends_with('/')) job.folder.pop_back();
    job.name = name_of(job.folder);
    job.work = fs::current_path().string();
    job.command = run_of(command);
    job.ranks = script.settings.mesh.ranks();
    job.nodes = submit.nodes;
    job.ranks_per_node = submit.ranks_per_node;
    job.gpus_per_node = gpus_of(submit, script);
    job.threads = script.settings.threads_per_rank;
    job.spares = command.spares;
    job.agents = command.restarts > 0 || script.ranks_are_threads();
    job.time_s = submit.time_s;
    job.grace_s = script.settings.grace_s;
    if (sees) job.token_file = job.folder + "/" + token_name;
    job.before = submit.before;
    job.environment = submit.environment;
    return job;
}

/// Whether a job of the run's folder may still run or start again: its engine prints its name.
bool lives(const JobFile& job, Config& config) {
    if (job.ended) return false;
    const LoadedEngine loaded = load_engine(job.engine, config, {"", "job.json"});
    const ChildEnd end = run_call(job.engine, loaded.engine->status(job.name));
    return end.why_not().empty() && end.output.find(job.name) != std::string::npos;
}

void refuse_second(ScriptRunner& script, const std::string& folder) {
    const auto before = read_job_file(folder);
    if (!before || !lives(*before, script.config())) return;
    throw Error(
        script.config().table("run").where("folder"),
        fmt::format("run.folder: {} already has job {} of {}, which has not ended\n  choose another run.folder, "
                    "or end that job first: orrery stop {}",
                    folder, before->name, before->engine, folder));
}

/// Writes a secret into the run's folder, unless there is one: jobs of one folder follow one another.
void write_token(const std::string& path) {
    std::error_code ignored;
    if (fs::exists(path, ignored)) return;
    write_private(path, make_secret() + "\n");
}

/// Locks the run's folder against other submits, and puts into it what the job needs.
std::unique_ptr<FolderLock> claim(ScriptRunner& script, const EngineJob& job, bool fresh) {
    constexpr const char* lock_name = ".submit.lock";
    auto lock = script.lock_folder(lock_name);
    refuse_second(script, job.folder);
    script.lock_folder(FolderLock::launcher);  // only checks that no run uses the folder now
    const auto has = [&](const char* name) {
        std::error_code ignored;
        return fs::exists(job.folder + "/" + name, ignored);
    };
    if (fresh && (has("config.toml") || has("checkpoints"))) {
        lock.reset();
        move_aside(job.folder);
        lock = script.lock_folder(lock_name);
    } else if (fresh && has("job.json")) {
        fs::remove(job.folder + "/job.json");  // of a job that never began
    }
    write_token(job.token_file);
    return lock;
}

std::string hand_over(const LoadedEngine& engine, const EngineJob& job, const std::string& text) {
    const EngineCall call = engine.engine->submit(job, text);
    if (engine.facts.has("foreground")) become_call(engine.name, call);
    const ChildEnd end = run_call(engine.name, call, no_limit);
    if (end.code == 2) throw Error(std::string(trim(end.errors)));  // the call found a user error
    std::fputs(end.errors.c_str(), stderr);
    if (const std::string why = end.why_not(); !why.empty())
        throw Error(fmt::format("engine {}: the job was not handed over: {}", engine.name,
                                end.code > 0 ? fmt::format("exit code {}; its message is above", end.code) : why),
                    Fault::failed);
    return engine.engine->name_in(job, end.output);
}

void require_programs(const LoadedEngine& engine) {
    for (const std::string& program : engine.facts.values("programs"))
        if (in_path(program).empty())
            throw Error({"", "--engine " + engine.name},
                        fmt::format("the program {} is not in PATH\n  install it, submit where it is installed, or "
                                    "write what would be handed to it with --print",
                                    program));
}

}  // namespace

int submit_command(const ScriptCommand& given, const SubmitCommand& asked) {
    if (given.script_help) return show_options(given, Job{});
    Config config = config_of(given);
    const LoadedEngine engine = load_engine(asked.engine, config, {"", "--engine"});
    SubmitSettings submit = read_submit(config);
    place_ranks(submit, read_settings(config), config);
    ScriptCommand placed = given;
    placed.nodes = submit.nodes;
    check_spares(placed, placed.nodes < 2 ? "set submit.nodes to 2 or more" : "give --restarts");
    if (!asked.print) require_programs(engine);
    const bool sees = !engine.facts.has("remote");
    if (given.fresh && !sees)
        throw Error(
            fmt::format("--fresh is not supported by engine {}: the run's folder may not be on this host, and with the "
                        "flag each start of the job would begin from scratch\n  set another run.folder",
                        engine.name));
    const auto script = check_submission(placed, sees);
    for (const std::string& note : script->notes) std::fprintf(stderr, "note: %s\n", note.c_str());
    const EngineJob job = job_of(given, submit, *script, sees);
    const std::string text = engine.engine->text(job);
    if (asked.print) return std::fputs(text.c_str(), stdout), 0;
    std::unique_ptr<FolderLock> lock;
    if (sees) lock = claim(*script, job, given.fresh);
    const std::string name = hand_over(engine, job, text);
    if (sees) write_job_file(job.folder, {engine.name, name, utc_text(wall_time())});
    const std::string which = sees ? script->folder() : fmt::format("--engine {} {}", engine.name, name);
    std::printf(
        "job %s of %s\n  its state: orrery status %s\n  its output: orrery logs %s -f\n  its end: orrery stop %s\n",
        name.c_str(), engine.name.c_str(), which.c_str(), which.c_str(), which.c_str());
    return 0;
}

}  // namespace orrery
