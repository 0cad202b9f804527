#include "cli/script_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>

#include "base/env.h"
#include "base/limits.h"
#include "base/text.h"
#include "config/load.h"
#include "lua/script.h"
#include "run/feed.h"
#include "run/sample.h"
#include "run/saved_state.h"
#include "run/shared_folder.h"
#include "run/stop_request.h"
#include "run/train.h"
#include "run/weights.h"
#include "run/whole.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr const char* threads = "threads";

Config read_config(ScriptCommand& command) {
    // A run's folder stands for its script and configuration.
    if (fs::is_directory(command.script)) {
        const fs::path folder = command.script;
        const fs::path saved = folder / "config.toml";
        if (!fs::exists(saved))
            throw Error(
                fmt::format("{} is no run's folder: it has no config.toml\n  name a script, or a folder that "
                            "orrery run has made",
                            folder.string()));
        command.config = saved.string();
        command.sets.insert(command.sets.begin(), fmt::format("run.folder=\"{}\"", folder.string()));
        Config config = load_config(command.config, command.sets);
        command.script = config.table("run").require_text("script");
        return config;
    }
    if (!fs::exists(command.script))
        throw Error(fmt::format("no script {}\n  name a Lua file, seen from {}, or the folder of a run", command.script,
                                fs::current_path().string()));
    command.sets.push_back(fmt::format("run.script=\"{}\"", command.script));
    return load_config(command.config, command.sets);
}

std::unique_ptr<CheckpointStore> open_store(const Settings& settings, Config& config, const Registry& registry,
                                            const std::string& folder) {
    Config& options = config.table("store").table(settings.store);
    auto store = registry.store(settings.store, config.table("run").where("store"))(options, folder + "/checkpoints");
    options.reject_unused();
    return store;
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

void ask(Device& device, CompileOptions& options) {
    options.workspace = [&](const KernelSpec& spec) { return device.prepare(spec)->scratch_bytes(); };
    options.runs = [&](const KernelSpec& spec) { return device.why_not(spec).empty(); };
}

}  // namespace

ScriptHost::ScriptHost(const ScriptCommand& command, Mode mode, const Job& job)
    : command_(command),
      mode_(mode),
      job_(job),
      config_(read_config(command_)),
      settings_(read_settings(config_)),
      loader_(and_plugin_folders(config_.table("plugins").texts("path"))) {
    script_ = command_.script;
    if (mode_ == Mode::sample) settings_.mesh = Mesh();
    if (mode_ == Mode::verify) {
        for (const Axis& axis : settings_.mesh.axes())
            if (axis.size > 1 && settings_.transport_of(axis.name) != threads)
                replaced_[axis.name] = settings_.transport_of(axis.name);
        settings_.transport = threads;
        settings_.axis_transport.clear();
        job_.local_ranks = settings_.mesh.ranks();
    }
    if (mode_ == Mode::run && job_.ranks != settings_.mesh.ranks())
        throw Error(
            config_.table("mesh").origin(),
            fmt::format("mesh {} has {} ranks, {} started {}\n  start as many, or change [mesh]", settings_.mesh.text(),
                        settings_.mesh.ranks(), job_.launcher.empty() ? "this command" : job_.launcher, job_.ranks));
    const bool counted = job_.assigned && job_.launcher != "slurm";  // srun may leave the count out
    if (mode_ == Mode::run && settings_.ranks > 0 && counted && job_.local_ranks != settings_.ranks)
        throw Error(
            config_.table("run").where("ranks"),
            fmt::format("run.ranks = {}, but {} started {} on this host (mesh {} has {})\n  change one of them, or "
                        "leave run.ranks out",
                        settings_.ranks, job_.launcher, job_.local_ranks, settings_.mesh.text(),
                        settings_.mesh.ranks()));
    if (checks() || mode_ == Mode::draw) job_.local_ranks = ranks_per_host(settings_, config_, command_.nodes);
    load_plugins();
    if (checks()) refuse_apart(settings_, config_, contracts_, job_.local_ranks);
    if (checks()) check_tables();
}

ScriptHost::~ScriptHost() = default;

