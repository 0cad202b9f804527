#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "base/text.h"
#include "cli/dump.h"
#include "cli/script_runner.h"
#include "config/load.h"
#include "ir/describe.h"
#include "plan/lint.h"
#include "run/checkpoint/pretrained.h"
#include "run/checkpoint/saved_state.h"
#include "run/data/input_feed.h"
#include "run/export/published_record.h"
#include "run/metrics/recorded_results.h"
#include "run/record/step_trace.h"
#include "run/retention/chosen_step.h"
#include "run/retention/room.h"

namespace orrery {
namespace {

/// "wpe.weight, 6.8 KiB: ", with the size of the whole value.
std::string named(const Program& program, ValueId id) {
    return label_of(program, id) + ", " + bytes_text(program.value(id).type.bytes()) + ": ";
}

/// Lists values that strategies left unchanged, and marks that came after another strategy's.
void list_marks(const Program& program) {
    for (const Remark& note : program.remarks())
        std::printf("left: %s%s (%s)\n", note.value == none ? "" : named(program, note.value).c_str(),
                    note.text.c_str(), note.origin.text().c_str());
    for (const Mark& mark : program.ignored())
        std::printf("not taken: %s %s:%s (%s), an earlier mark stays\n", label_of(program, mark.value).c_str(),
                    mark.axis.c_str(), mark.placement.text().c_str(), mark.origin.text().c_str());
}

/// Messages that could not be joined, each reason once, for the first program that has it.
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

/// Checks the data of a plan for a cluster. The data may be missing on this host; a file that is named must exist and
/// be valid.
void prove_there(ScriptRunner& script) {
    const DataSpec& data = *script.data();
    const std::string path = data.source->path();
    if (!data.source->complete())
        return void(std::printf("no data: the plan is proved for its shapes; training needs data.path\n"));
    std::error_code ignored;
    if (!path.empty() && !std::filesystem::exists(path, ignored))
        throw Error(data.origin,
                    fmt::format("no data file {}, seen from {}\n  set data.path to one; to check a plan where its data "
                                "is not, leave the path out (--set data.path=)",
                                path, std::filesystem::current_path(ignored).string()));
    script.dataset();
}

/// Compiles and proves without starting anything.
struct CheckScript : ScriptRunner {
    std::optional<Dump> dump;
    std::string lowered;  ///< the train step that was compiled last, as lowered
    bool summary_asked = false;

    using ScriptRunner::ScriptRunner;

    PassLook look() override {
        return [this](std::string_view pass, const Program& program, const Mesh* mesh) {
            if (dump) dump->look(pass, program, mesh);
            if (command_.show == "program" && pass == passes().back().name && lowered.empty())
                lowered = program_text(program, mesh);  // the full step is compiled first
        };
    }

    void compile(Experiment experiment) override {
        lowered.clear();
        make_sizes(experiment, sizes_to_make(experiment.recipe->ramp));
        ScriptRunner::compile(std::move(experiment));
        if (dump) dump->plans(compiled());
    }

    void print(const std::string& line) override {
        if (command_.show.empty()) ScriptRunner::print(line);
    }

    std::string summary() override {
        summary_asked = true;
        return ScriptRunner::summary();
    }

    void train(const DataSpec& data, const TrainOptions& options) override {
        ScriptRunner::train(data, options);
        const size_t plans = compiled().programs.size();
        compile_evaluation();
        if (dump) dump->plans(compiled(), plans);
        look_at();
        // throws if the record cannot be stored
        PublishedRecord::of(experiment_->train(), experiment_->recipe->weights);
        if (!settings_.weights.empty())
            check_weights(experiment_->train(), settings_.weights, experiment_->recipe->weights);
    }

    std::string sample(const SampleOptions&) override {
        refuse_unsaved();
        const Compiled sampling = compile_sampling().compiled;
        if (dump) dump->plans(sampling);
        notes_.push_back(fmt::format("sampling: {} on one rank", bytes_text(sampling.largest_arenas().both())));
        return "";
    }

