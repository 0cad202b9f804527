#include "cli/script_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "cli/run_record/kept_script.h"
#include "config/load.h"
#include "ir/op.h"
#include "lua/script.h"
#include "plan/access.h"
#include "run/data/input_feed.h"
#include "run/session.h"
#include "run/train/evaluation.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// As defaults are, so that a call that gives one of them is not refused for what was not asked.
void lay_over(Config& config, const std::vector<std::string>& own_sets) {
    const Config own = load_config("", own_sets);
    for (const auto& [name, value] : own.items())
        for (const auto& [key, set] : std::get<std::shared_ptr<Config>>(value.data)->items())
            if (source_of(set.origin) == Source::set)
                config.table(name).set(key, {set.data, {"", "default of this command", 0, 0}, false, set.per_host});
}

/// `script`: the Lua file of the command.
Config configured(const ScriptCommand& command, std::string& script) {
    std::vector<std::string> sets = command.sets;
    // A run's folder stands for its script and configuration.
    if (fs::is_directory(command.script)) {
        const fs::path folder = command.script;
        const fs::path saved = folder / "config.toml";
        if (!fs::exists(saved))
            throw Error(
                fmt::format("{} is no run's folder: it has no config.toml\n  name a script, or a folder that "
                            "orrery run has made",
                            folder.string()));
        sets.insert(sets.begin(), fmt::format("run.folder=\"{}\"", folder.string()));
        Config config = load_run_config(saved.string(), sets);
        script = config.table("run").require_text("script");
        if (!fs::exists(script))
            throw Error(fmt::format(
                "{} is a run of {}, which is not there, seen from {}\n  start where the run was "
                "started, or name the script: --set run.script={} is its copy",
                folder.string(), script, fs::current_path().string(), kept_script_of(folder.string(), config)));
        return config;
    }
    script = command.script;
    if (!fs::exists(script))
        throw Error(fmt::format("no script {}\n  name a Lua file, seen from {}, or the folder of a run", script,
                                fs::current_path().string()));
    sets.push_back(fmt::format("run.script=\"{}\"", script));
    return load_config(command.config, sets);
}

Config read_config(const ScriptCommand& command, std::string& script) {
    Config config = configured(command, script);
    lay_over(config, command.own_sets);
    return config;
}

}  // namespace

Config config_of(const ScriptCommand& command) {
    std::string script;
    return read_config(command, script);
}

ScriptRunner::ScriptRunner(const ScriptCommand& command, const Job& job)
    : command_(command),
      job_(job),
      config_(read_config(command, script_)),
      settings_(read_settings(config_)),
      tokenizer_(choose_tokenizer(config_)),
      loader_(and_plugin_folders(config_.table("plugins").texts("path"))) {}

void ScriptRunner::run_script() {
    prepare();
    orrery::run_script(script_, *this);
}

void ScriptRunner::prepare() {
    load_plugins();
    choose_transport();
    load_transports();
}

void ScriptRunner::load_plugins() {
    check_backends(config_, loader_.names());
    Config& run = config_.table("run");
    loader_.load("device", settings_.device, registry_, run.where("device"));
    const DeviceFacts facts = device_facts();
    settings_.device_memory = facts.memory;
    if (!settings_.collectives.empty() && !facts.host_memory)
        throw Error(config_.table("collectives").origin(),
                    fmt::format("[collectives] moves host memory; device \"{}\" has its own\n"
                                "  remove the table or run on device = \"cpu\"",
                                settings_.device));
    loader_.load("store", settings_.store, registry_, run.where("store"));
    if (settings_.mesh.ranks() > 1)
        loader_.load("rendezvous", settings_.rendezvous, registry_, run.where("rendezvous"));
}

