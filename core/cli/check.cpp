#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>

#include "base/text.h"
#include "cli/dump.h"
#include "cli/host_limits.h"
#include "cli/run_record/changed_settings.h"
#include "cli/script_runner.h"
#include "cli/submit/submit_settings.h"
#include "config/load.h"
#include "ir/describe.h"
#include "layout/token_order.h"
#include "orrery/engine.h"
#include "plan/lint.h"
#include "run/checkpoint/restore/chosen_step.h"
#include "run/checkpoint/restore/pretrained.h"
#include "run/checkpoint/retain/room.h"
#include "run/data/input_feed.h"
#include "run/export/published_record.h"
#include "run/record/step_trace.h"
#include "run/train/round_results.h"

namespace orrery {
namespace {

/// Names a value, with its size on all ranks together, at the start of a message: "wpe.weight, 6.8 KiB: ".
std::string named(const Program& program, ValueId id) {
    return label_of(program, id) + ", " + bytes_text(program.value(id).type.bytes()) + ": ";
}

void list_marks(const Program& program) {
    for (const Remark& note : program.remarks()) {
        const std::string place = note.origin.text();
        std::printf("left: %s%s%s\n", note.value == none ? "" : named(program, note.value).c_str(), note.text.c_str(),
                    place.empty() ? "" : (" (" + place + ")").c_str());
    }
    for (const Mark& mark : program.ignored())
        std::printf("ignored mark: %s %s:%s (%s), an earlier mark has precedence\n",
                    label_of(program, mark.value).c_str(), mark.axis.c_str(), mark.placement.text().c_str(),
                    mark.origin.text().c_str());
}

/// Prints the order of tokens in rows that strategies ask for, and the work of the busiest rank.
void say_order(const Program& program, const Mesh& mesh) {
    const TokenOrder order = token_order(program, mesh);
    if (order.natural()) return;
    int64_t length = 0;
    for (const ValueId id : program.inputs())
        if (const auto seq = program.dim(id, "seq")) length = program.value(id).type.shape[static_cast<size_t>(*seq)];
    std::printf("tokens: in the order %s; in rows of one document %s\n", order.text().c_str(),
                work_text(order, length, {}).c_str());
}

/// Returns why collectives over axes could not be joined: each reason once, for the first program that has it.
std::vector<ApartAxes> apart_in_all(const Compiled& compiled) {
    std::vector<ApartAxes> all;
    for (const Plan* plan : compiled.plans())
        for (ApartAxes& one : axes_apart(plan->program, plan->mesh, compiled.carriers)) {
            const bool told = std::any_of(all.begin(), all.end(), [&](const ApartAxes& other) {
                return one.first == other.first && one.then == other.then && one.first_kind == other.first_kind &&
                       one.then_kind == other.then_kind && one.why == other.why;
            });
            if (plan != &compiled.train()) one.program = plan->program.name;
            if (!told) all.push_back(std::move(one));
        }
    return all;
}

/// Checks a plan's data: no file need be configured, but a configured one must be on this host and valid.
void prove_there(ScriptRunner& script) {
    const DataSpec& data = *script.data;
    const std::string path = data.source->path();
    if (!data.source->complete())
        return void(std::printf("no data: the plan is checked for its shapes only; training needs data.path\n"));
    std::error_code ignored;
    if (!path.empty() && !std::filesystem::exists(path, ignored))
        throw Error(data.origin,
                    fmt::format("data file {} not found from folder {}\n  set data.path to an existing file; to check "
                                "a plan on a host without its data, leave the path out (--set data.path=)",
                                path, std::filesystem::current_path(ignored).string()));
    script.dataset();
}

/// Compiles the train step of the full batch, and those of the first `sizes` smaller batches of a ramp, each with the
/// largest and the smallest capacity.
void compile_sizes(ScriptRunner& script, Experiment experiment, size_t sizes) {
    make_sizes(experiment, sizes, 1);
    script.compile_whole(std::move(experiment));
}

/// Checks what a training needs besides its train step: inputs, programs that evaluate, the model's record for exports.
void check_training(ScriptRunner& script, const DataSpec& data, const TrainOptions& options,
                    const std::function<void()>& look_at) {
    script.take_down(data, options);
    script.compiled();  // throws if nothing was compiled
    script.compile_evaluation();
    look_at();
    const Program& program = script.experiment->train();
    const std::string& weights = script.settings.weights;
    PublishedRecord::of(program, script.experiment->recipe->weights);  // throws if the model cannot be described
    if (weights.empty()) return;
    const auto fresh = check_weights(program, weights, script.experiment->recipe->weights);
    if (!fresh.empty()) std::printf("%s\n", fresh_text(fresh, weights).c_str());
}

/// Creates a backend for every table of the configuration, since only the backend's plugin knows the valid keys.
void check_tables(ScriptRunner& script) {
    for (const std::string kind : {"device", "store", "transport", "rendezvous", "engine"}) {
        Config& tables = script.config().table(kind == "engine" ? "submit" : kind);
        for (const std::string& name : tables.keys()) {
            const bool is_table = std::holds_alternative<std::shared_ptr<Config>>(tables.find(name)->data);
            const bool own = (kind == "transport" && name == "axis") || (kind == "engine" && name == "environment");
            if (!is_table || own) continue;
            Config& options = tables.table(name);
            Registry& registry = script.registry;
            try {
                script.loader.load(kind, name, registry, options.origin());
            } catch (const Error& problem) {
                // The table may be for another machine's backend; backends of this run were loaded before.
                script.notes.push_back(
                    fmt::format("plugin options not checked: [{}]: {}", options.path(), problem.what()));
                continue;
            }
            if (const std::string why = script.loader.cannot_run(kind, name); !why.empty()) {
                script.notes.push_back(fmt::format(
                    "plugin options not checked: [{}]: the plugin cannot run on this host: {}", options.path(), why));
                continue;
            }
            const bool keeps = kind == "device" && !script.loader.facts(kind, name, {}).of_device().leaves_nothing;
            if (keeps && script.leaves_device_to_ranks()) continue;
            if (kind == "device") registry.device(name, options.origin())(options);
            if (kind == "store") registry.store(name, options.origin())(options, script.folder() + "/checkpoints");
            if (kind == "transport") registry.transport(name, options.origin())(options);
            if (kind == "rendezvous") registry.rendezvous(name, options.origin())(options);
            if (kind == "engine") registry.engine(name, options.origin())(options);
            options.reject_unused();
        }
    }
}

void load_checked(ScriptRunner& script, int64_t hosts) {
    script.load_for_hosts(hosts);
    refuse_apart(script.settings, script.config(), script.contracts, script.job.local_ranks);
    check_tables(script);
    read_submit(script.config());  // throws if [submit] is invalid
}

Compiled check_sampling(ScriptRunner& script) {
    script.refuse_unsaved();
    Compiled sampling = script.compile_sampling().compiled;
    script.notes.push_back(fmt::format("sampling: {} on one rank", bytes_text(sampling.largest_arenas().both())));
    return sampling;
}

/// Returns the number of checkpoints in a store. Throws Error at `where` if the store cannot be read.
int64_t steps_in(CheckpointStore& store, const Origin& where) {
    try {
        return static_cast<int64_t>(store.steps().size());
    } catch (const Error& problem) {
        throw Error(where, fmt::format("{}\n  choose another run.folder", problem.what()));
    }
}

void check_places(ScriptRunner& script) {
    const ScriptCommand& command = script.command;
    const Settings& settings = script.settings;
    const TrainOptions& training = *script.training;
    script.dataset();
    const auto store = script.open_store();
    check_resume(settings, script.config(), *store, command.fresh);
    Config& checkpoint = script.config().table("checkpoint");
    require_every_kept(settings.keep, training, checkpoint.where("keep_every_steps"));
    require_evaluated(settings.keep, training, checkpoint.where("keep_best"));
    if (const int64_t from = command.from_step; from >= 0 && went_on_before(script, *store).empty()) {
        require_step("--from-step", from, *store);
        require_way("--from-step", from, *store, training);
    }
    if (command.node_rank == 0) {
        const Origin where = script.config().table("run").where("folder");
        const auto there = command.fresh ? 0 : steps_in(*store, where);
        require_room(*store, there, script.compiled().train().program, training, where);
    }
    if (script.tokenizer && !command.fresh) require_kept(*script.tokenizer, script.folder());
    check_trace(settings.trace, settings.trace_step, training.steps, command.node_rank == 0);
}

int check_dumped(const ScriptCommand& command) {
    constexpr std::string_view plugins = "plugins.path=";
    const bool sets_more =
        !std::ranges::all_of(command.sets, [&](const std::string& set) { return set.starts_with(plugins); });
    if (!command.config.empty() || sets_more || !command.dump.empty() || !command.show.empty())
        throw Error(fmt::format("check {}: a dumped program is checked without a configuration\n  leave out all "
                                "options except --set {}[\"FOLDER\"], or name the script",
                                command.script, plugins),
                    Fault::usage);
    Config config = load_config("", command.sets);
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    const std::string text = checked_text(command.script, loader);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
}

/// Runs and checks a script before its ranks start. `sees`: whether they will see the files of this host.
std::unique_ptr<ScriptRunner> checked_before(const ScriptCommand& command, const Job& job, ScriptUse use, bool sees) {
    use.prints = false;
    use.compile = [](ScriptRunner& script, Experiment experiment) {
        // Not all batch sizes of a ramp are compiled here, since ranks compile them before the first step: if the first
        // size and the increment can be divided among ranks, so can all sizes.
        const BatchRamp& ramp = experiment.recipe->ramp;
        const size_t sizes = ramp.start > 0 && ramp.increment % ramp.start == 0 ? 1 : 2;
        compile_sizes(script, std::move(experiment), sizes);
    };
    use.train = [sees](ScriptRunner& script, const DataSpec& data, const TrainOptions& options) {
        check_training(script, data, options, [&] {
            if (sees) check_places(script);
        });
    };
    use.sample = [](ScriptRunner& script, const SampleOptions&) { return check_sampling(script), ""; };
    auto script = std::make_unique<ScriptRunner>(command, job, std::move(use));
    load_checked(*script, command.nodes);
    script->run();
    return script;
}

}  // namespace

std::unique_ptr<ScriptRunner> check_launch(const ScriptCommand& command, const Job& job) {
    return checked_before(command, job, {.scratch = ScriptUse::Scratch::by_ranks, .tells = command.node_rank == 0},
                          true);
}

std::unique_ptr<ScriptRunner> check_submission(const ScriptCommand& command, bool sees) {
    return checked_before(command, Job{}, {.scratch = ScriptUse::Scratch::noted}, sees);
}

int check_command(const ScriptCommand& command) {
    if (command.script_help) return show_options(command, Job{});
    std::error_code ignored;
    if (command.script.ends_with(".ir") && !std::filesystem::is_directory(command.script, ignored))
        return check_dumped(command);
    if (command.rank >= 0 && command.show != "plan")
        throw Error("--rank is only supported with --print plan, which prints the plan of this rank", Fault::usage);
    std::optional<Dump> dump;
    std::map<std::string, std::string> lowered;  // by name of the program
    ScriptUse use{.scratch = ScriptUse::Scratch::noted, .prints = command.show.empty()};
    use.compile = [&](ScriptRunner& checked, Experiment experiment) {
        lowered.clear();
        compile_sizes(checked, std::move(experiment), std::numeric_limits<size_t>::max());
        if (dump) dump->plans(checked.compiled());
    };
    use.train = [&](ScriptRunner& checked, const DataSpec& data, const TrainOptions& options) {
        const size_t plans = checked.compiled().programs.size();
        check_training(checked, data, options, [&] {
            if (dump) dump->plans(checked.compiled(), plans);
        });
    };
    use.sample = [&](ScriptRunner& checked, const SampleOptions&) {
        const Compiled sampling = check_sampling(checked);
        if (dump) dump->plans(sampling);
        return "";
    };
    ScriptRunner script(command, Job{}, std::move(use));
    script.look = [&](std::string_view pass, const Program& program, const Mesh* mesh) {
        if (dump) dump->look(pass, program, mesh);
        if (command.show == "program" && pass == passes().back().name && !lowered.contains(program.name))
            lowered[program.name] = program_text(program, mesh);  // the full step is compiled before smaller ones
    };
    if (!command.dump.empty()) dump.emplace(command.dump);
    load_checked(script, 0);
    script.run();
    const Compiled& compiled = script.compiled();
    const RoundResults results(compiled);
    if (!command.show.empty()) {
        if (script.data && script.data->source->complete()) prove_there(script);
        const Plan& plan = round_program(compiled, command.program, "--program").plan;
        const std::string text = command.show == "plan" ? plan_text(plan, command.rank) : lowered[plan.program.name];
        std::fwrite(text.data(), 1, text.size(), stdout);
        return 0;
    }
    if (!script.summarized) std::printf("%s\n", script.summary().c_str());
    for (const CompiledProgram& program : compiled.programs) std::printf("program %s\n", declared(program).c_str());
    list_marks(compiled.train().program);
    say_order(compiled.train().program, compiled.train().mesh);
    for (const std::string& line : results.left_out()) std::printf("%s\n", line.c_str());
    std::vector<LayerTraffic> layers;
    std::printf("%s", lint_text(redistributions(compiled.train(), wire_bytes_of(compiled), &layers)).c_str());
    std::printf("%s", layers_text(layers).c_str());
    std::printf("%s", apart_text(apart_in_all(compiled)).c_str());
    if (script.data) prove_there(script);
    for (const std::string& note : script.notes) std::printf("%s\n", note.c_str());
    const bool on_host = script.loader.facts("device", script.settings.device, {}).of_device().host_memory;
    const int64_t needed = on_host ? compiled.largest_arenas().both() * script.job.local_ranks : 0;
    if (const std::string text = host_limits_text(needed); !text.empty()) std::printf("%s\n", text.c_str());
    std::printf("checked: the plan is complete and free of deadlock%s\n",
                script.settings.memory_bytes > 0 ? ", and fits in device.memory_gib" : "");
    return 0;
}

}  // namespace orrery