std::unique_ptr<Strategy> ScriptHost::make_strategy(std::string_view name, Config& options, const Origin& asked) {
    loader_.load("strategy", name, registry_, asked);
    return registry_.strategy(name, asked)(options, asked);
}

void ScriptHost::run_script() {
    try {
        orrery::run_script(script_, *this);
    } catch (const Error&) {
        if (!help_shown_) throw;
    }
    if (mode_ == Mode::help && !help_shown_) std::printf("%s declares no options\n", script_.c_str());
}

bool ScriptHost::leaves_device_to_ranks() const {
    const bool processes = settings_.mesh.ranks() > 1 && !ranks_are_threads();
    return mode_ == Mode::launch && processes && settings_.device != "cpu";
}

std::unique_ptr<Device> ScriptHost::counting_device(const Job& job, const Settings& settings) {
    const bool starts_nothing = checks() || mode_ == Mode::draw;
    const std::string why = starts_nothing ? loader_.cannot_run("device", settings.device) : "";
    if (mode_ == Mode::launch && !why.empty())  // the ranks will be on this host
        throw Error(config_.table("run").where("device"),
                    fmt::format("device {} cannot run here: {}", settings.device, why));
    if (leaves_device_to_ranks()) return nullptr;
    if (why.empty()) return make_device(settings, config_, registry_, job);
    const std::string note =
        fmt::format("not counted: scratch of kernels, as device {} cannot run here: {}", settings.device, why);
    if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
    return nullptr;
}

void ScriptHost::compile(Experiment experiment) {
    CompileOptions options;
    options.contracts = contracts_;
    options.collectives = collectives_;
    options.threads_per_rank = threads_of(settings_, job_);
    options.memory_bytes = settings_.memory_bytes;
    refuse_idle_axes(experiment, config_.table("mesh"));
    std::unique_ptr<Device> device = counting_device(job_, settings_);
    if (device) ask(*device, options);
    experiment_ = std::move(experiment);
    compiled_ =
        mode_ == Mode::sample ? compile_sampling(*experiment_, options) : compile_training(*experiment_, options);
    if (mode_ == Mode::run) device_ = std::move(device);
}

std::vector<CollectiveChoice> ScriptHost::collectives() {
    std::vector<CollectiveChoice> choices;
    if (mode_ == Mode::sample || mode_ == Mode::help) return choices;
    for (const auto& [axis, name] : settings_.collectives) {
        const int64_t members = settings_.mesh.size(*settings_.mesh.find(axis));
        if (members > 1) choices.push_back({axis, members, name, config_.table("collectives").where(axis)});
    }
    return choices;
}

void ScriptHost::use_collectives(const CollectiveChoice& choice, std::vector<ChunkTable> tables) {
    const TransportContract& contract = contracts_.at(choice.axis);
    if (!serves(contract, "cpu"))
        throw Error(choice.asked,
                    fmt::format("collective {} adds on the processor, transport {} of axis {} has its tensors in {}\n"
                                "  take a transport that stages them (gloo, ucx), or leave the axis to {}",
                                choice.name, settings_.transport_of(choice.axis), choice.axis,
                                fmt::join(contract.devices, ", "), settings_.transport_of(choice.axis)));
    for (const ChunkTable& table : tables) {
        prove(table);
        prove_progress(table, contract);
        if (table.collective == Do::reduce_scatter && contract.needs_arena)
            throw Error(choice.asked,
                        fmt::format("collective {} has a reduce_scatter, whose sums on their way lie outside of the "
                                    "arenas; transport {} of axis {} sends from arenas only\n  take a transport "
                                    "that does not, or one of its others, as in \"ring.all_reduce\"",
                                    choice.name, settings_.transport_of(choice.axis), choice.axis));
    }
    collectives_[choice.axis] = std::move(tables);
}

bool ScriptHost::ranks_are_threads() const {
    return std::any_of(contracts_.begin(), contracts_.end(), [](const auto& axis) { return axis.second.same_process; });
}

std::string ScriptHost::folder() const {
    return !settings_.folder.empty() ? settings_.folder
                                     : "runs/" + (compiled_ ? compiled_->name : std::string("orrery"));
}

