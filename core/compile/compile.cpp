#include "compile/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/suggest.h"
#include "base/text.h"
#include "compile/messages.h"
#include "ir/codecs.h"
#include "ir/flops.h"
#include "ir/op.h"
#include "orrery/strategy.h"
#include "plan/check/check.h"
#include "plan/print.h"
#include "plan/summary.h"

namespace orrery {
namespace {

CompiledProgram compile_one(const ProgramEntry& entry, const Program& program, const Mesh& mesh, Persistent& persistent,
                            const CompileOptions& options) {
    CompiledProgram made{entry, plan_of(distribute(program, mesh, options), mesh, persistent, options)};
    if (!options.proved) return made;
    prove(made.plan, options);
    made.snapshots = snapshots_of(made.plan);
    check_snapshots(made.plan, made.snapshots);
    return made;
}

int64_t parameters_of(const Program& program) {
    int64_t count = 0;
    for (ValueId id : program.params()) count += program.value(id).type.count();
    return count;
}

/// The number of token ids per step; 0: no input has sequences of ids.
int64_t tokens_of(const Program& program) {
    for (ValueId id : program.inputs()) {
        const TensorType& type = program.value(id).type;
        if (!is_float(type.dtype) && program.dim(id, "batch") && program.dim(id, "seq")) return type.count();
    }
    return 0;
}

int64_t sequences_of(const Program& program) {
    for (ValueId id : program.inputs())
        if (const auto dim = program.dim(id, "batch")) return program.value(id).type.shape[*dim];
    return 0;
}

/// Whether an op compares logits with more ids than there are samples, so that the count of the loss is of tokens.
bool predicts_ids(const Program& program) {
    return std::ranges::any_of(program.ops, [&](const Op& op) {
        const auto& lookup = op_def(op.kind).looks_up;
        return op.phase == Phase::forward && lookup && lookup->skips && !lookup->rows.output &&
               program.value(op.inputs.at(static_cast<size_t>(lookup->ids))).type.count() > sequences_of(program);
    });
}

/// Names ranks of class `k` in errors: " per rank", or " on pipeline rank 1" if there are several classes.
std::string whose(const Compiled& compiled, size_t k) {
    const auto& classes = compiled.train().classes;
    return classes.size() == 1 ? " per rank" : fmt::format(" on pipeline rank {}", classes[k].stage);
}

bool smaller(const ArenaBytes& a, const ArenaBytes& b) { return a.both() < b.both(); }

size_t largest_class(const std::vector<ArenaBytes>& arenas) {
    return std::max_element(arenas.begin(), arenas.end(), smaller) - arenas.begin();
}

/// The device memory in bytes that a rank of class `k` needs, with the snapshot.
int64_t in_device(const Compiled& compiled, const ArenaBytes& arenas, size_t k) {
    return arenas.both() + (compiled.snapshot == SnapshotPlace::device ? compiled.snapshot_bytes(k) : 0);
}

void judge_memory(const Compiled& compiled, int64_t memory_bytes) {
    const std::vector<ArenaBytes> arenas = compiled.arenas();
    const size_t k = largest_class(arenas);
    const int64_t needs = in_device(compiled, arenas[k], k);
    if (memory_bytes <= 0 || needs <= memory_bytes) return;
    std::string text = fmt::format(
        "out of memory: all programs of the run need {}{}, device.memory_gib is {:.6g}: {} too much\n  {} for params, "
        "states, inputs and results of all programs, {} of scratch for the largest program",
        bytes_text(needs), whose(compiled, k), static_cast<double>(memory_bytes) / (1024.0 * 1024 * 1024),
        bytes_text(needs - memory_bytes), bytes_text(arenas[k].persistent), bytes_text(arenas[k].scratch));
    if (needs > arenas[k].both())
        text += fmt::format(", {} for the snapshot of asynchronous saves (none with checkpoint.async = false)",
                            bytes_text(needs - arenas[k].both()));
    throw MemoryError(text);
}

/// Throws Error if a program uses a param or state on a pipeline stage on which the train step does not hold it: the
/// first stage that reads an array has it, so programs must not differ in that.
void require_same_stages(const Plan& train, const CompiledProgram& other) {
    const Program& program = other.plan.program;
    for (const RankClass& c : other.plan.classes) {
        const std::vector<Operand>& known = train.class_of(c.ranks.front()).places;
        for (const Operand& place : c.places) {
            const Value& value = program.value(place.value);
            if (value.role != Role::param && value.role != Role::state) continue;
            const auto used = [&](const Instruction& i) {
                return std::ranges::any_of(i.operands, [&](const Operand& o) { return o.buffer == place.buffer; });
            };
            const auto same = [&](const Operand& o) { return train.program.value(o.value).name == value.name; };
            if (std::ranges::any_of(known, same) || std::ranges::none_of(c.stream, used)) continue;
            throw Error(value.origin,
                        fmt::format("the program {} reads {} first on pipeline rank {}, the train step on "
                                    "another one\n  read it in the same scopes in training and in "
                                    "evaluation",
                                    other.entry.name, value.name, c.stage));
        }
    }
}

}  // namespace

void refuse_idle_axes(const Experiment& experiment, Config& mesh) {
    std::vector<std::string> named = experiment.axes;
    for (const Mark& mark : experiment.train().marks()) named.push_back(mark.axis);
    named.push_back(experiment.train().pipeline().axis);
    std::erase(named, "");
    std::sort(named.begin(), named.end());
    named.erase(std::unique(named.begin(), named.end()), named.end());
    for (const Axis& axis : experiment.mesh.axes()) {
        if (axis.size == 1 || axis.sequential) continue;
        if (std::binary_search(named.begin(), named.end(), axis.name)) continue;
        throw Error(mesh.where(axis.name),
                    fmt::format("mesh.{0} = {1} splits nothing: no strategy of the script names the axis {0}, and its "
                                "{1} ranks would all do the same work{2}",
                                axis.name, axis.size, choices("axes that it names", axis.name, named)));
    }
}

std::vector<const Plan*> Compiled::plans() const {
    std::vector<const Plan*> all;
    for (const CompiledProgram& program : programs) all.push_back(&program.plan);
    return all;
}

std::vector<const CompiledProgram*> round_programs(const Compiled& compiled) {
    std::vector<const CompiledProgram*> all(compiled.round.names().size(), nullptr);
    for (const CompiledProgram& program : compiled.programs) {
        const ProgramEntry& entry = program.entry;
        const bool step = entry.role == ProgramRole::train;
        if ((!step && entry.role != ProgramRole::update) || is_smaller_step(entry, compiled.sizes.full())) continue;
        all[round_index(compiled.round, entry)] = &program;
    }
    return all;
}

const CompiledProgram& round_program(const Compiled& compiled, std::string_view name, std::string_view flag) {
    if (name.empty()) return compiled.programs.front();
    const std::vector<const CompiledProgram*> programs = round_programs(compiled);
    std::vector<std::string> names;
    for (size_t i = 0; i < programs.size(); ++i) {
        if (!programs[i]) continue;
        names.push_back(compiled.round.names()[i]);
        if (names.back() == name) return *programs[i];
    }
    throw Error(fmt::format("{} {}: the round {} has no such program{}", flag, name, quote(compiled.round.text()),
                            choices("its programs", std::string(name), names)));
}

const CompiledProgram* Compiled::find(std::string_view wanted) const {
    const auto found = std::find_if(programs.begin(), programs.end(),
                                    [&](const auto& program) { return program.entry.name == wanted; });
    return found == programs.end() ? nullptr : &*found;
}

std::vector<const PluginOp*> brought_ops(const Compiled& compiled) {
    std::map<std::string, const PluginOp*> by_plugin;
    for (const Plan* plan : compiled.plans())
        for (const Op& op : plan->program.ops)
            if (const PluginOp* brought = find_plugin_op(op.kind)) by_plugin.emplace(brought->plugin, brought);
    std::vector<const PluginOp*> ops;
    for (const auto& [plugin, op] : by_plugin) ops.push_back(op);
    return ops;
}

/// The plugins of codecs in use by messages of the programs, with their versions.
static std::map<std::string, std::string> brought_codecs(const Compiled& compiled) {
    std::map<std::string, std::string> versions;
    for (const Plan* plan : compiled.plans())
        for (const auto& [option, what] : codec_options)
            for (const std::string& axis : plan->program.axes_with(option)) {
                const Codec& codec = codec_named(plan->program, plan->program.codec(axis, option), {});
                if (!codec.plugin.empty()) versions.emplace(codec.plugin, codec.version);
            }
    return versions;
}

void refuse_without_kernels(const Compiled& compiled, std::string_view device_kind) {
    for (const Plan* plan : compiled.plans())
        for (const Op& op : plan->program.ops)
            if (const PluginOp* brought = find_plugin_op(op.kind)) kernel_maker(*brought, device_kind, op.origin);
}

const Op* runs_elsewhere(const Compiled& compiled, Device& device) {
    for (const Plan* plan : compiled.plans())
        for (const RankClass& c : plan->classes)
            for (const Instruction& i : c.stream)
                if (i.opcode == Opcode::kernel) {
                    const KernelSpec& spec = c.kernels[i.kernel];
                    if (op_def(spec.op).elsewhere && !device.why_not(spec).empty()) return &plan->program.op(i.op);
                }
    return nullptr;
}

std::vector<std::pair<std::string, std::string>> Compiled::agreement() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [axis, contract] : contracts) all.emplace_back("the transport of " + axis, contract.text());
    for (const auto& [axis, tables] : collectives)
        for (const ChunkTable& table : tables)
            all.emplace_back("collective " + table.name + " of " + axis, sha256(table.text()).substr(0, 16));
    for (const PluginOp* op : brought_ops(*this)) all.emplace_back("plugin " + op->plugin, "version " + op->version);
    for (const auto& [plugin, version] : brought_codecs(*this))
        all.emplace_back("plugin " + plugin, "version " + version);
    if (sizes.full() > 0) all.emplace_back("batch", sizes.text());
    if (evaluated > 0) all.emplace_back("held-out samples that are evaluated", std::to_string(evaluated));
    all.emplace_back("recipe", recipe);
    for (const CompiledProgram& program : programs)
        for (auto& [part, value] : fingerprints(program.plan))
            all.emplace_back(fmt::format("{}: {}", program.entry.name, part), value);
    return all;
}

