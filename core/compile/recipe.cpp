#include "compile/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "base/hash.h"
#include "base/suggest.h"
#include "base/text.h"
#include "compile/messages.h"
#include "compile/passes/code_errors.h"
#include "compile/pipeline.h"
#include "ir/describe.h"
#include "ir/print.h"
#include "layout/stages.h"

namespace orrery {
namespace {

/// The number of micro-batches of a batch. All have the size of those of the full batch, so a smaller batch has fewer.
int64_t microbatches_of(const Recipe& recipe, int64_t batch) {
    if (batch == recipe.batch) return recipe.microbatches;
    const int64_t full = recipe.batch, micro = recipe.microbatches == 1 ? full : recipe.microbatches * batch;
    if (micro % full == 0) return micro / full;
    throw Error(
        recipe.train_origin,
        fmt::format("the ramp's batch of {} sequences is not divisible into micro-batches: a full step has {} of {} "
                    "sequences\n  choose train.ramp_start and train.ramp_increment as multiples of {}, or another "
                    "train.microbatches",
                    batch, recipe.microbatches, full / recipe.microbatches, full / recipe.microbatches));
}

/// Throws Error if, with a pipeline, a smaller step of the ramp has fewer micro-batches than the schedule is made for.
void check_ramp(const Recipe& recipe, const Program& train, const std::vector<int64_t>& smaller, const Mesh& mesh) {
    if (stage_count(train, mesh) == 1) return;
    for (const int64_t batch : smaller) {
        if (microbatches_of(recipe, batch) == recipe.microbatches) continue;
        const Pipeline& pipeline = train.pipeline();
        throw Error(
            pipeline.origin,
            fmt::format("schedule {} is made for the {} micro-batches of a step of {} sequences, but the "
                        "batch ramp has steps of {} sequences with {} micro-batches\n"
                        "  leave the ramp out (train.ramp_start, train.ramp_increment and "
                        "train.ramp_samples, or ramp of train_with), or take one micro-batch where the "
                        "schedule can (train.microbatches = 1, or microbatches of train_with)",
                        pipeline.schedule, recipe.microbatches, recipe.batch, batch, microbatches_of(recipe, batch)));
    }
}

PassInput input_of(const Recipe& recipe, const ProgramEntry& entry, const Mesh* mesh = nullptr) {
    const bool full = entry.role != ProgramRole::train && entry.batch == recipe.batch && !entry.whole;
    const int64_t microbatches = entry.role == ProgramRole::train ? microbatches_of(recipe, entry.batch)
                                 : full                           ? recipe.microbatches
                                                                  : 1;
    return {entry, &recipe, microbatches, mesh, nullptr};
}

Program recorded(const Recipe& recipe, const ProgramEntry& entry) {
    return run_passes(PassPart::record, {}, input_of(recipe, entry));
}

/// Throws Error if functions of the script record a different step when called again, as is done for smaller steps.
void check_repeats(const Recipe& recipe, const Program& step) {
    Program again = train_step(recipe, recipe.batch);
    again.name = step.name;
    if (print(again) == print(step)) return;
    throw Error(
        recipe.train_origin,
        "the model or the optimizer is not deterministic: called again for another batch of the ramp, another capacity "
        "or another program of the round, it records another step\n  remove what differs between calls, such as a "
        "counter, a cache or math.random");
}

/// Annotates a recorded program (pass `annotate`). The mesh must be without micro-batches.
MarkedProgram marked(const Recipe& recipe, const ProgramEntry& entry, const Mesh& mesh, Program recorded) {
    const PassInput input = input_of(recipe, entry, &mesh);
    if (!recorded.ops.empty()) recorded = run_passes(PassPart::mark, std::move(recorded), input);
    const int64_t microbatches = recorded.microbatches();
    return {entry, std::move(recorded), mesh.with_microbatches(microbatches)};
}

/// Throws Error if `of` lacks a param or state of `program`, or has it with another type, as the programs share these.
void require_arrays(const Program& of, const Program& program, const std::string& name, const std::string& other_name) {
    std::unordered_map<std::string_view, const Value*> arrays;
    for (const Value& value : of.values)
        if (is_array(value)) arrays.emplace(value.name, &value);
    for (const Value& value : program.values) {
        if (!is_array(value)) continue;
        const auto known = arrays.find(value.name);
        const Value* other = known == arrays.end() ? nullptr : known->second;
        if (other && other->role == value.role && other->type == value.type && other->dims == value.dims) continue;
        throw Error(
            value.origin,
            fmt::format("params or states differ: the program {} has {} {}, {} has {}\n  create the same params "
                        "and states in every program, batch and capacity",
                        name, value.name, text_of(value.type, value.dims), other_name,
                        other ? text_of(other->type, other->dims) : "none of this name"));
    }
}

/// Adds to a step the states that only `all` has: every step holds the arrays of the whole round.
void add_states(Program& program, const Program& all) {
    std::unordered_map<std::string, ValueId> own;
    for (ValueId id = 0; id < std::ssize(program.values); ++id)
        if (is_array(program.value(id))) own.emplace(program.value(id).name, id);
    for (const Value& value : all.values) {
        if (value.role != Role::state) continue;
        if (const auto found = own.find(value.name); found != own.end()) {
            if (program.value(found->second).init == value.init) continue;
            throw Error(
                value.origin,
                fmt::format("two programs of the round have different initial values of state {}: {} and {}\n  use the "
                            "same initial value in both",
                            value.name, text_of(value.init), text_of(program.value(found->second).init)));
        }
        Value added = value;
        if (value.of != none) {
            const auto of = own.find(all.value(value.of).name);
            if (of == own.end())
                throw Error(value.origin, fmt::format("params differ: the program {} has {}, {} has none of this name\n"
                                                      "  create the same params in every program",
                                                      all.name, all.value(value.of).name, program.name));
            added.of = of->second;
        }
        program.values.push_back(std::move(added));
    }
}

/// The entry of a program of the round at the full batch, as if it took a batch.
ProgramEntry round_entry(const Recipe& recipe, const std::string& name) {
    ProgramEntry entry{"train", ProgramRole::train, recipe.batch, false, -1};
    if (name == "step") return entry;
    const auto found = std::ranges::find(recipe.also, name, &AlsoProgram::name);
    if (found == recipe.also.end()) {
        std::vector<std::string> names = round_words;
        for (const AlsoProgram& also : recipe.also) names.push_back(also.name);
        throw Error(recipe.round.origin(),
                    fmt::format("round {}: no program {}{}\n  add it with program:also(\"{}\", "
                                "function(update) ... end)",
                                quote(recipe.round.text()), quote(name), choices("its programs", name, names), name));
    }
    entry.name = name;
    entry.also = static_cast<int>(found - recipe.also.begin());
    return entry;
}

/// Throws Error for a program that the script makes and its round does not name.
void refuse_unused(const Recipe& recipe) {
    const std::vector<std::string>& names = recipe.round.names();
    for (const AlsoProgram& also : recipe.also)
        if (std::ranges::find(names, also.name) == names.end())
            throw Error(also.origin, fmt::format("the program {} never runs: the round {} does not name it\n  name it "
                                                 "in program:round, or remove it",
                                                 quote(also.name), quote(recipe.round.text())));
}

/// Compares the params and states of a recorded program with those of `train`, and annotates it.
MarkedProgram made(const Recipe& recipe, const ProgramEntry& entry, const Mesh& mesh, const Program& train,
                   Program recorded) {
    require_arrays(train, recorded, entry.name, "the train step");
    if (entry.role == ProgramRole::train) {
        // States of codecs are added with the marks.
        const bool codes = !train.axes_with("feedback").empty() || has_factors(train);
        if (!recipe.round.plain() || codes) add_states(recorded, train);
        require_arrays(recorded, train, "train", "the step of " + entry.name);
    }
    const bool reads = entry.role != ProgramRole::train && recipe.islands.any() && !recorded.ops.empty();
    MarkedProgram made = marked(recipe, entry, mesh, std::move(recorded));
    if (reads) {
        const bool splits_batch = entry.role != ProgramRole::logits && !entry.whole;
        read_mean(made.program, train, recipe.islands, splits_batch);
    }
    return made;
}

/// Records and annotates the programs of the round and adds them to the experiment. `step`: its first step, recorded.
/// Every step gets the states of all programs.
void make_round(Experiment& made_of, Program step, const Mesh& mesh, Recipe& recipe) {
    const Islands& islands = recipe.islands;
    const std::vector<std::string>& names = recipe.round.names();
    std::vector<std::pair<ProgramEntry, Program>> others;
    std::vector<bool> takes_batch(names.size(), false);
    refuse_unused(recipe);
    for (size_t i = 0; i < names.size(); ++i) {
        if (recipe.round.is_action(i)) continue;
        ProgramEntry entry = round_entry(recipe, names[i]);
        Program other;
        if (!others.empty() && islands.any() && entry.also >= 0)  // nothing: the function reads a batch
            other = recipe.also[entry.also].update(whole_arrays(others.front().second, islands));
        other.name = recipe.name + "." + names[i];
        if (other.values.empty()) other = i == 0 ? std::move(step) : recorded(recipe, entry);
        takes_batch[i] = other.result("loss_sum").has_value();
        if (!takes_batch[i]) entry.role = ProgramRole::update;
        others.emplace_back(std::move(entry), std::move(other));
    }
    recipe.round.prove(takes_batch);
    std::vector<const Program*> by_name(names.size(), nullptr);
    for (const auto& [entry, program] : others) by_name[round_index(recipe.round, entry)] = &program;
    prove_messages(recipe.round, by_name);
    check_owed(by_name);
    const auto trains = [](const Program& program) {
        return std::ranges::any_of(program.updates,
                                   [&](const Update& u) { return program.value(u.target).role == Role::param; });
    };
    const std::vector<double> runs = recipe.round.runs_per_step();
    if (std::ranges::none_of(others, [&](const auto& made) {
            return runs[round_index(recipe.round, made.first)] > 0 && trains(made.second);
        }))
        throw Error(recipe.round.origin(),
                    fmt::format("round {}: no program that repeats updates a param\n  call update:set(p, value) in one",
                                quote(recipe.round.text())));
    if (recipe.loss_scale)
        for (const auto& [entry, program] : others)
            if (entry.role == ProgramRole::train && !trains(program))
                throw Error(recipe.round.origin(),
                            fmt::format("round {}: program {} takes a batch but updates no param, which a loss scale "
                                        "does not allow: if its gradients overflow it sets nothing, and later programs "
                                        "would use values of an earlier step\n  update the params in {}, or use "
                                        "precision bf16, which needs no loss scale",
                                        quote(recipe.round.text()), quote(entry.name), quote(entry.name)));
    auto& [first_entry, first] = others.front();
    if (islands.any() && std::ranges::count(takes_batch, true) > 1) check_repeats(recipe, first);
    const auto whole = [&](const ProgramEntry& entry) { return islands.any() && entry.role == ProgramRole::update; };
    for (size_t i = 1; i < others.size(); ++i) {
        const auto& [entry, other] = others[i];
        whole(entry) ? add_states(first, slices_of(other, islands)) : add_states(first, other);
    }
    made_of.programs.push_back(marked(recipe, first_entry, mesh, std::move(first)));
    for (size_t i = 1; i < others.size(); ++i) {
        auto& [entry, other] = others[i];
        if (whole(entry)) {
            require_arrays(made_of.train(), slices_of(other, islands), entry.name, "the train step");
            made_of.programs.push_back({entry, mark_whole(other, made_of.train(), mesh, islands), mesh});
        } else {
            made_of.programs.push_back(made(recipe, entry, mesh, made_of.train(), std::move(other)));
        }
    }
    const std::vector<std::string> axes = made_of.train().axes_with(islands_option);
    const auto meets = [](const auto& other) { return other.first.role == ProgramRole::update; };
    if (!axes.empty() && std::ranges::none_of(others, meets))
        throw Error(
            recipe.round.plain() ? recipe.trace_origin : recipe.round.origin(),
            fmt::format("the islands over {} never meet: each program of the round {} takes a batch\n  name one "
                        "in program:round that takes none and combines their arrays, such as a mean",
                        axes.front(), quote(recipe.round.text())));
}

/// Records and annotates a program.
MarkedProgram made(const Recipe& recipe, const ProgramEntry& entry, const Mesh& mesh, const Program& train) {
    try {
        return made(recipe, entry, mesh, train, recorded(recipe, entry));
    } catch (const Error& error) {
        if (entry.added < 0) throw;
        const AddedProgram& added = recipe.added[entry.added];
        throw Error(fmt::format("{}\n  in the metric {} ({}), which uses the params of the model and is split like the "
                                "model",
                                error.what(), added.name, added.origin.text()),
                    error.fault());
    }
}

void make_others(Experiment& made_of, const Mesh& mesh) {
    const Recipe& recipe = *made_of.recipe;
    made_of.programs.push_back(
        made(recipe, {"eval", ProgramRole::evaluate, recipe.batch, false, -1, recipe.mean}, mesh, made_of.train()));
    for (size_t i = 0; i < recipe.added.size(); ++i) {
        const AddedProgram& added = recipe.added[i];
        const ProgramEntry entry{added.name, ProgramRole::evaluate, recipe.batch,
                                 false,      static_cast<int>(i),   added.mean};
        made_of.programs.push_back(made(recipe, entry, mesh, made_of.train()));
    }
    MarkedProgram logits = made(recipe, {"logits", ProgramRole::logits, 1, false, -1}, mesh, made_of.train());
    if (!logits.program.ops.empty()) made_of.programs.push_back(std::move(logits));
}

}  // namespace

size_t round_index(const Round& round, const ProgramEntry& entry) {
    const std::vector<std::string>& names = round.names();
    return std::ranges::find(names, entry.also < 0 ? "step" : entry.name) - names.begin();
}

Program train_step(const Recipe& recipe, int64_t batch) { return recorded(recipe, train_entry(recipe, batch)); }

std::vector<int64_t> smaller_batches(const Recipe& recipe) {
    if (recipe.ramp.start == 0) return {};
    std::vector<int64_t> sizes;
    try {
        sizes = BatchSizes(recipe.batch, recipe.ramp).sizes();
    } catch (const Error& error) {
        throw Error(recipe.train_origin, error.what());
    }
    sizes.pop_back();
    for (const int64_t batch : sizes) microbatches_of(recipe, batch);
    return sizes;
}

ProgramEntry train_entry(const Recipe& recipe, int64_t batch) {
    const ProgramEntry full = round_entry(recipe, recipe.round.names().front());
    return batch == recipe.batch ? full : at_batch(full, batch);
}

Experiment make_experiment(Recipe given, Program step, const Mesh& mesh, bool step_alone) {
    Experiment made_of;
    const auto recipe_of = std::make_shared<Recipe>(std::move(given));
    made_of.recipe = recipe_of;
    const Recipe& recipe = *recipe_of;
    const std::vector<int64_t> smaller = smaller_batches(recipe);
    recipe_of->islands = islands_of(recipe, step, mesh);
    if (recipe.islands.any())  // make_round checks this one
        step = train_step(recipe, recipe.batch);
    else if (!smaller.empty() || recipe.capacities.size() > 1 || !recipe.round.plain())
        check_repeats(recipe, step);
    make_round(made_of, std::move(step), mesh, *recipe_of);
    check_ramp(recipe, made_of.train(), smaller, mesh);
    if (!step_alone) make_others(made_of, mesh);
    made_of.mesh = made_of.programs.front().mesh;
    for (const AskedStrategy& asked : recipe.strategies)
        for (const auto& [key, word] : asked.words)
            if (key == "axis" || mesh.find(word)) made_of.axes.push_back(word);
    if (stage_count(made_of.train(), mesh) > 1) {
        Pipeline pipeline = made_of.train().pipeline();
        made_of.schedule = recipe.schedule(pipeline, mesh.size(pipeline.axis), made_of.train().microbatches());
    }
    return made_of;
}

MarkedProgram make_program(const Experiment& experiment, const ProgramEntry& entry) {
    return made(*experiment.recipe, entry, experiment.mesh.with_microbatches(1), experiment.train());
}

void make_sizes(Experiment& experiment, size_t batches, size_t capacities) {
    const Recipe& recipe = *experiment.recipe;
    std::vector<int64_t> all = smaller_batches(recipe);
    all.resize(std::min(all.size(), batches));
    all.push_back(recipe.batch);
    const size_t smaller = recipe.capacities.empty() ? 0 : recipe.capacities.size() - 1;
    for (size_t at = 0; at < experiment.programs.size(); ++at) {
        const ProgramEntry full = experiment.programs[at].entry;
        if (full.role != ProgramRole::train || full.batch != recipe.batch) continue;
        std::vector<MarkedProgram> sizes;
        for (const int64_t batch : all) {
            const ProgramEntry entry = batch == recipe.batch ? full : at_batch(full, batch);
            for (size_t i = 0; i < std::min(smaller, capacities); ++i)
                sizes.push_back(make_program(experiment, at_capacity(entry, recipe.capacities[i])));
            if (batch != recipe.batch) sizes.push_back(make_program(experiment, entry));
        }
        const auto after = experiment.programs.begin() + static_cast<std::ptrdiff_t>(at) + 1;
        at += sizes.size();
        experiment.programs.insert(after, std::make_move_iterator(sizes.begin()), std::make_move_iterator(sizes.end()));
    }
}

const MarkedProgram* Experiment::find(std::string_view name) const {
    const auto found =
        std::find_if(programs.begin(), programs.end(), [&](const auto& made) { return made.entry.name == name; });
    return found == programs.end() ? nullptr : &*found;
}

Shape WeightSource::stored_shape(Shape param) const {
    if (stacked && !param.empty()) param.erase(param.begin());
    if (transpose && param.size() >= 2) std::swap(param[param.size() - 2], param.back());
    return param;
}

std::string WeightSource::tensor_at(int64_t index) const {
    const size_t at = stacked ? tensor.find('*') : std::string::npos;
    return at == std::string::npos ? tensor : tensor.substr(0, at) + std::to_string(index) + tensor.substr(at + 1);
}

std::vector<std::string> WeightSource::tensors(const Shape& param) const {
    if (tensor_at(0) == tensor) return {tensor};
    std::vector<std::string> names;
    for (int64_t i = 0; i < param.at(0); ++i) names.push_back(tensor_at(i));
    return names;
}

std::string Recipe::digest() const {
    std::string text = fmt::format("{} batch {} microbatches {} precision {} ramp {} {} {}\n", name, batch,
                                   microbatches, name_of(precision), ramp.start, ramp.increment, ramp.samples);
    for (const double capacity : capacities) text += fmt::format("capacity {}\n", capacity);
    for (const AddedProgram& program : added) text += "adds " + program.name + "\n";
    if (!round.plain()) text += "round " + round.text() + "\n";
    for (const AskedStrategy& asked : strategies) {
        text += "strategy " + asked.name;
        for (const auto& [key, word] : asked.words) text += fmt::format(" {} = {}", key, word);
        text += "\n";
    }
    for (const Decomposition& own : redistribution.decompositions)
        text += fmt::format("decomposes {} over {}: {}\n", own.op, own.axis, own.text);
    for (const std::string& own : codecs) text += "codec " + own;
    return sha256(text);
}

}  // namespace orrery
