#include "compile/islands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "compile/messages.h"
#include "compile/passes/prune.h"
#include "compile/program_set.h"
#include "compile/recipe.h"
#include "ir/build.h"
#include "ir/describe.h"
#include "layout/stages.h"

namespace orrery {
namespace {

Placement one_further(Placement of_slice) {
    if (of_slice.kind == Placement::Kind::split) ++of_slice.dim;
    return of_slice;
}

/// The layout of an array with one more dim in front.
Layout one_further(const Layout& slice) {
    Layout layout(slice.splits().size() + 1);
    for (size_t d = 0; d < slice.splits().size(); ++d)
        for (const AxisId axis : slice.splits()[d]) layout.set(axis, one_further(slice.at(axis)));
    return layout;
}

/// The layout of an array without its first dim.
Layout without_first(const Layout& whole) {
    if (whole.splits().empty()) return {};
    Layout layout(whole.splits().size() - 1);
    for (size_t d = 1; d < whole.splits().size(); ++d)
        for (const AxisId axis : whole.splits()[d]) layout.set(axis, Placement::split(static_cast<int>(d) - 1));
    return layout;
}

/// The layout of an input, its dim `batch` split over the islands first, then over the axes of `one`.
Layout split_first(const Layout& one, int batch, AxisId islands) {
    Layout layout(one.splits().size());
    layout.set(islands, Placement::split(batch));
    for (size_t d = 0; d < one.splits().size(); ++d)
        for (const AxisId axis : one.splits()[d]) layout.set(axis, Placement::split(static_cast<int>(d)));
    return layout;
}

void add_dim(Value& array, const Islands& islands) {
    array.type.shape.insert(array.type.shape.begin(), islands.count);
    array.dims.insert(array.dims.begin(), islands.axis);
}

bool has_dim(const Value& array, const Islands& islands) {
    return !array.dims.empty() && array.dims[0] == islands.axis && array.type.shape[0] == islands.count;
}

using Arrays = std::map<std::string, ValueId>;  ///< by name

/// Gives whole arrays the layouts of the arrays of `step`, and splits their first dim over the islands. A state without
/// its param, which is not in the program, gets the marks that it inherits from it.
void store_like(Program& program, const Arrays& arrays, const Program& step, const Islands& islands) {
    std::map<ValueId, std::vector<const Mark*>> marks;  // by array of the step
    for (const Mark& mark : step.marks())
        if (mark.what == Mark::What::store && mark.axis != islands.axis) marks[mark.value].push_back(&mark);
    for (ValueId of_step = 0; of_step < std::ssize(step.values); ++of_step) {
        const Value& value = step.value(of_step);
        const auto found = is_array(value) ? arrays.find(value.name) : arrays.end();
        if (found == arrays.end()) continue;
        const ValueId id = found->second;
        const auto copy = [&](const Mark& mark) {
            program.store(id, mark.axis, one_further(mark.placement), mark.origin, mark.optional);
        };
        const std::vector<const Mark*>& own = marks[of_step];
        program.store(id, islands.axis, Placement::split(0), islands.origin);
        if (value.of != none && program.value(id).of == none && step.value(value.of).type.shape == value.type.shape)
            for (const Mark* mark : marks[value.of])
                if (std::ranges::find(own, mark->axis, &Mark::axis) == own.end()) copy(*mark);
        for (const Mark* mark : own) copy(*mark);
    }
}

}  // namespace

Islands islands_of(const Recipe& recipe, const Program& step, const Mesh& mesh) {
    Islands islands;
    if (recipe.also.empty()) return islands;  // make_experiment refuses islands that never meet
    Program marked = step;
    for (const AskedStrategy& asked : recipe.strategies) {
        asked.strategy->annotate(marked, mesh);
        if (islands.any()) continue;
        const std::vector<std::string> axes = marked.axes_with(islands_option);
        if (!axes.empty()) islands = {axes.front(), mesh.size(axes.front()), asked.origin};
    }
    if (!islands.any()) return islands;
    islands.feedback = marked.edge(islands.axis, Phase::backward).flag("feedback");
    const auto refuse = [&](const std::string& what) {
        throw Error(islands.origin, fmt::format("islands over {}: {}", islands.axis, what));
    };
    if (recipe.batch % islands.count != 0)
        refuse(
            fmt::format("{} samples a step are not divisible by {} islands\n  choose train.sequences_per_step as a "
                        "multiple of {}",
                        recipe.batch, islands.count, islands.count));
    if (recipe.ramp.start > 0)
        refuse("a batch ramp is not supported with islands\n  leave out train.ramp_start and ramp of train_with");
    if (!recipe.capacities.empty())
        refuse("islands would choose different capacities (o.capacity)\n  give the model one capacity");
    return islands;
}

ValueId moved_by(const Program& program, const Op& sum) {
    const Value& term = program.value(original_of(program, sum.inputs[0]));
    return term.role == Role::temporary ? term.of : none;
}

void check_islands(const Program& marked) {
    const std::string axis = marked.axes_with(islands_option).front();
    const std::string_view other = "\n  name another axis there: islands exchange nothing in a step";
    if (marked.pipeline().axis == axis)
        throw Error(marked.pipeline().origin,
                    fmt::format("the axis {} is of islands and of pipeline stages{}", axis, other));
    for (const Mark& mark : marked.marks())
        if (mark.axis == axis && mark.placement.kind != Placement::Kind::replicate)
            throw Error(
                mark.origin,
                fmt::format("the axis {} is of islands: {} cannot be {} over it{}", axis, describe(marked, mark.value),
                            mark.placement.kind == Placement::Kind::split ? "split" : "partial", other));
}

Program whole_arrays(const Program& step, const Islands& islands) {
    Program whole;
    whole.codecs = step.codecs;
    if (islands.feedback) whole.edge(islands.axis, std::nullopt, "feedback", true, islands.origin);
    for (const ValueId id : step.params()) {
        Value& param = whole.values.emplace_back(step.value(id));
        add_dim(param, islands);
        const auto added = static_cast<ValueId>(whole.values.size()) - 1;
        if (step.grad_of(id) != none) whole.set_grad(added, added);  // as update:params() lists params with gradients
    }
    return whole;
}

Value slice_of(const Value& whole, const Islands& islands) {
    if (!has_dim(whole, islands))
        throw Error(whole.origin,
                    fmt::format("{} {} lacks the dim of the islands\n  a state of a program without a batch has an "
                                "element for each island: give it a first dim {{ \"{}\", {} }}",
                                whole.name, text_of(whole.type, whole.dims), islands.axis, islands.count));
    Value slice = whole;
    slice.type.shape.erase(slice.type.shape.begin());
    slice.dims.erase(slice.dims.begin());
    slice.layout = without_first(whole.layout);
    return slice;
}

Program slices_of(const Program& whole, const Islands& islands) {
    Program slices;
    slices.values = whole.values;
    slices.codecs = whole.codecs;
    for (Value& value : slices.values)
        if (is_array(value))
            value = slice_of(value, islands);
        else
            value = Value();
    return slices;
}

Program mark_whole(const Program& whole, const Program& step, const Mesh& mesh, const Islands& islands) {
    Program marked = prune(whole);
    Arrays arrays;
    for (ValueId id = 0; id < std::ssize(marked.values); ++id)
        if (is_array(marked.value(id))) arrays.emplace(marked.value(id).name, id);
    store_like(marked, arrays, step, islands);
    if (stage_count(step, mesh) > 1) {
        Program staged = step;
        assign_stages(staged, mesh);
        const std::vector<int> stages = home_stages(staged);
        for (ValueId id = 0; id < std::ssize(stages); ++id)
            if (const auto array = arrays.find(step.value(id).name); array != arrays.end() && is_array(step.value(id)))
                marked.value(array->second).stage = stages[id];
    }
    if (!step.pipeline().axis.empty()) marked.pipeline(step.pipeline());
    for (const EdgeMark& edge : step.edges()) marked.edge(edge.axis, edge.phase, edge.option, edge.value, {});
    complete_messages(marked, islands);
    return marked;
}

void read_mean(Program& marked, const Program& step, const Islands& islands, bool splits_batch) {
    for (const ValueId id : marked.inputs())
        if (const auto batch = marked.dim(id, "batch"); batch && splits_batch)
            marked.store(id, islands.axis, Placement::split(*batch), islands.origin);
    std::vector<std::string> scopes(marked.values.size());  // of the first reader: its stage makes the mean
    for (size_t i = marked.ops.size(); i-- > 0;)
        for (const ValueId input : marked.ops[i].inputs) scopes[input] = marked.ops[i].scope;
    const std::vector<Op> readers = std::exchange(marked.ops, {});
    Builder builder(marked);
    Arrays arrays;
    for (ValueId id = 0; id < std::ssize(scopes); ++id) {
        if (!is_array(marked.value(id))) continue;
        const auto outer = step.find(marked.value(id).name + std::string(outer_ending));
        const bool has_outer =
            outer && is_array(step.value(*outer)) && step.value(*outer).type == marked.value(id).type;
        Value array = has_outer ? step.value(*outer) : marked.value(id);
        array.of = none;
        add_dim(array, islands);
        const auto whole = static_cast<ValueId>(marked.values.size());
        arrays.emplace(array.name, whole);
        marked.values.push_back(std::move(array));
        builder.set_scope(scopes[id]);
        const ValueId sum = builder.one("sum", {whole}, {{"dims", std::vector<int64_t>{0}}}, islands.origin);
        builder.one("scale", {sum}, {{"by", 1.0 / static_cast<double>(islands.count)}}, islands.origin);
        marked.values.pop_back();  // the mean takes the place of the array
        marked.ops.back().outputs = {id};
        Value& mean = marked.value(id);
        mean.name.clear();
        mean.role = Role::temporary;
        mean.of = none;
        marked.store(id, islands.axis, Placement::replicated(), islands.origin);
    }
    store_like(marked, arrays, step, islands);
    std::vector<OpId> moved(readers.size());
    std::iota(moved.begin(), moved.end(), static_cast<OpId>(marked.ops.size()));
    marked.ops.insert(marked.ops.end(), readers.begin(), readers.end());
    relink(marked, moved);
}

void give_slices(Plan& plan, const Islands& islands) {
    Program& program = plan.program;
    const auto axis = plan.mesh.find(islands.axis);
    for (ValueId id = 0; id < std::ssize(program.values); ++id) {
        Value& value = program.value(id);
        const bool input = value.role == Role::input && filler_of(value) == Filler::data;
        const auto batch = input ? program.dim(id, "batch") : std::nullopt;
        if (batch) {
            value.type.shape[*batch] *= islands.count;
            if (axis) value.layout = split_first(value.layout, *batch, *axis);
        } else if (is_array(value)) {
            add_dim(value, islands);
            value.layout = one_further(value.layout);
            if (axis) value.layout.set(*axis, Placement::split(0));
        }
    }
    for (RankClass& c : plan.classes)
        for (Operand& place : c.places)
            if (is_array(program.value(place.value))) place.type.shape.insert(place.type.shape.begin(), 1);
}

}  // namespace orrery