    void prepare() override {
        job_.local_ranks = ranks_per_host(settings_, config_, command_.nodes);
        ScriptRunner::prepare();
        refuse_apart(settings_, config_, contracts_, job_.local_ranks);
        check_tables();
    }

    std::unique_ptr<Device> counting_device(const Job& job, const Settings& settings) override {
        return device_or_note(job, settings);
    }

    bool looks_only() const override { return true; }

    /// Called after the plan is reported; `check` then checks the training's data.
    virtual void look_at() {}
    /// How many smaller steps of a batch ramp are compiled.
    virtual size_t sizes_to_make(const BatchRamp&) const { return std::numeric_limits<size_t>::max(); }
    /// Whether this process makes no device, because the ranks make theirs.
    virtual bool leaves_device_to_ranks() const { return false; }

    /// Makes every backend that the configuration has a table for, since only the plugin knows its keys.
    void check_tables() {
        for (const std::string kind : {"device", "store", "transport", "rendezvous"}) {
            Config& tables = config_.table(kind);
            for (const std::string& name : tables.keys()) {
                const bool is_table = std::holds_alternative<std::shared_ptr<Config>>(tables.find(name)->data);
                if (!is_table || (kind == "transport" && name == "axis")) continue;
                Config& options = tables.table(name);
                try {
                    loader_.load(kind, name, registry_, options.origin());
                } catch (const Error& problem) {
                    // The table may be for another machine's backend; backends of this run were loaded before.
                    notes_.push_back(fmt::format("not looked at: [{}]: {}", options.path(), problem.what()));
                    continue;
                }
                if (const std::string why = loader_.cannot_run(kind, name); !why.empty()) {
                    notes_.push_back(fmt::format("not looked at: [{}]: it cannot run here: {}", options.path(), why));
                    continue;
                }
                const bool keeps = kind == "device" && !loader_.facts(kind, name, {}).of_device().leaves_nothing;
                if (keeps && leaves_device_to_ranks()) continue;
                if (kind == "device") registry_.device(name, options.origin())(options);
                if (kind == "store") registry_.store(name, options.origin())(options, folder() + "/checkpoints");
                if (kind == "transport") registry_.transport(name, options.origin())(options);
                if (kind == "rendezvous") registry_.rendezvous(name, options.origin())(options);
                options.reject_unused();
            }
        }
    }
};

/// Number of steps in a store; a place that cannot be read is a configuration error before anything has started.
int64_t steps_in(CheckpointStore& store, const Origin& where) {
    try {
        return static_cast<int64_t>(store.steps().size());
    } catch (const Error& problem) {
        throw Error(where, fmt::format("{}\n  choose another run.folder", problem.what()));
    }
}

/// The checks before ranks start: bad data is an error, and the script prints nothing.
struct LaunchScript final : CheckScript {
    using CheckScript::CheckScript;

    void print(const std::string&) override {}
    /// Ranks compile all sizes before the first step. If the first size and the increment can be divided among ranks,
    /// so can all.
    size_t sizes_to_make(const BatchRamp& ramp) const override {
        return ramp.start > 0 && ramp.increment % ramp.start == 0 ? 1 : 2;
    }

    bool looks_only() const override { return false; }
    bool speaks() const override { return command_.node_rank == 0; }

    void look_at() override {
        dataset();
        const auto store = open_store();
        check_resume(settings_, config_, *store, command_.fresh);
        Config& checkpoint = config_.table("checkpoint");
        require_every_kept(settings_.keep, *training_, checkpoint.where("keep_every_steps"));
        require_evaluated(settings_.keep, *training_, checkpoint.where("keep_best"));
        if (const int64_t from = command_.from_step; from >= 0 && went_on_before(*store, from).empty()) {
            require_step("--from-step", from, *store);
            require_way("--from-step", from, *store, *training_);
        }
        if (command_.node_rank == 0) {
            const Origin where = config_.table("run").where("folder");
            const auto there = command_.fresh ? 0 : steps_in(*store, where);
            require_room(*store, there, compiled().train().program, *training_, where);
        }
        if (tokenizer_ && !command_.fresh) require_kept(*tokenizer_, folder());
        check_trace(settings_.trace, settings_.trace_step, training_->steps, command_.node_rank == 0);
    }

