#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "base/env.h"
#include "base/files/result_file.h"
#include "base/json.h"
#include "base/limits.h"
#include "cli/command_line.h"
#include "cli/host_limits.h"
#include "cli/launch.h"
#include "cli/launchers.h"
#include "cli/output/output.h"
#include "cli/ranks.h"
#include "cli/role.h"
#include "cli/run_record/changed_settings.h"
#include "cli/run_record/kept.h"
#include "cli/run_record/run_record.h"
#include "cli/script_runner.h"
#include "cli/signals.h"
#include "cli/simulate/local_forecast.h"
#include "cli/simulate/nominal_rate.h"
#include "cli/submit/own_job.h"
#include "cli/supervise/node_check.h"
#include "cli/supervise/notice.h"
#include "cli/supervise/supervise.h"
#include "cli/tell.h"
#include "config/load.h"
#include "run/checkpoint/restore/chosen_step.h"
#include "run/checkpoint/save/shared_folder.h"
#include "run/control/rendezvous.h"
#include "run/control/stop_request.h"
#include "run/export/published_record.h"
#include "run/session.h"
#include "run/train/train.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Throws Error if this process received a stop signal. A script may have caught the error that ended its training.
void refuse_stopped() {
    if (stop_signal() != 0)
        throw Error(fmt::format("stopped by signal {}: start again to resume", stop_signal()), Fault::requeue);
}

/// Returns the job of the next session (training of the script). Starts the rendezvous if this rank serves it.
Job next_session(Job job, Sessions& sessions, std::chrono::milliseconds silence) {
    job.silence = silence;
    job.session = sessions.begun++;
    if (job.serves && job.ranks > 1 && !sessions.server) sessions.server = serve(*sessions.backend, job);
    job.serves = false;
    return job;
}

}  // namespace

void move_aside(std::string folder) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    std::error_code problem;
    if (!fs::exists(folder, problem) || fs::is_empty(folder, problem)) return;
    if (!fs::exists(folder + "/config.toml"))
        throw Error(fmt::format(
            "--fresh: {} is not a run's folder: it has no config.toml\n  choose another run.folder, or move "
            "it aside yourself",
            folder));
    const FolderLock launcher(folder, FolderLock::launcher), lock(folder);
    int n = 1;
    while (fs::exists(fmt::format("{}.{}", folder, n), problem)) ++n;
    fs::rename(folder, fmt::format("{}.{}", folder, n), problem);
    if (problem)
        throw Error(fmt::format("--fresh: cannot move {} to {}.{}: {}\n  choose another run.folder{}", folder, folder,
                                n, problem.message(),
                                problem == std::errc::cross_device_link
                                    ? ": this one is in a lower layer of an overlay (an image), where folders cannot "
                                      "be renamed"
                                    : ", or move it aside yourself"));
    std::printf("%s moved to %s.%d\n", folder.c_str(), folder.c_str(), n);
}

std::unique_ptr<Session> meet(ScriptRunner& script, const Settings& settings, const Compiled& compiled,
                              std::unique_ptr<Device> device, Sessions& sessions) {
    bool& met = sessions.met = false;
    sessions.end = {};
    if (script.job.ranks > 1 && !sessions.backend)
        sessions.backend = make_rendezvous(settings.rendezvous, script.config(), script.registry);
    try {
        return std::make_unique<Session>(settings, script.config(), script.registry,
                                         next_session(script.job, sessions, settings.silence), compiled,
                                         std::move(device), &met, &sessions.end);
    } catch (const std::exception& error) {
        if (!sessions.end) sessions.end = end_by(script.job, error, "meeting");
        const bool told = met || fault_of(error) == Fault::peer;  // else end_rank() names the rank
        throw Error(told ? script.of_rank(explain(error)) : explain(error), fault_of(error));
    }
}

