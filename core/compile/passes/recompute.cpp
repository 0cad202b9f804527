#include "compile/passes/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/op.h"

namespace orrery {

namespace {

bool below(std::string_view scope, std::string_view top) {
    return top.empty() || scope == top || (scope.starts_with(top) && scope[top.size()] == '.');
}

class Recomputation {
public:
    /// `strict`: a mark that matches no op is an error.
    Recomputation(const Program& program, std::vector<ScopeMark> marks, bool strict)
        : from_(program), to_(program), marks_(std::move(marks)), strict_(strict) {}

    Program run() {
        const bool backward =
            std::any_of(from_.ops.begin(), from_.ops.end(), [](const Op& op) { return op.phase == Phase::backward; });
        if (marks_.empty() || !backward) return std::move(to_);
        find_regions();
        std::map<OpId, std::vector<const Op*>> gradients;  // by forward op
        for (const Op& op : from_.ops)
            if (op.phase == Phase::backward && op.forward != none) gradients[op.forward].push_back(&op);
        to_.ops.clear();
        for (const Op& op : from_.ops) {
            Op next = op;
            if (const auto all = gradients.extract(op.phase == Phase::backward ? op.forward : none))
                for (const Op* one : all.mapped())
                    for (const ValueId input : one->inputs)
                        if (serves(input, *one)) again(input);
            if (op.phase == Phase::backward)
                for (ValueId& input : next.inputs)
                    if (serves(input, op)) input = again(input);
            to_.ops.push_back(std::move(next));
        }
        for (size_t id = 0; id < to_.ops.size(); ++id)
            for (ValueId output : to_.ops[id].outputs) to_.value(output).op = id;
        return std::move(to_);
    }

private:
    bool runs_once(const Op& op) const {
        const OpDef& def = op_def(op.kind);
        return def.loss || (def.casts && from_.value(op.inputs[0]).role == Role::param);
    }

    void find_regions() {
        regions_.assign(from_.ops.size(), none);
        std::vector<bool> found(marks_.size(), false);
        std::set<std::string> kinds_there, kinds_found;
        for (size_t id = 0; id < from_.ops.size(); ++id) {
            const Op& op = from_.ops[id];
            for (size_t m = 0; m < marks_.size() && op.phase == Phase::forward; ++m) {
                const auto& kinds = marks_[m].kinds;
                if (!below(op.scope, marks_[m].scope)) continue;
                if (runs_once(op)) continue;
                kinds_there.insert(op.kind);
                if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), op.kind) == kinds.end()) continue;
                kinds_found.insert(op.kind);
                found[m] = true;
                if (regions_[id] == none) regions_[id] = m;
            }
        }
        if (!strict_) return;
        for (const ScopeMark& mark : marks_)
            for (const std::string& kind : mark.kinds)
                if (!kinds_found.contains(kind))
                    throw Error(
                        mark.origin,
                        fmt::format("cannot recompute {}: no marked scope has a forward op of this kind that "
                                    "can run again{}",
                                    quote(kind), choices("kinds", kind, {kinds_there.begin(), kinds_there.end()})));
        for (size_t m = 0; m < marks_.size(); ++m)
            if (!found[m]) refuse(marks_[m]);
    }

    [[noreturn]] void refuse(const ScopeMark& mark) const {
        std::string kinds;
        for (const std::string& kind : mark.kinds) kinds += (kinds.empty() ? "" : ", ") + kind;
        std::vector<std::string> scopes;
        for (const Op& op : from_.ops)
            if (op.phase == Phase::forward && std::find(scopes.begin(), scopes.end(), op.scope) == scopes.end())
                scopes.push_back(op.scope);
        throw Error(mark.origin,
                    fmt::format("cannot recompute scope \"{}\": it has no forward op{} that can run again{}",
                                mark.scope, kinds.empty() ? "" : " of kind " + kinds,
                                kinds.empty() ? choices("scopes", mark.scope, scopes) : ""));
    }

    /// A stage recomputes only its own values.
    bool same_stage(const Op& a, const Op& b) const { return a.stage == b.stage; }

    int region_of(OpId op) const { return op == none ? none : regions_[op]; }

    /// Whether the backward op `reader` reads the recomputed copy of a value.
    bool serves(ValueId value, const Op& reader) const {
        const int region = region_of(from_.value(value).op);
        if (region == none || !same_stage(reader, from_.op(from_.value(value).op))) return false;
        return !marks_[region].kinds.empty() || region_of(reader.forward) == region;
    }

    /// Recomputes a value, after the inputs that must be recomputed too. Returns the copy.
    ValueId again(ValueId value) {
        if (const auto found = copies_.find(value); found != copies_.end()) return found->second;
        const OpId maker = from_.value(value).op;
        Op op = from_.op(maker);
        op.phase = Phase::backward;
        op.forward = maker;
        for (ValueId& input : op.inputs)
            if (serves(input, op)) input = again(input);
        for (ValueId& output : op.outputs) {
            Value copy = from_.value(output);
            copy.name.clear();
            const ValueId id = to_.values.size();
            to_.values.push_back(std::move(copy));
            copies_[output] = id;
            copy_marks(output, id);
            output = id;
        }
        to_.ops.push_back(std::move(op));
        return copies_.at(value);
    }

    void copy_marks(ValueId from, ValueId to) {
        if (marked_.empty())
            for (size_t i = 0; i < from_.marks().size(); ++i) marked_[from_.marks()[i].value].push_back(i);
        const auto found = marked_.find(from);
        if (found == marked_.end()) return;
        for (size_t i : found->second) {
            const Mark& mark = from_.marks()[i];
            if (mark.what == Mark::What::store)
                to_.store(to, mark.axis, mark.placement, mark.origin, mark.optional);
            else
                to_.use(to, mark.axis, mark.placement, mark.origin, mark.keep, mark.optional);
        }
    }

    const Program& from_;
    Program to_;
    std::vector<ScopeMark> marks_;
    bool strict_;
    std::vector<int> regions_;  ///< by forward op: its recompute mark; none: no mark
    std::map<ValueId, ValueId> copies_;
    std::map<ValueId, std::vector<size_t>> marked_;
};

