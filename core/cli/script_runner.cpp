#include "cli/script_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "cli/run_record/kept_script.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "ir/op.h"
#include "lua/script.h"
#include "plan/access.h"
#include "run/data/input_feed.h"
#include "run/session.h"
#include "run/train/evaluation.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Adds a command's own settings as defaults, which calls of the script may override.
void lay_over(Config& config, const std::vector<std::string>& own_sets) {
    const Config own = load_config("", own_sets);
    for (const auto& [name, value] : own.items())
        for (const auto& [key, set] : std::get<std::shared_ptr<Config>>(value.data)->items())
            if (source_of(set.origin) == Source::set)
                config.table(name).set(key, {set.data, {"", "default of this command", 0, 0}, false, set.per_host});
}

Config configured(const ScriptCommand& command) {
    std::vector<std::string> sets = command.sets;
    if (fs::is_directory(command.script)) {
        const fs::path folder = command.script;
        const fs::path saved = folder / "config.toml";
        if (!fs::exists(saved)) {
            const std::string copies = how_to_use_copies(folder.string());
            throw Error(fmt::format("{} is not a run's folder: it has no config.toml{}", folder.string(),
                                    copies.empty() ? "\n  name a script, or a folder created by orrery run" : copies));
        }
        sets.insert(sets.begin(), "run.folder=" + toml_string(folder.string()));
        Config config = load_run_config(saved.string(), sets);
        const std::string script = config.table("run").require_text("script");
        if (!fs::exists(script))
            throw Error(fmt::format(
                "{} is a run of script {}, which is not found from {}\n  start in the working folder "
                "of the run, or use its copy of the script: --set run.script={}",
                folder.string(), script, fs::current_path().string(), kept_script_of(folder.string(), config)));
        return config;
    }
    if (!fs::exists(command.script))
        throw Error(fmt::format("script {} not found\n  name a Lua file, relative to {}, or the folder of a run",
                                command.script, fs::current_path().string()));
    sets.push_back("run.script=" + toml_string(command.script));
    return load_config(command.config, sets);
}

}  // namespace

Config config_of(const ScriptCommand& command) {
    Config config = configured(command);
    lay_over(config, command.own_sets);
    return config;
}

ScriptRunner::ScriptRunner(const ScriptCommand& command, const Job& job, ScriptUse use)
    : Host(config_of(command)),
      command(command),
      script(config_.table("run").require_text("script")),
      job(job),
      settings(read_settings(config_)),
      tokenizer(choose_tokenizer(config_)),
      loader(and_plugin_folders(config_.table("plugins").texts("path"))),
      use_(std::move(use)) {}

void ScriptRunner::load() {
    load_backends();
    choose_transport();
    load_transports();
}

void ScriptRunner::load_for_hosts(int64_t hosts) {
    job.local_ranks = ranks_per_host(settings, config_, hosts);
    load();
}

void ScriptRunner::run() {
    codecs = loader.codecs(registry);
    run_script(script, *this);
}

void ScriptRunner::load_store() { loader.load("store", settings.store, registry, config_.table("run").where("store")); }

void ScriptRunner::load_backends() {
    check_backends(config_, loader.names());
    Config& run = config_.table("run");
    loader.load("device", settings.device, registry, run.where("device"));
    const DeviceFacts facts = device_facts();
    settings.device_memory = facts.memory;
    if (!settings.collectives.empty() && !facts.host_memory)
        throw Error(config_.table("collectives").origin(),
                    fmt::format("[collectives] only supports host memory; device \"{}\" has its own memory\n"
                                "  remove the table or run on device = \"cpu\"",
                                settings.device));
    load_store();
    if (settings.mesh.ranks() > 1) loader.load("rendezvous", settings.rendezvous, registry, run.where("rendezvous"));
}