std::unique_ptr<FolderLock> ScriptHost::lock_folder() {
    try {
        return std::make_unique<FolderLock>(folder());
    } catch (const Error& problem) {
        throw Error(config_.table("run").where("folder"), fmt::format("run.folder: {}", problem.what()));
    }
}

std::string ScriptHost::summary() {
    summary_shown_ = true;
    return compiled_ ? orrery::summary(*compiled_) : "";
}

void ScriptHost::train(const DataSpec& given, const TrainOptions& options) {
    trains_ = true;
    const bool falls_due = options.checkpoint_every > 0 && options.steps % options.checkpoint_every == 0;
    saves_end_ = options.checkpoint_final || falls_due;
    DataSpec data = given;  // ids that the model has no row for are as wrong as those beyond data.vocab
    if (compiled_ && compiled_->vocabulary > 0)
        data.vocab = data.vocab > 0 ? std::min(data.vocab, compiled_->vocabulary) : compiled_->vocabulary;
    if (checks()) check_inputs(experiment_->train);
    if (mode_ == Mode::launch) {  // bad data and unwanted checkpoints show before a rank starts
        Dataset looked_at(data);
        check_resume(settings_, config_, *open_store(settings_, config_, registry_, folder()), command_.fresh);
    }
    if (mode_ == Mode::verify || mode_ == Mode::check) data_ = data;
    if (checks() && !settings_.weights.empty())
        check_weights(experiment_->train, settings_.weights, experiment_->weights);
    if (mode_ != Mode::run) return;
    train_here(data, options);
    if (stop_signal() != 0)  // it came when no step was left to stop at
        throw Error(of_rank(fmt::format("stopped by signal {} after the last step: start again for what the script "
                                        "does next",
                                        stop_signal())),
                    Fault::requeue);
}

void ScriptHost::train_here(const DataSpec& data, const TrainOptions& options) {
    std::unique_ptr<FolderLock> lock;
    if (job_.rank == 0) lock = lock_folder();
    const auto store = open_store(settings_, config_, registry_, folder());
    // --fresh has moved the folder aside by now; a script that trains again goes on with its own checkpoints.
    if (sessions_ == 0) check_resume(settings_, config_, *store, false);
    if (job_.rank == 0 && !store->steps().empty()) tell_changes(folder(), config_);
    if (job_.rank == 0) prepare_folder();
    const auto met = meet();
    Session& session = *met;
    try {
        if (store->place().starts_with(folder())) require_shared(session, folder());
        std::optional<MetricsWriter> metrics;
        if (job_.rank == 0) metrics.emplace(folder() + "/metrics.jsonl", stdout);
        orrery::train({session, *store, metrics ? &*metrics : nullptr, data, options, settings_.seed, settings_.keep,
                       settings_.weights, experiment_->weights});
        session.leave();
        met_ = false;
        ++trained_;
    } catch (const Error& error) {
        ends_by_itself();
        if (error.fault() == Fault::requeue)
            session.leave();
        else if (error.fault() == Fault::peer && session.other_stopped())
            throw Error(of_rank(other_stopped), Fault::requeue);
        else
            session.fail(error.what());
        throw Error(of_rank(error.what()), error.fault());
    } catch (const std::exception& error) {  // memory that is out, a plugin's own kind: the others must know, too
        ends_by_itself();
        session.fail(explain(error));
        throw Error(of_rank(explain(error)), Fault::failed);
    }
}

std::unique_ptr<Session> ScriptHost::meet() {
    met_ = false;
    try {
        return std::make_unique<Session>(settings_, config_, registry_, next_session(), *compiled_, std::move(device_),
                                         &met_);
    } catch (const Error& error) {
        if (!met_ && error.fault() != Fault::peer) throw;  // who tells the others names the rank
        throw Error(of_rank(error.what()), error.fault());
    } catch (const std::exception& error) {
        throw Error(met_ ? of_rank(explain(error)) : explain(error), Fault::failed);
    }
}

std::string ScriptHost::of_rank(const std::string& text) const {
    return job_.ranks > 1 ? fmt::format("[rank {}] {}", job_.rank, text) : text;
}

/// A script may train more than once: each time is a session of its own, over one store.
Job ScriptHost::next_session() {
    Job job = job_;
    job.session = sessions_++;
    if (job.serves && job.ranks > 1 && !server_) server_ = serve(job);
    job.serves = false;
    return job;
}

