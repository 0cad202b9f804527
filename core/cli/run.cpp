#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/env.h"
#include "base/limits.h"
#include "base/processors.h"
#include "cli/command_line.h"
#include "cli/launch.h"
#include "cli/products/products.h"
#include "cli/script_runner.h"
#include "cli/signals.h"
#include "cli/simulate/local_forecast.h"
#include "cli/tell.h"
#include "config/load.h"
#include "run/checkpoint/shared_folder.h"
#include "run/control/rendezvous.h"
#include "run/control/stop_request.h"
#include "run/session.h"
#include "run/train/train.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Moves a run's folder aside: runs/gpt -> runs/gpt.1, the first number that is free. Nobody may be using it.
void move_aside(std::string folder) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    std::error_code problem;
    if (!fs::exists(folder, problem) || fs::is_empty(folder, problem)) return;
    if (!fs::exists(folder + "/config.toml"))
        throw Error(
            fmt::format("--fresh: {} is no run's folder: it has no config.toml\n  choose another run.folder, or move "
                        "it aside yourself",
                        folder));
    const FolderLock lock(folder);
    int n = 1;
    while (fs::exists(fmt::format("{}.{}", folder, n), problem)) ++n;
    fs::rename(folder, fmt::format("{}.{}", folder, n), problem);
    if (problem) throw Error(fmt::format("--fresh: cannot move {} to {}.{}: {}", folder, folder, n, problem.message()));
    std::printf("%s moved to %s.%d\n", folder.c_str(), folder.c_str(), n);
}

/// A script may catch what ended its training; a signal to this process stays one.
void refuse_stopped() {
    if (stop_signal() != 0)
        throw Error(fmt::format("stopped by signal {}: start again to go on", stop_signal()), Fault::requeue);
}

/// What a process knows of the sessions that it has been in.
struct Sessions {
    int64_t begun = 0, trained = 0;
    bool met = false;                          ///< the others learn from the present one why this rank ends
    std::unique_ptr<RendezvousServer> server;  ///< when this rank serves it: for every session of the script
};

/// A script may train more than once: each time is a session of its own, over one store.
Job next_session(Job job, Sessions& sessions) {
    job.session = sessions.begun++;
    if (job.serves && job.ranks > 1 && !sessions.server) sessions.server = serve(job);
    job.serves = false;
    return job;
}

/// Joins the other ranks that run `compiled` on the mesh of `settings`.
std::unique_ptr<Session> meet(ScriptRunner& script, const Settings& settings, const Compiled& compiled,
                              std::unique_ptr<Device> device, Sessions& sessions) {
    bool& met = sessions.met = false;
    const ProductSearch search = product_search(settings, script.config(), script.job());
    try {
        return std::make_unique<Session>(settings, script.config(), script.registry(),
                                         next_session(script.job(), sessions), compiled, std::move(device), &met,
                                         &search);
    } catch (const std::exception& error) {
        const bool told = met || fault_of(error) == Fault::peer;  // else who tells the others names the rank
        throw Error(told ? script.of_rank(explain(error)) : explain(error), fault_of(error));
    }
}

/// A checkpoint goes on under the settings of now; what it was trained with until now is in the folder.
void tell_changes(const std::string& folder, const Config& now) {
    const std::string saved = folder + "/config.toml";
    if (!fs::exists(saved)) return;
    try {
        const std::string changed = changes(load_config(saved), now, {"train", "script"}, 5);
        if (!changed.empty()) std::fprintf(stderr, "resumed with other settings than before: %s\n", changed.c_str());
    } catch (const Error& error) {
        std::fprintf(stderr, "resumed; the settings before are not known: %s\n", error.what());
    }
}

void prepare_folder(const std::string& folder, const std::string& script, const Config& config) {
    const auto env = system_env();
    const std::string resolved = render(config), copy = folder + "/script.lua";
    env->replace_file(folder + "/config.toml", resolved);
    std::error_code ignored;
    if (!fs::equivalent(script, copy, ignored)) env->replace_file(copy, env->read_file(script));
    std::printf("%s\n", resolved.c_str());
    std::fflush(stdout);
}