ArenaBytes Compiled::largest_arenas() const {
    const std::vector<ArenaBytes> all = arenas();
    return all[largest_class(all)];
}

int64_t Compiled::snapshot_bytes(size_t rank_class) const {
    const auto& snapshots = programs.front().snapshots;
    return snapshot == SnapshotPlace::none || snapshots.empty() ? 0 : snapshots[rank_class].bytes;
}

int64_t Compiled::largest_snapshot() const { return snapshot_bytes(largest_class(arenas())); }

void add_snapshot(Compiled& compiled, SnapshotPlace place, int64_t memory_bytes) {
    compiled.snapshot = place;
    judge_memory(compiled, memory_bytes);
}

CompiledProgram compile_program(const Experiment& experiment, const MarkedProgram& made, Persistent& places,
                                const CompileOptions& given) {
    CompileOptions options = given;
    options.redistribution = experiment.recipe->redistribution;
    const Islands& islands = experiment.recipe->islands;  // which vote where they meet
    options.status_word = made.entry.role == (islands.any() ? ProgramRole::update : ProgramRole::train) &&
                          !sends(made.program);  // which waits for no other island
    if (experiment.schedule) options.schedule = &*experiment.schedule;
    try {
        CompiledProgram program = compile_one(made.entry, made.program, made.mesh, places, options);
        if (islands.any() && made.entry.role == ProgramRole::train) give_slices(program.plan, islands);
        if (islands.any() && made.entry.role == ProgramRole::update) check_opening(program.plan, islands);
        return program;
    } catch (const Error& error) {
        if (!is_smaller_step(made.entry, experiment.recipe->batch)) throw;
        std::string text = error.what();
        if (made.entry.batch < experiment.recipe->batch)
            text += fmt::format(
                "\n  in the step of {} tokens, a size of the batch ramp (train.ramp_start, train.ramp_increment)",
                tokens_of(made.program));
        if (made.entry.capacity > 0) text += fmt::format("\n  in the step with capacity {:g}", made.entry.capacity);
        if (dynamic_cast<const MemoryError*>(&error)) throw MemoryError(text, error.fault());
        throw Error(text, error.fault());
    }
}