void in_session(const ScriptRunner& script, Session& session, Sessions& sessions, const std::function<void()>& part) {
    const auto set_present = [&sessions](Session* now) {
        const std::lock_guard lock(sessions.present_mutex);
        sessions.present = now;
    };
    const auto past = [&set_present](Session*) { set_present(nullptr); };
    set_present(&session);
    const std::unique_ptr<Session, decltype(past)> present(&session, past);
    try {
        part();
        session.leave();
        sessions.met = false;
        ++sessions.trained;
    } catch (const std::exception& error) {  // also failed allocations and exceptions of plugins
        ends_by_itself();
        const Fault fault = fault_of(error);
        if (fault == Fault::peer && session.other_stopped()) throw Error(script.of_rank(other_stopped), Fault::requeue);
        sessions.end = session.end_by(error);
        if (fault == Fault::requeue)
            session.leave();
        else
            session.fail(explain(error), fault);
        throw Error(script.of_rank(explain(error)), fault);
    }
}

namespace {

/// Prints the settings that differ from those saved in the run's folder by the run that made the checkpoint.
void tell_changes(const ScriptRunner& script) {
    try {
        const std::string changed = changed_settings(script);
        if (!changed.empty()) std::fprintf(stderr, "resumed with changed settings: %s\n", changed.c_str());
    } catch (const Error& error) {
        std::fprintf(stderr, "resumed; the previous settings cannot be read: %s\n", error.what());
    }
}

/// Writes the configuration, `published` (the model's record for exports) and the Lua files to the run's folder.
void prepare_folder(ScriptRunner& script, const std::string& folder, const std::string& published) {
    system_env()->replace_file(folder + "/config.toml", render(script.as_run()));
    system_env()->replace_file(folder + "/published.json", published + "\n");
    keep_lua(script, folder);
}

MetricsPlaces places_of(const Settings& settings, const std::string& folder) {
    return {folder + "/metrics.jsonl", settings.tensorboard ? folder + "/tensorboard" : "", settings.prometheus,
            folder};
}

void require_places(const Settings& settings) {
    const std::string& file = settings.prometheus;
    if (file.empty()) return;
    if (!file.ends_with(".prom"))  // an unrelated file, named in error, would be overwritten
        throw Error(fmt::format(
            "metrics.prometheus {}: node_exporter only reads files that end in .prom\n  name it {}.prom", file, file));
    require_writable("metrics.prometheus", file);
}

void require_notice(ScriptRunner& script) {
    const std::string& file = script.settings.notice_file;
    const std::string problem = file.empty() ? "" : notice_problem(file);
    if (!problem.empty())
        throw Error(script.config().table("run").where("notice_file"),
                    fmt::format("run.notice_file: {} {}", file, problem));
}

/// Reserves and returns the next generation (start) of the run. Processes of older generations can no longer commit.
int64_t mint(CheckpointStore& store, int64_t after) {
    for (;;) {
        const int64_t newest = std::max(after, store.generation());
        if (newest == std::numeric_limits<int64_t>::max())
            throw Error(
                fmt::format("{} has a claim of generation {} of the job, the largest number, so that no restart can "
                            "claim the next one\n  find out what wrote the claim, and remove it",
                            store.place(), newest),
                Fault::failed);
        const int64_t next = newest + 1;
        if (store.claim(next)) return next;
    }
}

/// Calls mint() for a launcher that has generation `after` (0: none). Throws Error if the store does not have that
/// generation any more: a new folder of the same name would start from scratch.
int64_t mint_behind(CheckpointStore& store, int64_t after) {
    // Checked twice: while another launcher replaces the generation's file, there may be a moment without one.
    if (store.contract().fences && store.generation() < after && store.generation() < after)
        throw Error(fmt::format("{} no longer has generation {} of this job: it was removed, moved away or unmounted "
                                "while the job ran\n  restore it, and start again",
                                store.place(), after),
                    Fault::failed);
    return mint(store, after);
}

/// Returns the run's generation (start), the same on all ranks: reserved by Orrery's launcher, else by rank 0.
int64_t generation_of(const ScriptRunner& script, Session& session, CheckpointStore& store) {
    const Job& job = script.job;
    if (job.ours && job.generation > 0) return job.generation;
    const std::string taken = job.rank == 0 ? std::to_string(mint(store, job.generation)) : "";
    return std::stoll(session.from_first("generation", taken, WaitLimit::files));
}

/// Throws Error if another node than 0 was started with --fresh (`fresh`) and node 0, which moves the run's folder
/// aside, without it. Collective.
void require_fresh_of_first(Session& session, bool fresh) {
    const std::string first = session.from_first("fresh", fresh ? "--fresh" : "", WaitLimit::step);
    if (fresh && first.empty())
        throw Error(
            "--fresh: node 0, which moves the run's folder aside, was started without it\n"
            "  give it to node 0 as well, or to no node");
}

/// Trains in a session. `record`: run.json, on rank 0; null on other ranks.
void train_in(Session& session, ScriptRunner& script, const Compiled& compiled, CheckpointStore& store,
              const TrainOptions& options, const std::string& published, RunRecord* record, OwnPlace* told) {
    const Settings& settings = script.settings;
    const std::string folder = script.folder();
    if (script.command.nodes > 1) require_fresh_of_first(session, script.command.fresh);
    if (store.place().starts_with(folder)) require_shared(session, folder);
    const Json hosts = hosts_of(session);
    const int64_t generation = generation_of(script, session, store);
    store.act_for(generation);
    log_output(script.job.rank, folder, generation);
    if (!settings.timeout_given)  // calls of data sources get the same limit as disks
        script.watch_calls(std::chrono::milliseconds(static_cast<int64_t>(settings.disk_timeout_s * 1000)),
                           "run.disk_timeout_s");
    if (record) record->add({{"hosts", hosts}, {"generation", generation}});
    std::optional<MetricsWriter> metrics;
    if (record) metrics.emplace(places_of(settings, folder), stdout, progress_line());
    // A script that trains again resumes from its own checkpoints, and so does a job that was restarted.
    const bool begins = session.job().session == 0 && !(told && told->again());
    const int64_t from = begins ? script.command.from_step : -1;
    const std::string went_on = record && from >= 0 ? went_on_before(script, store) : "";
    if (record && from >= 0 && went_on.empty())
        require_way("--from-step", from, store, options);  // other launchers have not checked the step before
    train({session,
           store,
           metrics ? &*metrics : nullptr,
           script.dataset(),
           options,
           settings.seed,
           settings.keep,
           settings.weights,
           script.experiment->recipe->weights,
           published,
           from,
           went_on,
           record ? [&] { prepare_folder(script, folder, published); } : std::function<void()>(),
           settings.trace,
           settings.trace_step,
           settings.grace_s,
           folder + "/costs.json",
           told ? [told](int64_t step) { told->resumed(step); } : std::function<void(int64_t)>(),
           told ? [told](int64_t step) { told->finished(step); } : std::function<void(int64_t)>(),
           record ? [&] { return closing_comparison(compiled, settings, script.config(), folder + "/costs.json"); }
                  : std::function<std::string()>(),
           record ? [&](const Json& more) { record->add(more); } : std::function<void(const Json&)>(),
           settings.suspect_factor,
           settings.drop,
           code_of(script),
           record ? nominal_flops(session.device(), compiled.train().program, script.config()) : 0});
}

void train_here(ScriptRunner& script, const Compiled& compiled, std::unique_ptr<Device> device, Sessions& sessions,
                const TrainOptions& options) {
    const bool first = script.job.rank == 0;
    if (!script.job.ours && sessions.begun == 0 && own_job_ended(script.config(), script.folder())) return;
    if (first) require_places(script.settings);
    std::unique_ptr<FolderLock> launcher, lock;
    const Job& job = script.job;
    if (first && job.assigned && !job.ours) launcher = script.lock_folder(FolderLock::launcher);
    if (first) lock = script.lock_folder();
    if (first) note_own_job(script.config(), script.folder());
    log_output(job.rank, script.folder(), 0);
    const auto store = script.open_store();
    // With --fresh, the old folder is gone already. A script that trains again resumes from its own checkpoints.
    if (sessions.begun == 0) check_resume(script.settings, script.config(), *store, false);
    if (first && !store->steps().empty()) tell_changes(script);
    std::string published;
    if (first) {
        if (script.tokenizer) keep_tokenizer(*script.tokenizer, script.folder());
        auto how = PublishedRecord::of(script.experiment->train(), script.experiment->recipe->weights);
        if (!script.settings.weights.empty()) how.take_dtype(script.settings.weights);
        published = how.text();
        if (script.command.verbose) std::printf("%s\n", render(script.as_run()).c_str());
        std::printf("%s: configuration in config.toml, output of ranks in logs/\n", script.folder().c_str());
        std::fflush(stdout);
    }
    std::optional<NoticeWatch> notice;
    if (job.local_rank == 0 && !job.ours && !script.settings.notice_file.empty())
        notice.emplace(script.settings.notice_file);
    std::optional<RunRecord> record;
    if (first) record.emplace(script.folder(), start_of(script));
    try {
        const auto met = meet(script, script.settings, compiled, std::move(device), sessions);
        in_session(script, *met, sessions, [&] {
            train_in(*met, script, compiled, *store, options, published, record ? &*record : nullptr,
                     sessions.told.get());
        });
        if (first) end_run_record("done", 0);
    } catch (const std::exception& error) {
        if (first) end_run_record(explain(error), exit_code(fault_of(error)));
        throw;
    }
}

void compile_timed(ScriptRunner& script, Experiment experiment) {
    const auto begin = std::chrono::steady_clock::now();
    make_sizes(experiment);
    script.compile_whole(std::move(experiment));
    const size_t sizes = script.compiled().sizes.sizes().size();
    const size_t capacities = std::max<size_t>(1, script.compiled().capacities.size());
    if (sizes * capacities == 1) return;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    // Another host may be slower: it may need as long again as this one did, until it has compiled and joins.
    script.settings.join_timeout += std::chrono::duration_cast<std::chrono::milliseconds>(took);
    const std::string of_sizes = sizes > 1 ? fmt::format("{} batch sizes", sizes) : "";
    const std::string of_capacities = capacities > 1 ? fmt::format("{} capacities", capacities) : "";
    script.print(fmt::format("{}: train steps of {}{}{} compiled in {:.1f} s", sizes > 1 ? "batch ramp" : "capacity",
                             of_sizes, sizes > 1 && capacities > 1 ? " and " : "", of_capacities, took.count()));
}

/// Ends this process from another thread when this rank's thread is blocked. First informs the other ranks, for a
/// limited time: the disk with run.json may be the one that hangs.
void give_up_rank(const ScriptRunner& script, const std::string& text, Sessions& sessions) {
    std::thread([last = script.of_rank(text)] {
        std::this_thread::sleep_for(std::chrono::seconds(3));
        end_process(last);
    }).detach();
    if (sessions.told) sessions.told->failed(end_by(script.job, Error(text, Fault::failed), "call"));
    {
        const std::lock_guard lock(sessions.present_mutex);
        if (sessions.present) sessions.present->fail(text);
    }
    end_run_record(text, exit_code(Fault::failed));
}

/// Throws Error if the number of ranks that the launcher started differs from the configuration's.
void refuse_other_ranks(ScriptRunner& script) {
    const Job& job = script.job;
    const Settings& settings = script.settings;
    if (job.ranks != settings.mesh.ranks())
        throw Error(script.config().table("mesh").origin(),
                    fmt::format("mesh {} has {} ranks, but {} started {}\n  start as many tasks as ranks, or one on "
                                "each node; or change [mesh]",
                                settings.mesh.text(), settings.mesh.ranks(),
                                job.launcher.empty() ? "this command" : job.launcher, job.ranks));
    if (settings.ranks > 0 && job.assigned && job.counted && job.local_ranks != settings.ranks)
        throw Error(
            script.config().table("run").where("ranks"),
            fmt::format("run.ranks = {}, but {} started {} on this host (mesh {} has {})\n  change one of "
                        "them, or leave run.ranks out",
                        settings.ranks, job.launcher, job.local_ranks, settings.mesh.text(), settings.mesh.ranks()));
}

/// `trained`: set to the run's folder if this process notes the run's end, as rank 0 that it has not started itself.
void run_rank_script(const ScriptCommand& command, const Job& job, Sessions& sessions, std::string& trained) {
    ScriptUse use{.tells = first_of_foreign(job), .compile = compile_timed};
    use.train = [&](ScriptRunner& script, const DataSpec& data, const TrainOptions& options) {
        script.take_down(data, options);
        if (job.rank == 0 && !job.ours) trained = script.folder();
        script.compile_evaluation();
        train_here(script, script.compiled(), script.take_device(), sessions, options);
        if (stop_signal() != 0)  // a signal came after the ranks voted on stopping at the last step
            throw Error(script.of_rank(fmt::format("stopped by signal {} after the last step: start again to run "
                                                   "the rest of the script",
                                                   stop_signal())),
                        Fault::requeue);
    };
    use.sample = [](ScriptRunner& script, const SampleOptions& options) {
        if (script.job.rank != 0) return std::string();
        script.refuse_unsaved();
        return sample_newest(script, script.compile_sampling(true), options).text;
    };
    use.give_up = [&](const ScriptRunner& script, const std::string& text) { give_up_rank(script, text, sessions); };
    ScriptRunner script(command, job, std::move(use));
    if (job.assigned && job.rank != 0)  // whether the script trains is not known yet
        show_output(job.rank, script.settings.output_all ? std::optional(Shown::prefixed) : std::nullopt);
    refuse_other_ranks(script);
    script.load();
    if (job.assigned && !job.ours && job.local_rank == 0) tell_quota();
    take_place(script.job, script.settings, script.config(), script.loader);
    if (job.ranks > 1) sessions.backend = make_rendezvous(script.settings.rendezvous, script.config(), script.registry);
    script.run();
}

int run_alone(const RankCommand& ranks, const Job& job, Sessions& sessions) {
    ranks.rank(job, sessions);
    refuse_stopped();
    return 0;
}

int run_as_threads(const ScriptCommand& command, const RankCommand& work, RendezvousBackend& backend, int64_t ranks,
                   std::chrono::milliseconds silence) {
    launch_threads(job_name(command), ranks, backend, silence, [&](const Job& job) {
        try {
            Sessions sessions;
            work.rank(job, sessions);
        } catch (...) {
            ends_by_itself();
            throw;
        }
    });
    refuse_stopped();
    return 0;
}

int restart_ranks(const ScriptCommand& command, const RankCommand& work, ScriptRunner& checked, LaunchSpec spec,
                  const std::function<void()>& claim) {
    if (checked.settings.resume == Resume::never)
        throw Error(checked.config().table("run").where("resume"),
                    fmt::format("run.resume = \"never\" and --restarts {}: a restart resumes from a checkpoint\n"
                                "  leave one of them out; --fresh starts over, once",
                                command.restarts));
    const bool lasts = !checked.data || checked.open_store()->contract().survives != StoreContract::Survives::nothing;
    if (!lasts)
        throw Error(
            checked.config().table("run").where("store"),
            fmt::format("run.store = \"{}\" and --restarts {}: its checkpoints are lost when the ranks exit, so that "
                        "each restart would begin at step 1\n  use a persistent store, for example posix",
                        checked.settings.store, command.restarts));
    Supervision options;
    options.policy.restarts = command.restarts;
    options.policy.nodes = command.nodes;
    options.policy.spares = command.spares;
    options.policy.wait_node_s = command.wait_node_s.value_or(options.policy.wait_node_s);
    options.policy.drains = !command.drain_ends_job && (command.spares > 0 || command.wait_node_s);
    options.drain_ends_job = command.drain_ends_job;
    options.node = command.node_rank;
    options.check = [&] { return check_node(command, checked.folder()); };
    options.claim = claim;
    options.over = [&] { return work.over && work.over(checked); };
    options.disk_timeout_s = checked.settings.disk_timeout_s;
    options.folder = [&] { return checked.data ? checked.folder() : ""; };
    if (work.mint) options.mint = [&](int64_t after) { return work.mint(checked, after); };
    return supervise(std::move(spec), options);
}

int start_ranks(const ScriptCommand& command, const RankCommand& work, ScriptRunner& checked,
                const std::function<void()>& claim, SignalTaker& signals) {
    const Settings& settings = checked.settings;
    const int64_t ranks = settings.mesh.ranks();
    need_descriptors(settings.mesh, checked.joined());
    LaunchSpec spec = over_hosts(command, ranks);
    place_ranks(spec, settings, checked.config(), checked.loader);
    spec.folder = checked.data ? checked.folder() : "";
    spec.shows_all = settings.output_all || spec.folder.empty();  // without a log, output would be lost
    spec.taken_by = &signals;
    spec.join_timeout = settings.join_timeout;
    spec.job.silence = settings.silence;
    if (ranks > 1) spec.meeting = make_rendezvous(settings.rendezvous, checked.config(), checked.registry);
    std::optional<NoticeWatch> notice;
    if (!settings.notice_file.empty()) notice.emplace(settings.notice_file);
    if (command.restarts > 0) return restart_ranks(command, work, checked, std::move(spec), claim);
    return launch_meeting(std::move(spec), command.node_rank, claim);
}

int run_rank(const RankCommand& ranks, const Job& job) {
    if (job.rank == 0) show_output(0, Shown::plain);
    Sessions sessions;
    sessions.told = OwnPlace::of_environment();
    try {
        const int code = run_alone(ranks, job, sessions);
        if (sessions.told) sessions.told->done();
        return code;
    } catch (const std::exception& error) {
        ends_by_itself();
        const Fault fault = fault_of(error);
        // The rank that failed itself is one of this host's, and its last lines are shown.
        const bool all_here = job.ours && job.local_ranks == job.ranks;
        if (fault == Fault::peer && sessions.met && all_here) follows_another(job.rank);
        // A script may catch the error that ended its training, and then fail with another one.
        const Loss own = end_by(job, error, "script");
        const bool same = sessions.end.cause == own.cause && sessions.end.hearsay == own.hearsay;
        if (sessions.told) sessions.told->failed(same ? sessions.end : own);
        // The other ranks know the error from the session, or there are none.
        if (sessions.met || fault == Fault::requeue || fault == Fault::peer) throw;
        Job here = job;
        here.session = sessions.trained;
        return end_rank(here, explain(error), fault, sessions.backend, sessions.server.get());
    }
}

int launch_ranks(const ScriptCommand& command, const RankCommand& work, const Job& job, SignalTaker& signals) {
    tell_quota();
    const auto checked = work.check(job);
    if (work.over && work.over(*checked)) return 0;
    const auto claim = [&] {
        if (work.claim) work.claim(*checked);
    };
    const int64_t ranks = checked->settings.mesh.ranks();
    const bool threads = checked->ranks_are_threads();
    if (ranks > 1 && command.nodes == 1) tell_nodes_left_out(checked->config());
    if (threads && command.restarts > 0)
        throw Error(
            fmt::format("--restarts {} is not supported with transport threads: the ranks are threads of this process, "
                        "and if it dies nothing restarts them\n"
                        "  use another transport, for example shm",
                        command.restarts));
    if ((ranks > 1 && !threads) || command.restarts > 0) return start_ranks(command, work, *checked, claim, signals);
    claim();
    show_output(0, Shown::plain);  // this process has all ranks
    if (ranks > 1) {
        const auto backend = make_rendezvous(checked->settings.rendezvous, checked->config(), checked->registry);
        return run_as_threads(command, work, *backend, ranks, checked->settings.silence);
    }
    Sessions sessions;
    return run_alone(work, job, sessions);
}

int run_launcher(const ScriptCommand& command, const RankCommand& work, const Job& job, SignalTaker& signals) {
    show_output(-1, Shown::plain);
    check_nodes(command);
    if (command.nodes == 1) return launch_ranks(command, work, job, signals);
    try {
        return launch_ranks(command, work, job, signals);
    } catch (const std::exception& error) {
        return end_launcher(command, explain(error), fault_of(error));
    }
}

/// Runs a task that another launcher started, as a rank or as the launcher of its node's ranks.
int run_task(const ScriptCommand& command, const RankCommand& work, Job job, const LaunchedTask& task,
             SignalTaker& signals) {
    const TaskSettings read = settings_of(command);
    const TaskRole role = checked_role(command, job, task, read);
    Job own;
    own.nonce = job.nonce;
    if (role.kind == TaskRole::alone) {
        std::fprintf(stderr, "orrery: %s started one task, and mesh %s has %lld ranks: they start on this host\n",
                     job.launcher.c_str(), read.settings->mesh.text().c_str(),
                     static_cast<long long>(read.settings->mesh.ranks()));
        return run_launcher(command, work, own, signals);
    }
    if (job.ranks > 1 || role.kind == TaskRole::rank) settle_task(job, task, read);
    await_name(job, task.late_name);
    if (role.kind == TaskRole::rank) return run_rank(work, job);
    return run_launcher(agent_of(command, role, job), work, own, signals);
}

}  // namespace