void ScriptRunner::choose_transport() {
    Config& run = config_.table("run");
    const Origin device = run.where("device");
    const auto& axes = settings_.mesh.axes();
    const bool needed = std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) {
        return axis.size > 1 && !settings_.axis_transport.count(axis.name);
    });
    if (!needed || run.where("transport").file != "default") return;
    const auto serves_device = [&](const std::string& name) {
        const TransportFacts facts = loader_.facts("transport", name, device).of_transport();
        return std::ranges::count(facts.devices, settings_.memory()) > 0;
    };
    if (serves_device(settings_.transport)) return;
    std::vector<std::string> found;
    std::string reasons;
    const std::vector<std::string> transports = names_of("transport", loader_.names());
    for (const std::string& name : transports) {
        try {
            if (serves_device(name)) found.push_back(name);
        } catch (const Error& problem) {
            reasons += fmt::format("\n  {}: {}", name, problem.what());
        }
    }
    if (found.size() > 1)  // one that cannot be opened is no choice
        std::erase_if(found, [&](const std::string& name) {
            try {
                loader_.load("transport", name, registry_, device);
                return false;
            } catch (const Error& problem) {
                reasons += fmt::format("\n  {}: {}", name, problem.what());
                return true;
            }
        });
    if (found.size() > 1)
        throw Error(device, fmt::format("the transports {} serve device \"{}\"\n  name one of them: run.transport",
                                        fmt::join(found, ", "), settings_.device));
    if (found.empty() && !reasons.empty())
        throw Error(device,
                    fmt::format("no transport serves the memory of device \"{}\"; name one that stages it (gloo, "
                                "ucx) in run.transport, or mend what cannot be used:{}",
                                settings_.device, reasons));
    if (found.empty()) return;  // the default one is refused with the reason
    settings_.transport = found.front();
    run.set("transport", {settings_.transport, {"", "default of device " + settings_.device, 0, 0}, true});
}

void ScriptRunner::load_transports() {
    for (const Axis& axis : settings_.mesh.axes())
        if (axis.size > 1)
            loader_.load("transport", settings_.transport_of(axis.name), registry_,
                         transport_origin(settings_, config_, axis.name));
    contracts_ = contracts_of(settings_, config_, registry_);
}

std::unique_ptr<Strategy> ScriptRunner::make_strategy(std::string_view name, Config& options, const Origin& asked) {
    loader_.load("strategy", name, registry_, asked);
    return registry_.strategy(name, asked)(options, asked);
}

std::chrono::milliseconds ScriptRunner::call_bound() const {
    return settings_.timeout_given ? settings_.timeout : std::chrono::milliseconds(0);
}

void ScriptRunner::watch_calls(std::chrono::milliseconds bound, const std::string& setting) {
    watch_.reset();
    if (bound > std::chrono::milliseconds(0))
        watch_.emplace(loader_.calls(), bound, setting, [this](const std::string& text) { give_up(text); });
}

std::unique_ptr<DataSource> ScriptRunner::make_data(std::string_view name, Config& options, const Origin& asked) {
    loader_.load("data", name, registry_, asked);
    if (!watch_) watch_calls(call_bound(), "run.timeout_s");
    auto source = registry_.data(name, asked)(options, asked);
    if (tokenizer_ && source->byte_ids() && source->complete())
        throw Error(tokenizer_->asked,
                    fmt::format("the tokens of {} are bytes, those of the tokenizer {} are not\n  write its ids with "
                                "`orrery tokenize {} --tokenizer {} -o NAME`, and set data.path to NAME.bin",
                                source->path(), tokenizer_->path, source->path(), tokenizer_->path));
    return source;
}

const OpDef& ScriptRunner::use_op(std::string_view name, const Origin& asked) {
    loader_.load_op(name, registry_, asked);
    return op_def(name, asked);
}

std::vector<CollectiveChoice> ScriptRunner::collectives() {
    std::vector<CollectiveChoice> choices;
    for (const auto& [axis, name] : settings_.collectives) {
        const auto of_mesh = settings_.mesh.find(axis);
        const int64_t members = of_mesh ? settings_.mesh.size(*of_mesh) : 1;
        if (members > 1) choices.push_back({axis, members, name, config_.table("collectives").where(axis)});
    }
    return choices;
}

void ScriptRunner::use_collectives(const CollectiveChoice& choice, std::vector<ChunkTable> tables) {
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
        if (table.collective == Opcode::reduce_scatter && contract.needs_arena)
            throw Error(choice.asked,
                        fmt::format("collective {} has a reduce_scatter, whose sums on their way lie outside of the "
                                    "arenas; transport {} of axis {} sends from arenas only\n  take a transport "
                                    "that does not, or one of its others, as in \"ring.all_reduce\"",
                                    choice.name, settings_.transport_of(choice.axis), choice.axis));
    }
    collectives_[choice.axis] = std::move(tables);
}

DeviceFacts ScriptRunner::device_facts() const { return loader_.facts("device", settings_.device, {}).of_device(); }