namespace {

Compiled of_experiment(const Experiment& experiment, const CompileOptions& options) {
    Compiled compiled;
    compiled.name = experiment.recipe->name;
    compiled.contracts = options.contracts;
    compiled.collectives = options.collectives;
    compiled.carriers = carriers_of(options);
    compiled.mesh = experiment.mesh;
    compiled.recipe = experiment.recipe->digest();
    const int64_t islands = experiment.recipe->islands.count;
    compiled.parameters = parameters_of(experiment.train());
    compiled.tokens_per_step = tokens_of(experiment.train()) * islands;
    compiled.nats = predicts_ids(experiment.train());
    compiled.flops_per_step = model_flops(experiment.train()) * static_cast<double>(islands);
    compiled.full_flops_per_step = model_flops(experiment.train(), MaskedPairs::counted) * static_cast<double>(islands);
    compiled.ramp = experiment.recipe->ramp;
    compiled.round = experiment.recipe->round;
    compiled.loss_scale = experiment.recipe->loss_scale;
    compiled.islands = experiment.recipe->islands;
    compiled.sizes = BatchSizes(sequences_of(experiment.train()) * islands, compiled.ramp);
    compiled.capacities = experiment.recipe->capacities;
    compiled.snapshot = options.snapshot;
    return compiled;
}

Compiled compile_programs(const Experiment& experiment, const CompileOptions& options) {
    Compiled compiled = of_experiment(experiment, options);
    for (const MarkedProgram& made : experiment.programs)
        if (made.entry.role != ProgramRole::logits) {
            compiled.programs.push_back(compile_program(experiment, made, compiled.persistent, options));
            require_same_stages(compiled.train(), compiled.programs.back());
            narrow(compiled.ids, ids_of(made.program));
        }
    judge_memory(compiled, options.memory_bytes);
    return compiled;
}

/// Finds the largest prefetch depth that fits in memory, as a sentence for the error message. Compiles several times.
std::string what_fits(const Experiment& experiment, CompileOptions options) {
    options.look = {};
    const int64_t memory = std::exchange(options.memory_bytes, 0);
    PrefetchDepth asked;
    const Compiled unjudged = compile_programs(experiment, options);
    for (const PrefetchDepth& ahead : unjudged.train().ahead)
        asked = {std::max(asked.layers, ahead.layers), std::max(asked.bytes, ahead.bytes)};
    if (asked.none()) return "";
    asked.layers = std::min<int64_t>(asked.layers, static_cast<int64_t>(2 * layers(experiment.train()).size()));
    options.memory_bytes = memory;
    const auto fits = [&](PrefetchDepth most) {
        options.prefetch_at_most = most;
        try {
            compile_programs(experiment, options);
            return true;
        } catch (const Error&) {
            return false;
        }
    };
    const bool by_layers = asked.bytes == 0;
    const std::string now = fmt::format("\n  gathers run {} ahead; ", asked.text());
    if (!fits({0, 0})) return now + "without that it does not fit either";
    const int64_t unit = by_layers ? 1 : 1 << 20;
    int64_t least = 0, most = (by_layers ? asked.layers : asked.bytes) / unit;  // least: fits in memory; most: does not
    while (most - least > 1) {
        const int64_t middle = least + (most - least) / 2;
        (fits(by_layers ? PrefetchDepth{middle, 0} : PrefetchDepth{0, middle * unit}) ? least : most) = middle;
    }
    if (least == 0) return now + "it fits without that alone: prefetch = 0";
    return now + fmt::format("at most {} fits: {} = {}",
                             by_layers ? PrefetchDepth{least, 0}.text() : fmt::format("{} MiB", least),
                             by_layers ? "prefetch" : "prefetch_mib", least);
}

}  // namespace