/// This rank's part of a training; ends with its session.
void train_here(ScriptRunner& script, const Compiled& compiled, std::unique_ptr<Device> device, Sessions& sessions,
                const TrainOptions& options) {
    const Settings& settings = script.settings();
    const std::string folder = script.folder();
    const bool first = script.job().rank == 0;
    std::unique_ptr<FolderLock> lock;
    if (first) lock = script.lock_folder();
    const auto store = script.open_store();
    // --fresh has moved the folder aside by now; a script that trains again goes on with its own checkpoints.
    if (sessions.begun == 0) check_resume(settings, script.config(), *store, false);
    if (first && !store->steps().empty()) tell_changes(folder, script.config());
    if (first) prepare_folder(folder, script.script(), script.config());
    const auto met = meet(script, settings, compiled, std::move(device), sessions);
    Session& session = *met;
    try {
        if (store->place().starts_with(folder)) require_shared(session, folder);
        std::optional<MetricsWriter> metrics;
        if (first) metrics.emplace(folder + "/metrics.jsonl", stdout);
        train({session, *store, metrics ? &*metrics : nullptr, script.dataset(), options, settings.seed, settings.keep,
               settings.weights, script.experiment().recipe->weights, script.later_programs(), settings.trace,
               settings.trace_step, folder + "/costs.json",
               first ? [&] { return closing_comparison(compiled, settings, script.config(), folder + "/costs.json"); }
                     : std::function<std::string()>()});
        session.leave();
        sessions.met = false;
        ++sessions.trained;
    } catch (const std::exception& error) {  // also memory that is out, a plugin's own kind: the others must know
        ends_by_itself();
        const Fault fault = fault_of(error);
        if (fault == Fault::requeue)
            session.leave();
        else if (fault == Fault::peer && session.other_stopped())
            throw Error(script.of_rank(other_stopped), Fault::requeue);
        else
            session.fail(explain(error));
        throw Error(script.of_rank(explain(error)), fault);
    }
}

/// One rank of a run.
struct RankScript final : ScriptRunner {
    Sessions& sessions;

    RankScript(const ScriptCommand& command, const Job& job, Sessions& sessions)
        : ScriptRunner(command, job), sessions(sessions) {}

    void train(const DataSpec& data, const TrainOptions& options) override {
        ScriptRunner::train(data, options);
        compile_evaluation();
        train_here(*this, *compiled_, std::move(counting_), sessions, options);
        if (stop_signal() != 0)  // it came when no step was left to stop at
            throw Error(of_rank(fmt::format("stopped by signal {} after the last step: start again for what the "
                                            "script does next",
                                            stop_signal())),
                        Fault::requeue);
    }

    std::string sample(const SampleOptions& options) override {
        if (job_.rank != 0) return "";
        refuse_unsaved();
        return sample_newest(*this, options);
    }

    void prepare() override {
        if (job_.ranks != settings_.mesh.ranks())
            throw Error(config_.table("mesh").origin(),
                        fmt::format("mesh {} has {} ranks, {} started {}\n  start as many, or change [mesh]",
                                    settings_.mesh.text(), settings_.mesh.ranks(),
                                    job_.launcher.empty() ? "this command" : job_.launcher, job_.ranks));
        const bool counted = job_.assigned && job_.launcher != "slurm";  // srun may leave the count out
        if (settings_.ranks > 0 && counted && job_.local_ranks != settings_.ranks)
            throw Error(config_.table("run").where("ranks"),
                        fmt::format("run.ranks = {}, but {} started {} on this host (mesh {} has {})\n  change one of "
                                    "them, or leave run.ranks out",
                                    settings_.ranks, job_.launcher, job_.local_ranks, settings_.mesh.text(),
                                    settings_.mesh.ranks()));
        ScriptRunner::prepare();
    }
};

