#include "compile/passes/versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/text.h"
#include "ir/build.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "layout/factors.h"

namespace orrery {

using Kind = Placement::Kind;

Versions::Versions(const Program& annotated, const Mesh& mesh, const PropagateOptions& options)
    : program(annotated), resharder(mesh), annotated_(annotated), mesh_(mesh), options_(options) {
    resize();
    entries_.reserve(annotated.ops.size() * 2);
}

void Versions::resize() {
    const size_t n = program.values.size();
    held_.resize(n);
    late_.resize(n, false);
    places_.resize(n, Place{-1, false});
    causes_.resize(n);
}

ValueId Versions::add_value(Value value) {
    program.values.push_back(std::move(value));
    resize();
    return program.values.size() - 1;
}

void Versions::emit(Op op, int index) {
    for (ValueId output : op.outputs) places_[output] = {index, false};
    entries_.push_back({{index, false}, std::move(op), index});
}

bool Versions::leaves_loop(ValueId version, const Layout& needed) const {
    for (const auto& partial : program.value(version).layout.partials())
        if (mesh_.axis(partial.axis).sequential && needed.at(partial.axis).kind != Kind::partial) return true;
    return late(version);
}

Origin Versions::cause(ValueId value, AxisId axis) const {
    const auto& causes = causes_[value];
    const size_t a = axis;
    return a < causes.size() && causes[a] >= 0 ? origins_[causes[a]] : Origin{};
}

void Versions::set_cause(ValueId value, AxisId axis, const Origin& origin) {
    if (origin == Origin{}) return;
    auto& causes = causes_[value];
    causes.resize(mesh_.axes().size(), -1);
    // There is one origin per mark, mostly a recent one: a linear search from the back is fast.
    const auto place = std::find(origins_.rbegin(), origins_.rend(), origin);
    const auto index = place == origins_.rend() ? origins_.size() : static_cast<size_t>(origins_.rend() - place) - 1;
    if (index == origins_.size()) origins_.push_back(origin);
    causes[axis] = index;
}

void Versions::copy_causes(ValueId from, ValueId to) { causes_[to] = causes_[from]; }

namespace {
/// The reader in the text of a cause: "matmul %7" of "for matmul %7".
std::string subject(const std::string& cause) { return cause.rfind("for ", 0) == 0 ? cause.substr(4) : cause; }
}  // namespace

std::string Versions::causes_text(ValueId value, const Layout& layout) const {
    std::string text;
    for (AxisId axis = 0; axis < std::ssize(mesh_.axes()); ++axis) {
        const std::string origin = cause(value, axis).text();
        if (layout.at(axis) == Placement::replicated() || mesh_.size(axis) == 1) continue;
        text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", mesh_.axis(axis).name, layout.at(axis).text());
        if (!origin.empty()) text += fmt::format(" (by {})", origin);
    }
    return text.empty() ? "whole on every rank" : text;
}

ValueId Versions::reshard_to(ValueId value, const Layout& needed, const Reader& reader) {
    const Held& here = held(value);
    const int fragment = annotated_.ops.empty() ? -1 : fragment_of(annotated_.op(reader.index));
    ValueId best = none;
    const ReshardPath* path = nullptr;
    for (size_t i = 0; i < here.versions.size(); ++i) {
        if (!usable(here, i, fragment)) continue;
        const ReshardPath* other =
            resharder.path(program.value(value).type, program.value(here.versions[i]).layout, needed);
        if (!other || (path && other->cost >= path->cost)) continue;
        path = other;
        best = here.versions[i];
    }
    if (here.source >= 0 && (!path || !path->steps.empty())) {
        const ValueId made = place_source(value, needed, reader);
        if (made != none) return made;
    }
    if (!path) fail(value, needed, reader);
    held(value).placed = true;
    if (path->steps.empty()) return best;
    enforce_budget(value, needed, *path, reader);
    const ValueId result = follow(value, best, *path, reader);
    forget_partial(value, needed);
    return result;
}

// Computes a constant in the needed layout. The first reader sets the layout of its op; others get a copy of the op.
ValueId Versions::place_source(ValueId value, const Layout& needed, const Reader& reader) {
    Op op = entries_[held(value).source].op;
    const FactorRule rule = rule_of(program, op);
    if (!needed.partials().empty()) return none;
    for (const Preference& preferred : preferences_of(needed, rule.outputs[0], rule, mesh_))
        if (preferred.blocked != Blocked::no) return none;
    if (!held(value).placed) {
        held(value).placed = true;
        program.value(value).layout = needed;
        return value;
    }
    Value copy = program.value(value);
    copy.name.clear();
    copy.layout = needed;
    const ValueId made = add_value(std::move(copy));
    op.outputs = {made};
    op.phase = annotated_.op(reader.index).phase;
    places_[made] = {reader.index, false};
    entries_.push_back({{reader.index, false}, std::move(op), -1});
    copy_causes(value, made);
    held(value).versions.push_back(made);
    held(value).fragments.push_back(-1);
    return made;
}

/// The collective for one step of a redistribution. `like`: annotated op that gives phase, scope and stage.
Op Versions::step_op(const ReshardStep& step, const Reader& reader, int like) const {
    Op op;
    op.kind = op_inserted_for(step.instruction);
    op.attributes.set("axis", mesh_.axis(step.axis).name);
    const auto reduces = [&] { op.attributes.set("op", std::string(name_of(step.op))); };
    switch (step.instruction) {
        case Opcode::all_reduce: reduces(); break;
        case Opcode::reduce_scatter: reduces(); [[fallthrough]];
        case Opcode::kernel: op.attributes.set("dim", int64_t{step.to}); break;
        case Opcode::all_gather: op.attributes.set("dim", int64_t{step.from}); break;
        case Opcode::all_to_all:
            op.attributes.set("from", int64_t{step.from});
            op.attributes.set("to", int64_t{step.to});
            break;
        case Opcode::copy:
        case Opcode::send:
        case Opcode::receive: assert(false);  // send and receive do not redistribute
    }
    op.attributes.set("cause", reader.cause);
    if (step.bytes > 0) op.attributes.set("sends", step.bytes);
    op.origin = reader.origin;
    const Op& model = annotated_.op(like);
    op.phase = model.phase;
    op.scope = model.scope;
    op.stage = model.stage;
    return op;
}

/// Returns the attribute `keep` of a copy of the value that is gathered over `axis`, by the value's `use` marks:
/// "step" or "fragment"; "" if no mark applies.
std::string Versions::keep_of(ValueId value, AxisId axis) const {
    std::string keep;
    for (const Target& use : held(value).uses) {
        if (use.keep == Keep::part && use.axis != axis) continue;
        if (use.keep != Keep::step) return "fragment";
        keep = "step";
    }
    return keep;
}

ValueId Versions::follow(ValueId value, ValueId from, const ReshardPath& path, const Reader& reader) {
    // A value of the backward pass that the update reads is sent as soon as it exists, so that messages overlap with
    // the rest of the pass. For a mark or an update, it is sent right after the op that computes it.
    Place place{reader.index, reader.asked};
    const Place made = places_[from];
    if (annotated_.op(reader.index).phase == Phase::update && made.op >= 0 &&
        annotated_.op(made.op).phase != Phase::update)
        place = {made.op, true};
    place = std::max(place, made);  // an earlier reader may take a message that is sent later
    const bool late = leaves_loop(from, path.steps.back().layout);
    for (const ReshardStep& step : path.steps) {
        Op op = step_op(step, reader, place.op);
        const std::string keep = reader.asked ? "" : keep_of(value, step.axis);
        if (!keep.empty()) op.attributes.set("keep", keep);
        Value next;
        next.type = program.value(value).type;
        next.dims = program.value(value).dims;
        next.layout = step.layout;
        next.origin = reader.origin;
        const ValueId to = add_value(std::move(next));
        op.inputs = {from};
        op.outputs = {to};
        if (late) set_late(to);
        copy_causes(from, to);
        places_[to] = place;
        entries_.push_back({place, std::move(op), -1});
        held(value).versions.push_back(to);
        held(value).fragments.push_back(keep == "fragment" ? fragment_of(annotated_.op(reader.index)) : -1);
        from = to;
    }
    return from;
}

// Makes all further readers use the reduced value, since reducing again would repeat the message.
void Versions::forget_partial(ValueId value, const Layout& reduced) {
    Held& here = held(value);
    const auto unreduced = [&](const Layout& layout) {
        return std::any_of(layout.partials().begin(), layout.partials().end(), [&](const Layout::Partial& partial) {
            return !mesh_.axis(partial.axis).sequential && reduced.at(partial.axis).kind != Kind::partial;
        });
    };
    if (!unreduced(here.preferred)) return;
    here.preferred = reduced;
    for (size_t i = here.versions.size(); i-- > 0;) {
        if (!unreduced(program.value(here.versions[i]).layout)) continue;
        here.versions.erase(here.versions.begin() + i);
        here.fragments.erase(here.fragments.begin() + i);
    }
}

void Versions::enforce_budget(ValueId value, const Layout& needed, const ReshardPath& path,
                              const Reader& reader) const {
    if (reader.asked || reader.part || (!options_.forbid_implicit && options_.budget_bytes < 0)) return;
    int64_t bytes = 0;
    std::string steps;
    for (const ReshardStep& step : path.steps) {
        if (step.instruction != Opcode::all_gather && step.instruction != Opcode::all_to_all) continue;
        const auto& uses = held_[value].uses;
        if (std::any_of(uses.begin(), uses.end(), [&](const Target& use) { return use.axis == step.axis; })) continue;
        bytes += step.bytes;
        steps += fmt::format("{}{} over {}", steps.empty() ? "" : ", ", op_inserted_for(step.instruction),
                             mesh_.axis(step.axis).name);
    }
    if (bytes == 0 || (!options_.forbid_implicit && bytes <= options_.budget_bytes)) return;
    throw Error(
        reader.origin,
        fmt::format(
            "{} would move {}, which no strategy asked for: {} sends {} per rank{}\n  layout of {}: {}\n"
            "  {} needs it as {}: {}\n  mark its use, mark another layout, or raise implicit_budget_mib",
            subject(reader.cause), describe(program, value), steps, bytes_text(bytes),
            options_.forbid_implicit ? "" : fmt::format(", over the budget of {}", bytes_text(options_.budget_bytes)),
            label_of(program, value), causes_text(value, held_[value].preferred), subject(reader.cause),
            needed.text(mesh_), reader.why));
}

void Versions::fail(ValueId value, const Layout& needed, const Reader& reader) const {
    const Held& here = held_[value];
    const Layout& lies = program.value(here.versions.front()).layout;
    std::string remedy = "split another dim, or choose sizes that divide";
    for (AxisId axis = 0; axis < std::ssize(mesh_.axes()); ++axis) {
        if (!mesh_.axis(axis).sequential || lies.at(axis) == needed.at(axis)) continue;
        if (lies.at(axis).kind == Kind::split)
            remedy =
                "it exists one micro-batch at a time and cannot be gathered; use one micro-batch, or keep the "
                "batch dim out of this op";
    }
    throw Error(reader.origin, fmt::format("{} needs {} as {}, which cannot be made\n  its layout: {}\n  {}\n  {}",
                                           subject(reader.cause), describe(program, value), needed.text(mesh_),
                                           causes_text(value, lies),
                                           reader.why.empty() ? "its use is marked so" : reader.why, remedy));
}

Program Versions::finish() {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.place < b.place; });
    program.ops.clear();  // up to here, error messages refer to annotated ops
    std::vector<OpId> moved;
    for (size_t i = 0; i < entries_.size(); ++i) {
        const int index = entries_[i].index;
        if (index < 0) continue;
        if (std::ssize(moved) <= index) moved.resize(index + 1, none);
        if (moved[index] == none) moved[index] = i;
    }
    for (Entry& entry : entries_) program.ops.push_back(std::move(entry.op));
    relink(program, moved);
    for (size_t id = 0; id < program.values.size(); ++id) {
        auto& causes = program.values[id].causes;
        for (size_t i = 0; i < mesh_.axes().size(); ++i) {
            const Origin origin = cause(id, i);
            if (origin != Origin{} && std::find(causes.begin(), causes.end(), origin) == causes.end())
                causes.push_back(origin);
        }
    }
    return std::move(program);
}

}  // namespace orrery