/// Returns the value that has the memory of another: the input of an op without a kernel, such as a reshape.
ValueId memory_of(const Program& program, ValueId id) {
    while (program.value(id).op != none && op_def(program.op(program.value(id).op).kind).alias)
        id = program.op(program.value(id).op).inputs[0];
    return id;
}

/// Adds a remark for each kind of the marks that frees next to nothing, in addition to the others.
void remark_useless(const Program& program, const std::vector<ScopeMark>& marks, Program& made) {
    std::map<std::string, Origin> kinds;
    for (const ScopeMark& mark : marks)
        for (const std::string& kind : mark.kinds) kinds.emplace(kind, mark.origin);
    const auto saved = static_cast<double>(kinds.empty() ? 0 : saved_bytes(made));
    if (saved == 0) return;
    for (const auto& [kind, origin] : kinds) {
        std::vector<ScopeMark> others;
        for (const ScopeMark& mark : marks) {
            others.push_back(mark);
            if (std::erase(others.back().kinds, kind) > 0 && others.back().kinds.empty()) others.pop_back();
        }
        const auto without = static_cast<double>(saved_bytes(recompute_by(program, std::move(others))));
        if (saved < (1 - least_freed) * without) continue;
        made.note(
            none,
            fmt::format(
                "recomputing {} frees {}: its results stay saved, because the backward pass reads views of "
                "them (such as a reshape), or its inputs are saved instead; remove {} from what is "
                "recomputed",
                kind,
                saved < without ? fmt::format("{:.2f} % of what is saved", 100 * (1 - saved / without)) : "nothing",
                kind),
            origin);
    }
}

}  // namespace

Program recompute_by(const Program& program, std::vector<ScopeMark> marks) {
    return Recomputation(program, std::move(marks), false).run();
}

Program recompute(const Program& program) {
    std::vector<ScopeMark> marks;
    for (const ScopeMark& mark : program.scope_marks())
        if (mark.recompute) marks.push_back(mark);
    Program made = Recomputation(program, marks, true).run();
    remark_useless(program, marks, made);
    return made;
}

int64_t saved_bytes(const Program& program) {
    std::set<ValueId> saved;
    for (const Op& op : program.ops)
        for (const ValueId input : op.phase == Phase::backward ? op.inputs : std::vector<ValueId>()) {
            const ValueId id = memory_of(program, input);
            const OpId maker = program.value(id).op;
            if (maker == none || program.op(maker).phase != Phase::forward) continue;
            const Op& made_by = program.op(maker);
            if (op_def(made_by.kind).casts && program.value(made_by.inputs[0]).role == Role::param) continue;
            saved.insert(id);
        }
    int64_t bytes = 0;
    for (const ValueId id : saved) bytes += program.value(id).type.bytes();
    return bytes;
}

}  // namespace orrery