/// The rank that is this process.
int run_alone(const ScriptCommand& command, const Job& job, Sessions& sessions) {
    RankScript(command, job, sessions).run_script();
    refuse_stopped();
    return 0;
}

/// Ranks as threads of this process, for transports that need it: same scripts, same plans, one address space.
int run_as_threads(const ScriptCommand& command, int64_t ranks) {
    RendezvousServer::Options options;
    options.world = ranks;
    options.token = {make_secret(), job_name(command), 0};
    RendezvousServer server(options);
    std::mutex order;
    std::exception_ptr first;
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            Job job;
            job.id = options.token.job;
            job.token = options.token.secret;
            job.rank = job.local_rank = rank;
            job.ranks = job.local_ranks = ranks;
            job.port = server.port();
            try {
                Sessions sessions;
                RankScript(command, job, sessions).run_script();
            } catch (...) {
                ends_by_itself();
                const std::lock_guard lock(order);
                if (!first) first = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    if (first) std::rethrow_exception(first);
    refuse_stopped();
    return 0;
}

int start_ranks(const ScriptCommand& command, const ScriptRunner& checked, const std::function<void()>& claim,
                SignalTaker& signals) {
    const Settings& settings = checked.settings();
    const int64_t ranks = settings.mesh.ranks();
    need_descriptors(settings.mesh, checked.joined());
    LaunchSpec spec = over_hosts(command, ranks);
    Job local;
    local.local_ranks = spec.local_ranks;
    spec.job.threads = threads_of(settings, local);
    spec.job.processors = static_cast<int64_t>(allowed_processors().size()) / spec.local_ranks;
    if (settings.pin_ranks) spec.processors = shares(allowed_processors(), spec.local_ranks, spec.job.threads);
    spec.taken_by = &signals;
    return launch_meeting(std::move(spec), command.node_rank, claim);
}

/// One rank that a launcher has started.
int run_rank(const ScriptCommand& command, const Job& job) {
    Sessions sessions;
    try {
        return run_alone(command, job, sessions);
    } catch (const std::exception& error) {
        ends_by_itself();
        const Fault fault = fault_of(error);
        // The session has told the others, or nobody was there.
        if (sessions.met || fault == Fault::requeue || fault == Fault::peer) throw;
        Job here = job;
        here.session = sessions.trained;
        return end_rank(here, explain(error), exit_code(fault), sessions.server.get());
    }
}

int launch_ranks(const ScriptCommand& command, const Job& job, SignalTaker& signals) {
    const auto checked = check_launch(command, job);
    const auto claim = [&] {
        if (!checked->data()) return;
        if (command.fresh) move_aside(checked->folder());
        checked->lock_folder();  // is it free, and can it be written? Rank 0 will lock it for the run
    };
    named_table(checked->settings(), checked->config());  // no surprise at the end
    const int64_t ranks = checked->settings().mesh.ranks();
    const bool threads = checked->ranks_are_threads();
    if (const std::string left_out = nodes_left_out(); ranks > 1 && command.nodes == 1 && !left_out.empty())
        std::fprintf(stderr, "orrery: %s\n", left_out.c_str());
    if (ranks > 1 && !threads) return start_ranks(command, *checked, claim, signals);
    claim();
    if (ranks > 1) return run_as_threads(command, ranks);
    Sessions sessions;
    return run_alone(command, job, sessions);
}

}  // namespace

int run_command(const ScriptCommand& command) {
    const Job job = job_from_environment();
    SignalTaker signals(job.ranks > 1 ? fmt::format("[rank {}] ", job.rank) : "");
    if (command.script_help) return show_options(command, job);
    check_nodes(command);
    if (job.assigned) {
        if (job.launcher != "orrery") refuse_launch_flags(command, job.launcher);
        return run_rank(command, job);
    }
    if (command.nodes == 1) return launch_ranks(command, job, signals);
    try {
        return launch_ranks(command, job, signals);
    } catch (const std::exception& error) {
        return end_launcher(command, explain(error), exit_code(fault_of(error)));
    }
}

}  // namespace orrery