    std::unique_ptr<Device> counting_device(const Job& job, const Settings& settings) override {
        // nor can the ranks use it
        if (const std::string why = loader_.cannot_run("device", settings.device); !why.empty())
            throw Error(config_.table("run").where("device"),
                        fmt::format("device {} cannot run here: {}", settings.device, why));
        return leaves_device_to_ranks() ? nullptr : ScriptRunner::counting_device(job, settings);
    }

    /// A device such as CUDA may hold resources for the lifetime of a process, so it is not opened here: the ranks
    /// detect problems with it before their first step.
    bool leaves_device_to_ranks() const override {
        return settings_.mesh.ranks() > 1 && !ranks_are_threads() && !device_facts().leaves_nothing;
    }
};

/// Checks a program written by --dump.
int check_dumped(const ScriptCommand& command) {
    constexpr std::string_view plugins = "plugins.path=";
    const bool sets_more =
        !std::ranges::all_of(command.sets, [&](const std::string& set) { return set.starts_with(plugins); });
    if (!command.config.empty() || sets_more || !command.dump.empty() || !command.show.empty())
        throw Error(fmt::format("check {}: a dumped program is checked as it is, without a configuration\n  leave out "
                                "the options but --set {}[\"FOLDER\"], or name the script",
                                command.script, plugins),
                    Fault::usage);
    Config config = load_config("", command.sets);
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    const std::string text = checked_text(command.script, loader);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
}

}  // namespace

std::unique_ptr<ScriptRunner> check_launch(const ScriptCommand& command, const Job& job) {
    auto script = std::make_unique<LaunchScript>(command, job);
    script->run_script();
    return script;
}

int check_command(const ScriptCommand& given) {
    if (given.script_help) return show_options(given, Job{});
    std::error_code ignored;
    if (given.script.ends_with(".ir") && !std::filesystem::is_directory(given.script, ignored))
        return check_dumped(given);
    if (given.rank >= 0 && given.show != "plan")
        throw Error("--rank: only with --print plan, whose class it chooses", Fault::usage);
    ScriptCommand command = given;
    command.nodes = 0;  // as many hosts as needed
    CheckScript script(command, Job{});
    if (!command.dump.empty()) script.dump.emplace(command.dump);
    script.run_script();
    const Compiled& compiled = script.compiled();
    const std::vector<RecordedResult> results = recorded_results(compiled.train().program);
    if (!command.show.empty()) {
        if (script.data() && script.data()->source->complete()) prove_there(script);
        const std::string text = command.show == "plan" ? plan_text(compiled.train(), command.rank) : script.lowered;
        std::fwrite(text.data(), 1, text.size(), stdout);
        return 0;
    }
    if (!script.summary_asked) std::printf("%s\n", script.summary().c_str());
    for (const CompiledProgram& program : compiled.programs) std::printf("program %s\n", declared(program).c_str());
    list_marks(compiled.train().program);
    for (const RecordedResult& result : results)
        if (!result.why_not.empty()) std::printf("%s\n", result.why_not.c_str());
    std::printf("%s", lint_text(redistributions(compiled.train(), wire_bytes_of(compiled))).c_str());
    std::printf("%s", apart_text(apart_in_all(compiled)).c_str());
    if (script.data()) prove_there(script);
    for (const std::string& note : script.notes()) std::printf("%s\n", note.c_str());
    std::printf("checked: the plan is complete and free of deadlock%s\n",
                script.settings().memory_bytes > 0 ? ", and fits in device.memory_gib" : "");
    return 0;
}

}  // namespace orrery