void ScriptRunner::choose_transport() {
    Config& run = config_.table("run");
    const Origin device = run.where("device");
    const auto& axes = settings.mesh.axes();
    const bool needed = std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) {
        return axis.size > 1 && !settings.axis_transport.count(axis.name);
    });
    if (!needed || run.where("transport").file != "default") return;
    const auto serves_device = [&](const std::string& name) {
        const TransportFacts facts = loader.facts("transport", name, device).of_transport();
        return std::ranges::count(facts.devices, settings.memory()) > 0;
    };
    if (serves_device(settings.transport)) return;
    std::vector<std::string> found;
    std::string reasons;
    const std::vector<std::string> transports = names_of("transport", loader.names());
    for (const std::string& name : transports) {
        try {
            if (serves_device(name)) found.push_back(name);
        } catch (const Error& problem) {
            reasons += fmt::format("\n  {}: {}", name, problem.what());
        }
    }
    if (found.size() > 1)  // drops transports that cannot be opened
        std::erase_if(found, [&](const std::string& name) {
            try {
                loader.load("transport", name, registry, device);
                return false;
            } catch (const Error& problem) {
                reasons += fmt::format("\n  {}: {}", name, problem.what());
                return true;
            }
        });
    if (found.size() > 1)
        throw Error(device, fmt::format("the transports {} all support device \"{}\"\n  choose one in run.transport",
                                        fmt::join(found, ", "), settings.device));
    if (found.empty() && !reasons.empty())
        throw Error(
            device,
            fmt::format("no usable transport supports the memory of device \"{}\"; set run.transport to one that "
                        "stages through host memory (gloo, ucx), or fix a transport that cannot be used:{}",
                        settings.device, reasons));
    if (found.empty()) return;  // the default transport is refused later, with the reason
    settings.transport = found.front();
    run.set("transport", {settings.transport, {"", "default of device " + settings.device, 0, 0}, true});
}

void ScriptRunner::load_transports() {
    for (const Axis& axis : settings.mesh.axes())
        if (axis.size > 1)
            loader.load("transport", settings.transport_of(axis.name), registry,
                        transport_origin(settings, config_, axis.name));
    contracts = contracts_of(settings, config_, registry);
    for (const auto& [axis, name] : settings.collectives) {
        const auto of_mesh = settings.mesh.find(axis);
        const int64_t members = of_mesh ? settings.mesh.size(*of_mesh) : 1;
        if (members > 1) collectives.push_back({axis, members, name, config_.table("collectives").where(axis)});
    }
}

std::unique_ptr<Strategy> ScriptRunner::make_strategy(std::string_view name, Config& options, const Origin& asked) {
    loader.load("strategy", name, registry, asked);
    return registry.strategy(name, asked)(options, asked);
}

void ScriptRunner::watch_calls(std::chrono::milliseconds bound, const std::string& setting) {
    watch_.reset();
    if (bound > std::chrono::milliseconds(0))
        watch_.emplace(loader.calls(), bound, setting, [this](const std::string& text) { give_up(text); });
}

std::unique_ptr<DataSource> ScriptRunner::make_data(std::string_view name, Config& options, const Origin& asked) {
    loader.load("data", name, registry, asked);
    if (!watch_ && settings.timeout_given) watch_calls(settings.timeout, "run.timeout_s");
    auto source = registry.data(name, asked)(options, asked);
    if (tokenizer && source->byte_ids() && source->complete())
        throw Error(
            tokenizer->asked,
            fmt::format("{} is a text that is read as bytes, not as tokens of the tokenizer {}\n  write its ids "
                        "with `orrery tokenize {} --tokenizer {} -o NAME`, and set data.path to NAME.bin",
                        source->path(), tokenizer->path, source->path(), tokenizer->path));
    return source;
}

const OpDef& ScriptRunner::use_op(std::string_view name, const Origin& asked) {
    loader.load_op(name, registry, asked);
    return op_def(name, asked);
}