int run_on_ranks(const ScriptCommand& command, const RankCommand& work) {
    const auto ours = job_from_orrery();
    const auto task =
        ours ? std::nullopt : launched_task([&] { return launchers_of([&] { return config_of(command); }); });
    Job job = ours ? *ours : task ? job_of(*task) : Job{};
    if (job.nonce.empty()) job.nonce = make_nonce();
    SignalTaker signals(job.ranks > 1 ? fmt::format("[rank {}] ", job.rank) : "");
    if (command.script_help) return show_options(command, job);
    if (ours) return run_rank(work, job);
    const auto run_as_task = [&] { return run_task(command, work, job, *task, signals); };
    if (task) return job.rank == 0 ? with_exit_file(run_as_task) : run_as_task();
    return run_launcher(command, work, job, signals);
}

int run_command(const ScriptCommand& command) {
    if (!command.script_help) collect_output();
    std::unique_ptr<FolderLock> held;  // held to the end, also while no rank runs
    std::string folder;                // of a run of which this process has rank 0, or starts it
    RankCommand work;
    work.rank = [&](const Job& job, Sessions& sessions) { run_rank_script(command, job, sessions, folder); };
    work.check = [&](const Job& job) -> std::unique_ptr<ScriptRunner> {
        auto checked = check_launch(command, job);
        named_table(checked->settings, checked->config());  // throws now, not after training, if [simulate] is invalid
        if (command.node_rank == 0) require_places(checked->settings);
        require_notice(*checked);
        return checked;
    };
    work.claim = [&](ScriptRunner& checked) {
        if (!checked.data) return;
        if (command.fresh) move_aside(checked.folder());
        held = checked.lock_folder(FolderLock::launcher);
        folder = checked.folder();
        checked.lock_folder();  // only checks that the folder is free; rank 0 locks it for the run
    };
    work.over = [](ScriptRunner& checked) { return checked.data && own_job_ended(checked.config(), checked.folder()); };
    work.mint = [](ScriptRunner& checked, int64_t after) {
        return checked.data ? mint_behind(*checked.open_store(), after) : after + 1;
    };
    const int code = run_on_ranks(command, work);
    if (code == 0 && !folder.empty()) note_own_end([&] { return config_of(command); }, folder);
    return code;
}

}  // namespace orrery