Compiled compile_training(const Experiment& experiment, const CompileOptions& options) {
    try {
        return compile_programs(experiment, options);
    } catch (const MemoryError& error) {
        throw MemoryError(error.what() + what_fits(experiment, options), error.fault());
    }
}

Compiled compile_alone(const Experiment& experiment, const std::vector<MarkedProgram>& programs,
                       const CompileOptions& options) {
    Compiled compiled = of_experiment(experiment, options);
    for (const MarkedProgram& made : programs) {
        compiled.programs.push_back(compile_program(experiment, made, compiled.persistent, options));
        narrow(compiled.ids, ids_of(made.program));
    }
    judge_memory(compiled, options.memory_bytes);
    return compiled;
}

Compiled compile_sampling(const Experiment& experiment, const CompileOptions& options) {
    const MarkedProgram* logits = experiment.find("logits");
    if (!logits)
        throw Error(
            fmt::format("experiment \"{}\" has no logits program to sample from\n"
                        "  give the model a function logits(tokens)",
                        experiment.recipe->name));
    Compiled compiled;
    compiled.name = experiment.recipe->name;
    compiled.contracts = options.contracts;
    compiled.islands = experiment.recipe->islands;
    // Of islands the program reads states, the outer params.
    compiled.parameters = parameters_of(compiled.islands.any() ? experiment.train() : logits->program);
    compiled.programs.push_back(
        compile_one(logits->entry, logits->program, compiled.mesh, compiled.persistent, options));
    judge_memory(compiled, options.memory_bytes);
    return compiled;
}