void ScriptRunner::use_collectives(const CollectiveChoice& choice, std::vector<ChunkTable> tables) {
    const TransportContract& contract = contracts.at(choice.axis);
    if (!serves(contract, "cpu"))
        throw Error(choice.asked,
                    fmt::format("collective {} sums in host memory, but transport {} of axis {} has its tensors in {} "
                                "memory\n  use a transport that stages through host memory (gloo, ucx), or leave the "
                                "collectives of the axis to {}",
                                choice.name, settings.transport_of(choice.axis), choice.axis,
                                fmt::join(contract.devices, ", "), settings.transport_of(choice.axis)));
    for (const ChunkTable& table : tables) {
        prove(table);
        prove_progress(table, contract);
        if (table.collective == Opcode::reduce_scatter && contract.needs_arena)
            throw Error(choice.asked,
                        fmt::format("collective {} has a reduce_scatter, whose partial sums are outside the arenas; "
                                    "transport {} of axis {} only sends from arenas\n  use another transport, or only "
                                    "one of its other collectives, for example \"ring.all_reduce\"",
                                    choice.name, settings.transport_of(choice.axis), choice.axis));
    }
    tables_[choice.axis] = std::move(tables);
}

DeviceFacts ScriptRunner::device_facts() const { return loader.facts("device", settings.device, {}).of_device(); }

bool ScriptRunner::leaves_device_to_ranks() const {
    return use_.scratch == ScriptUse::Scratch::by_ranks && settings.mesh.ranks() > 1 && !ranks_are_threads() &&
           !device_facts().leaves_nothing;
}

SnapshotPlace ScriptRunner::snapshot_place() const {
    if (use_.scratch == ScriptUse::Scratch::elsewhere) return SnapshotPlace::host;
    return device_facts().host_memory ? SnapshotPlace::device : SnapshotPlace::host;
}

Host::Options ScriptRunner::declared_options() const {
    Options declared;
    for (const Option& option : options.value_or(std::vector<Option>())) declared[option.key] = option;
    return declared;
}

Device* ScriptRunner::counting() {
    if (!counting_) counting_ = counting_device(job, settings);
    return counting_.get();
}