std::string ScriptHost::sample(const SampleOptions& options) {
    // Only a run and a sampling have a model to draw text from; a check says what it would need.
    if ((mode_ != Mode::run && mode_ != Mode::sample && !checks()) || job_.rank != 0) return "";
    if (mode_ != Mode::sample && trains_ && !saves_end_)
        throw Error(config_.table("checkpoint").where("final"),
                    "checkpoint.final = false leaves no checkpoint of the end, and the script samples from it\n"
                    "  remove the key, or the call of sample");
    Job alone;
    Settings settings = settings_;
    settings.mesh = Mesh();
    CompileOptions compiling;
    compiling.threads_per_rank = threads_of(settings, alone);
    compiling.memory_bytes = settings.memory_bytes;
    std::unique_ptr<Device> device = counting_device(alone, settings);
    if (device) ask(*device, compiling);
    Compiled sampling = compile_sampling(*experiment_, compiling);
    if (checks()) {
        notes_.push_back(fmt::format("sampling: {} on one rank", bytes_text(sampling.arena_bytes())));
        return "";
    }
    Session session(settings, config_, registry_, alone, std::move(sampling), std::move(device));
    const auto store = open_store(settings, config_, registry_, folder());
    const SavedState::Resumed loaded = SavedState(session, *store, settings.keep).load_params();
    for (const std::string& said : loaded.said) std::fprintf(stderr, "%s\n", said.c_str());
    std::fprintf(stderr, "sampling from step %lld: %s\n", static_cast<long long>(loaded.step), store->place().c_str());
    return draw_text(session, options);
}

VerifyReport ScriptHost::verify(const VerifyOptions& options) {
    const auto make_device = [this] { return orrery::make_device(settings_, config_, registry_, job_); };
    const auto device = make_device();
    std::optional<Dataset> data;
    if (data_) data.emplace(*data_);
    WholeSources sources(*device, settings_.seed, data ? &*data : nullptr);
    std::mutex one_at_a_time;  // plugins read their table of the configuration
    const auto alone = [&](auto make) {
        return [&one_at_a_time, make] {
            const std::lock_guard lock(one_at_a_time);
            return make();
        };
    };
    const VerifyCase verified{experiment_->train,
                              *compiled_->train,
                              compiled_->persistent,
                              alone(make_device),
                              alone([this] {
                                  return registry_.transport(threads, config_.table("run").where("transport"))(
                                      config_.table("transport").table(threads));
                              }),
                              std::ref(sources),
                              settings_.timeout,
                              compiled_->collectives};
    return orrery::verify(verified, options);
}

std::string ScriptHost::not_verified() const {
    std::string text;
    for (const auto& [axis, transport] : replaced_)
        text += fmt::format("{}{} of axis {}", text.empty() ? "" : ", ", transport, axis);
    if (text.empty()) return text;
    return fmt::format("  not verified: transport {}; ranks are threads here, and the plan is made for those\n", text);
}

void ScriptHost::declare_options(const std::vector<Option>& options) {
    if (mode_ != Mode::help) return;
    std::printf("options of %s, set in [script] or with --set script.KEY=VALUE:\n", script_.c_str());
    for (const Option& option : options)
        std::printf("  %-24s %s (default %s)\n", option.key.c_str(), option.help.c_str(), option.fallback.c_str());
    help_shown_ = true;
    throw Error("options shown");
}

void ScriptHost::print(const std::string& line) {
    const bool silent = mode_ == Mode::draw || mode_ == Mode::launch || mode_ == Mode::verify;
    if (job_.rank == 0 && !silent) std::printf("%s\n", line.c_str());
}

void ScriptHost::give_up(const std::string& text) { end_process(of_rank(text)); }

void ScriptHost::prepare_folder() {
    const auto env = system_env();
    const std::string resolved = render(config_), copy = folder() + "/script.lua";
    env->replace_file(folder() + "/config.toml", resolved);
    std::error_code ignored;
    if (!fs::equivalent(script_, copy, ignored)) env->replace_file(copy, env->read_file(script_));
    std::printf("%s\n", resolved.c_str());
    std::fflush(stdout);
}

}  // namespace orrery