CompiledProgram compile_shorter(const MarkedProgram& made, Persistent& places, const CompileOptions& options) {
    return compile_one(made.entry, made.program, Mesh(), places, options);
}

bool is_smaller_step(const ProgramEntry& entry, int64_t full) {
    return entry.role == ProgramRole::train && (entry.batch < full || entry.capacity > 0);
}

void add_program(Compiled& compiled, const Experiment& experiment, const ProgramEntry& entry,
                 const CompileOptions& options) {
    if (compiled.find(entry.name)) return;
    compiled.programs.push_back(
        compile_program(experiment, make_program(experiment, entry), compiled.persistent, options));
    judge_memory(compiled, options.memory_bytes);
}

std::vector<Calls> evaluation_calls(const Compiled& compiled, int64_t samples) {
    std::vector<Calls> all;
    for (const CompiledProgram& program : compiled.programs) {
        if (program.entry.role != ProgramRole::evaluate || program.entry.batch != compiled.sizes.full()) continue;
        const Plan& plan = program.plan;
        int64_t ways = 1;
        for (const ValueId id : plan.program.inputs()) {
            const Value& input = plan.program.value(id);
            if (filler_of(input) != Filler::data || input.type.shape.empty()) continue;
            const int64_t local = input.layout.local_shape(input.type.shape, plan.mesh)[0];
            ways = std::max(ways, input.type.shape[0] / plan.mesh.microbatches() / local);
        }
        for (Calls& calls : calls_for(program.entry, samples, plan.mesh.microbatches(), ways))
            all.push_back(std::move(calls));
    }
    return all;
}

namespace {

/// The memory that each capacity needs, "capacity: 1 (2 MiB of scratch), 2 (3 MiB)"; "" without capacities.
std::string capacities_text(const Compiled& compiled) {
    std::vector<std::string> parts;
    for (const double capacity : compiled.capacities)
        for (const CompiledProgram& program : compiled.programs) {
            const bool largest = program.entry.capacity == 0 && capacity == compiled.capacities.back();
            if (program.entry.role != ProgramRole::train || program.entry.batch != compiled.sizes.full() ||
                (!largest && program.entry.capacity != capacity))
                continue;
            const std::vector<ArenaBytes> arenas = arena_bytes(compiled.persistent, {&program.plan});
            parts.push_back(
                fmt::format("{:g} ({} of scratch)", capacity, bytes_text(arenas[largest_class(arenas)].scratch)));
        }
    return parts.empty() ? "" : fmt::format("capacity: {}\n", join(parts, ", "));
}

/// The first step of the round; nullptr for programs that are compiled without one.
const CompiledProgram* trained(const Compiled& compiled) {
    const CompiledProgram& first = compiled.programs.front();
    return first.entry.role == ProgramRole::train ? &first : nullptr;
}

/// Number of remarks about what strategies left as it was, and of marks that had no effect.
size_t remarks(const Compiled& compiled) {
    if (!trained(compiled)) return 0;
    const Program& program = compiled.train().program;
    return program.remarks().size() + program.ignored().size();
}

/// ", 0.0341 counting masked pairs"; "" where nothing is masked.
std::string full_flops_text(const Compiled& compiled) {
    if (compiled.full_flops_per_step == compiled.flops_per_step) return "";
    return fmt::format(", {:.3g} counting masked pairs", compiled.full_flops_per_step / 1e12);
}

/// By axis of the mesh: the bytes that a rank sends per step of the round, mean and max over steps, max over ranks.
std::map<AxisId, std::pair<double, double>> round_traffic(const Compiled& compiled,
                                                          const std::vector<const CompiledProgram*>& programs,
                                                          const std::vector<PlanSummary>& summaries) {
    const std::vector<double> runs = compiled.round.runs_per_step();
    std::map<AxisId, std::pair<double, double>> all;
    std::set<std::vector<int>> seen;  // classes of a rank in all programs: ranks with the same ones send the same
    for (int64_t rank = 0; rank < compiled.mesh.ranks(); ++rank) {
        std::vector<int> classes(programs.size(), none);
        std::map<AxisId, std::vector<double>> sent;  // by axis and program
        for (size_t i = 0; i < programs.size(); ++i)
            if (programs[i])
                classes[i] = static_cast<int>(&programs[i]->plan.class_of(rank) - programs[i]->plan.classes.data());
        if (!seen.insert(classes).second) continue;
        for (size_t i = 0; i < programs.size(); ++i) {
            if (!programs[i]) continue;
            for (const ClassSummary::Traffic& traffic : summaries[i].classes[classes[i]].traffic) {
                std::vector<double>& of = sent[traffic.axis];
                of.resize(programs.size(), 0.0);
                of[i] += static_cast<double>(traffic.bytes_sent);
            }
        }
        for (const auto& [axis, of] : sent) {
            auto& [mean, peak] = all[axis];
            mean = std::max(mean, std::inner_product(of.begin(), of.end(), runs.begin(), 0.0));
            peak = std::max(peak, compiled.round.peak(of));
        }
    }
    return all;
}

/// Lists the round, the summary of each program after its first, and by axis the bytes that a rank sends per step. ""
/// for a plain round.
std::string round_text(const Compiled& compiled) {
    if (compiled.round.plain()) return "";
    std::string text = fmt::format("round: {}\n", compiled.round.text());
    const std::vector<const CompiledProgram*> programs = round_programs(compiled);
    std::vector<PlanSummary> summaries(programs.size());
    for (size_t i = 0; i < programs.size(); ++i) {
        if (!programs[i]) continue;
        summaries[i] = summary(programs[i]->plan, wire_bytes_of(compiled));
        if (i > 0)
            text += fmt::format("program {}:\n{}", programs[i]->entry.name, summaries[i].text(programs[i]->plan.mesh));
    }
    for (const auto& [axis, sent] : round_traffic(compiled, programs, summaries))
        text += fmt::format("round over {}: a rank sends {} per step on average, max {} in one step\n",
                            compiled.mesh.axis(axis).name, bytes_text(std::llround(sent.first)),
                            bytes_text(std::llround(sent.second)));
    return text;
}

}  // namespace