SnapshotPlace ScriptRunner::snapshot_place() const {
    return device_facts().host_memory ? SnapshotPlace::device : SnapshotPlace::host;
}

std::unique_ptr<Device> ScriptRunner::counting_device(const Job& job, const Settings& settings) {
    return make_device(settings, config_, registry_, job);
}

std::unique_ptr<Device> ScriptRunner::device_or_note(const Job& job, const Settings& settings) {
    const std::string why = loader_.cannot_run("device", settings.device);
    if (why.empty()) return make_device(settings, config_, registry_, job);
    const std::string note =
        fmt::format("not counted: scratch of kernels, as device {} cannot run here: {}", settings.device, why);
    if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
    return nullptr;
}

CompileOptions ScriptRunner::training_options(Device* device) {
    CompileOptions options = compile_options(settings_, job_, device, contracts_, collectives_);
    options.look = look();
    const int64_t every = config_.table("checkpoint").integer("every_steps", 0);
    if (settings_.async_saves && (every > 0 || settings_.auto_saves)) options.snapshot = snapshot_place();
    return options;
}

void ScriptRunner::compile(Experiment experiment) {
    refuse_idle_axes(experiment, config_.table("mesh"));
    counting_ = counting_device(job_, settings_);
    experiment_ = std::move(experiment);
    compiled_ = compile_training(*experiment_, training_options(counting_.get()));
    if (!counting_) refuse_without_kernels(*compiled_, settings_.device);
    if (counting_) refuse_elsewhere(*compiled_, *counting_);
}

void ScriptRunner::refuse_elsewhere(const Compiled& compiled, Device& device) {
    const Op* const op = runs_elsewhere(compiled, device);
    if (!op) return;
    const std::string what = fmt::format("device {} has no products of 8-bit floats ({} of {})", settings_.device,
                                         op->kind, op->scope.empty() ? op->origin.text() : op->scope);
    if (looks_only()) {
        const std::string note = "no run here: " + what;
        if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
        return;
    }
    Config& train = config_.table("train");
    const bool configured = train.text("precision", "f32") == "fp8";
    throw Error(configured ? train.where("precision") : op->origin,
                fmt::format("precision \"fp8\": {}\n  `orrery check` compiles and proves the plan, and a simulation "
                            "predicts it for a cluster that has them; to run it here: train.precision = \"bf16\"",
                            what));
}

void ScriptRunner::compile_evaluation() {
    check_inputs(experiment_->train(), *data_->source);
    const std::string path = data_->source->path();
    std::error_code ignored;
    if (!data_->source->complete() || (!path.empty() && !fs::exists(path, ignored))) return;
    const int64_t samples = evaluated_samples(dataset(), training_->evaluate_batches, compiled_->sizes.full());
    std::vector<ProgramEntry> missing;
    for (const Calls& calls : evaluation_calls(*compiled_, samples))
        if (!compiled_->find(calls.entry.name)) missing.push_back(calls.entry);
    compiled_->evaluated = samples;
    if (missing.empty()) return;
    if (!counting_) counting_ = counting_device(job_, settings_);
    const CompileOptions options = training_options(counting_.get());
    const int64_t before = compiled_->largest_arenas().both();
    for (const ProgramEntry& entry : missing) try {
            experiment_->recipe->later([&] { add_program(*compiled_, *experiment_, entry, options); });
        } catch (const Error& error) {
            throw Error(
                fmt::format("{}\n  in the program {}, for what {} held-out samples leave of batches of {}\n  let "
                            "shapes come from the batch, or evaluate full batches alone (train.evaluate_batches "
                            "= {})",
                            error.what(), entry.name, samples, compiled_->sizes.full(),
                            std::max<int64_t>(1, samples / compiled_->sizes.full())),
                error.fault());
        }
    if (const int64_t now = compiled_->largest_arenas().both(); now > before)
        print(fmt::format("session: {} on a rank at most, with what evaluates the rest of the held-out data",
                          bytes_text(now)));
}

