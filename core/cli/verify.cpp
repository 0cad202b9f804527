#include <fmt/format.h>

#include <cstdio>
#include <list>
#include <mutex>

#include "base/text.h"
#include "cli/script_runner.h"
#include "compile/one_island.h"
#include "plan/repeat.h"
#include "run/verify/inject.h"
#include "run/verify/oracle_inputs.h"
#include "run/verify/source_check.h"
#include "run/verify/verify.h"

namespace orrery {
namespace {

constexpr const char* threads = "threads";
constexpr int64_t some_samples = 2;  // number of samples that are read both whole and in parts, to compare

/// Checks the data source and returns the number of blocks read. Must run before other readers, since a source that
/// writes past a block would corrupt their memory.
int64_t check_source(const Dataset& data, const Plan& plan, const std::map<std::string, IdRange>& ids, int64_t steps) {
    SourceCheck check(data);
    check.cuts(Split::train, some_samples);
    if (data.spec().held_out) check.cuts(Split::validation, some_samples);
    for (int64_t step = 1; step <= steps; ++step) check.ranks(plan, ids, step);
    return check.blocks();
}

/// Checks each part of a mixture by itself first, so that an error in a part is not reported as the mixture's.
int64_t check_parts(const DataSpec& whole) {
    int64_t blocks = 0;
    for (const DataSpec::Part& part : whole.parts) {
        DataSpec alone = whole;
        alone.source = part.source;
        alone.plugin = part.plugin;
        alone.held_out = nullptr;
        alone.validation = 0;
        const Dataset data(alone);
        SourceCheck check(data);
        check.cuts(Split::train, some_samples);
        blocks += check.blocks();
    }
    return blocks;
}

/// Verifies that the plans of the round, by index of their names, compute what one device computes. `checked`: number
/// of data blocks that were read twice.
std::map<size_t, VerifyReport> verify_plans(ScriptRunner& script, const std::map<size_t, Plan>& plans,
                                            const Round& round, const VerifyOptions& options, int64_t& checked) {
    std::mutex one_at_a_time;  // guards the configuration, which plugins read
    const auto device = [&] {
        const std::lock_guard lock(one_at_a_time);
        return make_device(script.settings, script.config(), script.registry, script.job);
    };
    const auto transport = [&] {
        const std::lock_guard lock(one_at_a_time);
        const Origin asked = script.config().table("run").where("transport");
        return script.registry.transport(threads, asked)(script.config().table("transport").table(threads));
    };
    const Program& train = script.experiment->train();
    const Compiled& compiled = script.compiled();
    const std::vector<const CompiledProgram*> programs = round_programs(compiled);
    const Plan& first = programs[round.program_of(1)]->plan;
    std::optional<Dataset> data;
    if (script.data) {
        checked = check_parts(*script.data);
        data.emplace(*script.data);
        checked += check_source(*data, first, ids_of(train), options.steps);
    }
    const auto sources_device = device();
    const Islands& islands = compiled.islands;
    std::list<WholeSources> sources;
    for (int64_t island = 0; island < islands.count; ++island)
        sources.emplace_back(*sources_device, script.settings.seed, train, data ? &*data : nullptr,
                             token_order(train, first.mesh), island, islands.count);
    std::map<size_t, VerifyCase> cases;
    for (const auto& [name, plan] : plans) {
        VerifyCase made{script.experiment->find(programs[name]->entry.name)->program,
                        plan,
                        compiled.persistent,
                        device,
                        transport,
                        std::ref(sources.front()),
                        script.settings.timeout,
                        compiled.collectives};
        if (islands.any() && programs[name]->entry.role == ProgramRole::train) {
            for (WholeSources& own : sources) made.islands.emplace_back(std::ref(own));
            made.islands_axis = plan.mesh.find(islands.axis).value_or(none);
        }
        cases.emplace(name, std::move(made));
    }
    return verify(cases, round, options);
}

/// Returns a line with the configured transports, by axis, in whose place verify uses threads; "": none.
std::string not_verified(const std::map<std::string, std::string>& replaced) {
    std::string text;
    for (const auto& [axis, transport] : replaced)
        text += fmt::format("{}{} of axis {}", text.empty() ? "" : ", ", transport, axis);
    if (text.empty()) return text;
    return fmt::format(
        "  not verified: transport {}; verify runs ranks as threads, with a plan for transport threads\n", text);
}

}  // namespace

int verify_command(const ScriptCommand& command) {
    if (command.script_help) return show_options(command, Job{});
    std::map<std::string, std::string> replaced;  // by axis: configured transport in whose place threads are used
    ScriptUse use{.prints = false};
    use.options = [&](CompileOptions& options) {
        for (const auto& [axis, transport] : replaced) options.transports[axis] = transport;
    };
    ScriptRunner script(command, Job{}, std::move(use));
    Settings& settings = script.settings;
    for (const Axis& axis : settings.mesh.axes())
        if (axis.size > 1 && settings.transport_of(axis.name) != threads)
            replaced[axis.name] = settings.transport_of(axis.name);
    settings.transport = threads;
    settings.axis_transport.clear();
    settings.timeout_given = true;  // run.timeout_s also limits calls of data sources
    script.job.local_ranks = settings.mesh.ranks();
    script.load_backends();
    script.load_transports();
    const Origin asked = script.config().table("run").where("transport");
    script.loader.load("transport", threads, script.registry, asked);  // needed even for a mesh of one rank
    script.run();
    const Round round = script.compiled().round.shortened(2);  // each repetition is verified twice
    const Islands& islands = script.compiled().islands;
    std::map<size_t, Plan> plans;
    const std::vector<const CompiledProgram*> programs = round_programs(script.compiled());
    for (size_t name = 0; name < programs.size(); ++name)  // unrolled, since each instruction is judged by itself
        if (programs[name]) {
            Plan plan = unrolled(programs[name]->plan);
            if (islands.any() && programs[name]->entry.role == ProgramRole::train) plan = one_island(plan, islands);
            plans.emplace(name, std::move(plan));
        }
    VerifyOptions options = command.verify;
    if (!round.plain()) options.steps = std::max(options.steps, round.steps() + 1);  // what the last one left, too
    for (const std::string& text : command.injections) options.injections.push_back(parse_injection(text));
    int64_t checked = 0;
    const std::map<size_t, VerifyReport> reports = verify_plans(script, plans, round, options, checked);
    std::printf("%s", not_verified(replaced).c_str());
    if (!round.plain())
        std::printf("round %s, verified as %s: %s\n", script.compiled().round.text().c_str(), round.text().c_str(),
                    plural(options.steps, "step").c_str());
    if (checked > 0)
        std::printf("  plugin %s: %s read twice, each equal to its part of the whole sample\n",
                    script.data->plugin.c_str(), plural(checked, "block").c_str());
    bool passed = true;
    for (const auto& [name, report] : reports) {
        std::printf("%s", report.text(plans.at(name), options).c_str());
        passed &= report.passed();
    }
    return passed ? 0 : 1;
}

}  // namespace orrery