void ScriptRunner::note(const std::string& text) {
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

std::unique_ptr<Device> ScriptRunner::counting_device(const Job& of, const Settings& on) {
    using enum ScriptUse::Scratch;
    if (use_.scratch == elsewhere) return nullptr;
    const bool looks = use_.scratch == noted || use_.scratch == by_ranks;
    if (const std::string why = looks ? loader.cannot_run("device", on.device) : ""; !why.empty()) {
        if (use_.scratch == by_ranks)  // ranks on this machine cannot run the device either
            throw Error(config_.table("run").where("device"),
                        fmt::format("device {} cannot run on this host: {}", on.device, why));
        note(fmt::format("scratch memory of kernels is not counted: device {} cannot run on this host: {}", on.device,
                         why));
        return nullptr;
    }
    return leaves_device_to_ranks() ? nullptr : make_device(on, config_, registry, of);
}

CompileOptions ScriptRunner::training_options() {
    CompileOptions options = compile_options(settings, job, counting_.get(), contracts, tables_);
    options.look = look;
    const int64_t every = config_.table("checkpoint").integer("every_steps", 0);
    if (settings.async_saves && (every > 0 || settings.auto_saves)) options.snapshot = snapshot_place();
    if (use_.options) use_.options(options);
    return options;
}

void ScriptRunner::begin(Experiment made) {
    refuse_idle_axes(made, config_.table("mesh"));
    counting_ = counting_device(job, settings);
    experiment = std::move(made);
}

void ScriptRunner::refuse_unfit() {
    if (use_.scratch == ScriptUse::Scratch::elsewhere) return;
    if (!counting_) refuse_without_kernels(*compiled_, settings.device);
    if (counting_) refuse_elsewhere(*compiled_, *counting_);
}

void ScriptRunner::compile_whole(Experiment made) {
    begin(std::move(made));
    keep(compile_training(*experiment, training_options()));
    refuse_unfit();
}

void ScriptRunner::compile(Experiment made) {
    if (use_.compile) return use_.compile(*this, std::move(made));
    compile_whole(std::move(made));
}

void ScriptRunner::refuse_elsewhere(const Compiled& made, Device& device) {
    const Op* const op = runs_elsewhere(made, device);
    if (!op) return;
    const std::string what = fmt::format("device {} does not support fp8 matrix products ({} of {})", settings.device,
                                         op->kind, op->scope.empty() ? op->origin.text() : op->scope);
    if (use_.scratch == ScriptUse::Scratch::noted) return note("no run here: " + what);
    Config& train = config_.table("train");
    const bool configured = train.text("precision", "") == "fp8";
    throw Error(
        configured ? train.where("precision") : op->origin,
        fmt::format("precision \"fp8\": {}\n  to run on this device, set train.precision = \"bf16\"; `orrery check` "
                    "still checks the plan, and a simulation predicts it for a cluster that supports fp8",
                    what));
}

void ScriptRunner::compile_evaluation() {
    check_inputs(experiment->train(), *data->source);
    const std::string path = data->source->path();
    std::error_code ignored;
    if (!data->source->complete() || (!path.empty() && !fs::exists(path, ignored))) return;
    const int64_t samples = evaluated_samples(dataset(), training->evaluate_batches, compiled_->sizes.full());
    std::vector<ProgramEntry> missing;
    for (const Calls& calls : evaluation_calls(*compiled_, samples))
        if (!compiled_->find(calls.entry.name)) missing.push_back(calls.entry);
    compiled_->evaluated = samples;
    if (missing.empty()) return;
    counting();
    const CompileOptions options = training_options();
    const int64_t before = compiled_->largest_arenas().both();
    for (const ProgramEntry& entry : missing) try {
            experiment->recipe->later([&] { add_program(*compiled_, *experiment, entry, options); });
        } catch (const Error& error) {
            throw Error(
                fmt::format(
                    "{}\n  in the program {}, for the smaller last batch of {} held-out samples in batches of {}\n"
                    "  take shapes from the batch, or evaluate full batches only (train.evaluate_batches = {})",
                    error.what(), entry.name, samples, compiled_->sizes.full(),
                    std::max<int64_t>(1, samples / compiled_->sizes.full())),
                error.fault());
        }
    if (const int64_t now = compiled_->largest_arenas().both(); now > before)
        print(
            fmt::format("session: at most {} on a rank, with the evaluation of the smaller last batch of held-out data",
                        bytes_text(now)));
}

ScriptRunner::Sampling ScriptRunner::compile_sampling(bool shorter) {
    Sampling sampling{settings, nullptr, {}, {}, {}};
    sampling.settings.mesh = Mesh();
    sampling.device = counting_device(Job{}, sampling.settings);
    CompileOptions options = compile_options(sampling.settings, Job{}, sampling.device.get(), {}, {});
    options.look = look;
    sampling.compiled = orrery::compile_sampling(*experiment, options);
    if (!sampling.device) refuse_without_kernels(sampling.compiled, settings.device);
    if (sampling.device) refuse_elsewhere(sampling.compiled, *sampling.device);
    if (shorter) add_shorter(sampling, options);
    return sampling;
}

void ScriptRunner::add_shorter(Sampling& sampling, const CompileOptions& options) {
    constexpr int64_t least = 64;
    const Program& whole = sampling.compiled.programs.front().plan.program;
    const auto tokens = whole.find("tokens");
    if (!tokens) return;
    const auto places = std::make_shared<Persistent>(sampling.compiled.persistent);
    for (int64_t length = least; length < whole.value(*tokens).type.shape.back(); length *= 2) try {
            const ProgramEntry entry = at_length(experiment->find("logits")->entry, length);
            MarkedProgram made;
            experiment->recipe->later([&] { made = make_program(*experiment, entry); });
            sampling.shorter.push_back({length, [options, places, made = std::move(made)] {
                                            return std::make_shared<const CompiledProgram>(
                                                compile_shorter(made, *places, options));
                                        }});
        } catch (const Error& error) {  // the script depends on a fixed sequence length
            sampling.notes.push_back(
                fmt::format("sampling computes the full sequence length for each token, since the script fails for a "
                            "shorter one: {}",
                            error.what()));
            return;
        }
}

const Compiled& ScriptRunner::compiled() const {
    if (!compiled_) throw Error(command.script + ": the script compiled no program\n  call program:compile() in it");
    return *compiled_;
}

std::set<std::string> ScriptRunner::joined() const {
    return compiled_ ? joined_axes(compiled_->plans()) : std::set<std::string>();
}

std::string ScriptRunner::summary() {
    summarized = true;
    return compiled_ ? orrery::summary(*compiled_) : "";
}

void ScriptRunner::take_down(const DataSpec& asked, const TrainOptions& options) {
    training = options;
    data = asked;
    opened_.reset();
    if (experiment) data->ids = vocabulary_of(experiment->train());
    if (experiment && tokenizer) require_rows(*tokenizer, data->ids);
    if (!compiled_) return;
    const bool copies =  // only a call of the script can ask for asynchronous saves
        options.checkpoint_async && (options.checkpoint_every > 0 || options.checkpoint_mtbf_s > 0);
    if (copies == (compiled_->snapshot != SnapshotPlace::none)) return;
    add_snapshot(*compiled_, copies ? snapshot_place() : SnapshotPlace::none, settings.memory_bytes);
    if (const int64_t bytes = compiled_->largest_snapshot(); bytes > 0)
        print(fmt::format("snapshot of asynchronous saves: at most {} more on a rank", bytes_text(bytes)));
}

void ScriptRunner::train(const DataSpec& asked, const TrainOptions& options) {
    use_.train ? use_.train(*this, asked, options) : take_down(asked, options);
}

std::string ScriptRunner::sample(const SampleOptions& asked) { return use_.sample ? use_.sample(*this, asked) : ""; }

void ScriptRunner::declare_options(const std::vector<Option>& all) {
    options = all;
    if (use_.options_only) throw Error("options shown");
}

const Dataset& ScriptRunner::dataset() {
    if (!opened_) opened_.emplace(*data);
    return *opened_;
}

void ScriptRunner::refuse_unsaved() {
    if (!training || training->checkpoint_final) return;
    if (training->checkpoint_every > 0 && training->steps % training->checkpoint_every == 0) return;
    throw Error(config_.table("checkpoint").where("final"),
                "checkpoint.final = false saves no checkpoint after the last step, but the script samples from it\n"
                "  remove the key, or the script's call of sample");
}

bool ScriptRunner::ranks_are_threads() const {
    return std::any_of(contracts.begin(), contracts.end(), [](const auto& axis) { return axis.second.same_process; });
}

std::string ScriptRunner::folder() const {
    return !settings.folder.empty() ? settings.folder : "runs/" + (compiled_ ? compiled_->name : std::string("orrery"));
}

std::unique_ptr<FolderLock> ScriptRunner::lock_folder(const std::string& name) {
    try {
        return std::make_unique<FolderLock>(folder(), name);
    } catch (const Error& problem) {
        throw Error(config_.table("run").where("folder"), fmt::format("run.folder: {}", problem.what()));
    }
}

std::unique_ptr<CheckpointStore> ScriptRunner::open_store() {
    Config& options = config_.table("store").table(settings.store);
    const Origin asked = config_.table("run").where("store");
    const std::string place = folder() + "/checkpoints";
    auto store = registry.store(settings.store, asked)(options, place);
    options.reject_unused();
    std::error_code ignored;
    if (!store->is_folder() || fs::exists(place, ignored)) return store;
    // Otherwise a run in a folder of copies would begin at step 1.
    if (const std::string copies = how_to_use_copies(folder()); !copies.empty())
        throw Error(config_.table("run").where("folder"),
                    fmt::format("run.folder: {} is not a run's folder: it has no checkpoints/{}", folder(), copies));
    return store;
}

std::string ScriptRunner::of_rank(const std::string& text) const {
    return job.ranks > 1 ? fmt::format("[rank {}] {}", job.rank, text) : text;
}

void ScriptRunner::print(const std::string& line) {
    if (use_.prints && job.rank == 0) std::printf("%s\n", line.c_str());
}

void ScriptRunner::gives(const GivenKey& key) {
    if (use_.ignores && use_.ignores(key)) return;
    if (key.table == "train" && key.key == "microbatches" && !key.read_too) microbatches = key;
    const std::string line = given_.add(config_, key);
    if (!line.empty() && told_.insert(line).second && use_.tells && job.rank == 0)
        std::fprintf(stderr, "%s\n", line.c_str());
}

void ScriptRunner::give_up(const std::string& text) {
    if (use_.give_up) use_.give_up(*this, text);
    end_process(of_rank(text));
}

}  // namespace orrery