std::string summary(const Compiled& compiled) {
    std::string active;
    if (const CompiledProgram* train = trained(compiled))
        if (const int64_t count = active_parameters(train->plan.program) / compiled.islands.count;
            count != compiled.parameters)
            active = fmt::format(", {} active for a token", count_text(count));
    std::string text = fmt::format("{}: {} parameters{}, mesh {}\n", compiled.name, count_text(compiled.parameters),
                                   active, compiled.mesh.text().empty() ? "of one rank" : compiled.mesh.text());
    if (trained(compiled))
        text += fmt::format("{} and {:.3g} TFLOP a step{}\n{}",
                            compiled.tokens_per_step > 0 ? count_text(compiled.tokens_per_step) + " tokens"
                                                         : count_text(compiled.sizes.full()) + " samples",
                            compiled.flops_per_step / 1e12, full_flops_text(compiled),
                            orrery::summary(compiled.train(), wire_bytes_of(compiled)).text(compiled.mesh));
    text += round_text(compiled);
    for (const auto& [axis, tables] : compiled.collectives)
        for (const ChunkTable& table : tables)
            text +=
                fmt::format("{} over {}: {} in {}\n", name_of(table.collective), axis, table.name, cost(table).text());
    if (compiled.ramp.start > 0) text += fmt::format("batch: {}\n", compiled.sizes.text());
    text += capacities_text(compiled);
    if (const size_t left = remarks(compiled))
        text += fmt::format("strategies: {}; orrery check prints {}\n", plural(static_cast<int64_t>(left), "remark"),
                            left > 1 ? "them" : "it");
    const std::vector<ArenaBytes> arenas = compiled.arenas();
    const size_t most = largest_class(arenas);
    text += fmt::format("memory: {}{}, {} for params, states, inputs and results of {} programs, {} of scratch",
                        bytes_text(arenas[most].both()), whose(compiled, most), bytes_text(arenas[most].persistent),
                        compiled.plans().size(), bytes_text(arenas[most].scratch));
    if (const int64_t bytes = compiled.snapshot_bytes(most); bytes > 0)
        text += fmt::format("; {} more{} for the snapshot of asynchronous saves", bytes_text(bytes),
                            compiled.snapshot == SnapshotPlace::device
                                ? fmt::format(", {} in all,", bytes_text(arenas[most].both() + bytes))
                                : " in the host's memory");
    if (arenas.size() == 1) return text;
    const size_t least = std::min_element(arenas.begin(), arenas.end(), smaller) - arenas.begin();
    return text + fmt::format("; {}{}, where it is least", bytes_text(arenas[least].both()), whose(compiled, least));
}

}  // namespace orrery