ScriptRunner::Sampling ScriptRunner::compile_sampling(bool shorter) {
    Sampling sampling{settings_, nullptr, {}, {}, {}};
    sampling.settings.mesh = Mesh();
    sampling.device = counting_device(Job{}, sampling.settings);
    CompileOptions options = compile_options(sampling.settings, Job{}, sampling.device.get(), {}, {});
    options.look = look();
    sampling.compiled = orrery::compile_sampling(*experiment_, options);
    if (!sampling.device) refuse_without_kernels(sampling.compiled, settings_.device);
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
            const ProgramEntry entry = at_length(experiment_->find("logits")->entry, length);
            MarkedProgram made;
            experiment_->recipe->later([&] { made = make_program(*experiment_, entry); });
            sampling.shorter.push_back({length, [options, places, made = std::move(made)] {
                                            return std::make_shared<const CompiledProgram>(
                                                compile_shorter(made, *places, options));
                                        }});
        } catch (const Error& error) {  // the script has the length of a sequence in it
            sampling.notes.push_back(
                fmt::format("the whole window is computed for each token, as the script records no "
                            "shorter one: {}",
                            error.what()));
            return;
        }
}

const Compiled& ScriptRunner::compiled() const {
    if (!compiled_) throw Error(command_.script + ": the script compiled no program\n  call program:compile() in it");
    return *compiled_;
}

std::set<std::string> ScriptRunner::joined() const {
    return compiled_ ? joined_axes(compiled_->plans()) : std::set<std::string>();
}

std::string ScriptRunner::summary() { return compiled_ ? orrery::summary(*compiled_) : ""; }

void ScriptRunner::train(const DataSpec& data, const TrainOptions& options) {
    training_ = options;
    data_ = data;
    opened_.reset();
    if (experiment_) data_->ids = vocabulary_of(experiment_->train());
    if (experiment_ && tokenizer_) require_rows(*tokenizer_, data_->ids);
    if (!compiled_) return;
    const bool copies =  // the script may have said so in its call alone
        options.checkpoint_async && (options.checkpoint_every > 0 || options.checkpoint_mtbf_s > 0);
    if (copies == (compiled_->snapshot != SnapshotPlace::none)) return;
    add_snapshot(*compiled_, copies ? snapshot_place() : SnapshotPlace::none, settings_.memory_bytes);
    if (const int64_t bytes = compiled_->largest_snapshot(); bytes > 0)
        print(fmt::format("snapshot of saves beside the steps: {} more on a rank at most", bytes_text(bytes)));
}

const Dataset& ScriptRunner::dataset() {
    if (!opened_) opened_.emplace(*data_);
    return *opened_;
}

void ScriptRunner::refuse_unsaved() {
    if (!training_ || training_->checkpoint_final) return;
    if (training_->checkpoint_every > 0 && training_->steps % training_->checkpoint_every == 0) return;
    throw Error(config_.table("checkpoint").where("final"),
                "checkpoint.final = false leaves no checkpoint of the end, and the script samples from it\n"
                "  remove the key, or the call of sample");
}

bool ScriptRunner::ranks_are_threads() const {
    return std::any_of(contracts_.begin(), contracts_.end(), [](const auto& axis) { return axis.second.same_process; });
}

std::string ScriptRunner::folder() const {
    return !settings_.folder.empty() ? settings_.folder
                                     : "runs/" + (compiled_ ? compiled_->name : std::string("orrery"));
}

std::unique_ptr<FolderLock> ScriptRunner::lock_folder(const std::string& name) {
    try {
        return std::make_unique<FolderLock>(folder(), name);
    } catch (const Error& problem) {
        throw Error(config_.table("run").where("folder"), fmt::format("run.folder: {}", problem.what()));
    }
}

std::unique_ptr<CheckpointStore> ScriptRunner::open_store() {
    Config& options = config_.table("store").table(settings_.store);
    const Origin asked = config_.table("run").where("store");
    auto store = registry_.store(settings_.store, asked)(options, folder() + "/checkpoints");
    options.reject_unused();
    return store;
}

std::string ScriptRunner::of_rank(const std::string& text) const {
    return job_.ranks > 1 ? fmt::format("[rank {}] {}", job_.rank, text) : text;
}

void ScriptRunner::print(const std::string& line) {
    if (job_.rank == 0) std::printf("%s\n", line.c_str());
}

void ScriptRunner::gives(const GivenKey& key) {
    const std::string line = given_.add(config_, key);
    if (!line.empty() && speaks() && told_.insert(line).second) std::fprintf(stderr, "%s\n", line.c_str());
}

void ScriptRunner::give_up(const std::string& text) { end_process(of_rank(text)); }

}  // namespace orrery
