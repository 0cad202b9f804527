#include "compile/passes/join_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <tuple>

#include "base/text.h"
#include "compile/passes/status_word.h"
#include "ir/build.h"
#include "ir/op.h"
#include "layout/shards.h"
#include "orrery/plan.h"

namespace orrery {

namespace {

class Chains {
public:
    Chains(const Program& program, const Mesh& mesh) : program_(program), mesh_(mesh) {
        readers_.assign(program.values.size(), 0);
        for (const Op& op : program.ops)
            for (const ValueId id : op.inputs) ++readers_[id];
        for (const Result& result : program.results) ++readers_[result.value];
        for (const Update& update : program.updates) ++readers_[update.value];
        for (const auto& [param, grad] : program.grads()) ++readers_[grad];
    }

    /// Whether an op is of a kind that can be joined over several axes.
    static bool joins(const Op& op) {
        return collective_of(op) == Opcode::all_reduce || collective_of(op) == Opcode::all_to_all;
    }

    /// The all_reduce or all_to_all that makes the input of this one, over another axis with the same reduction, or
    /// none.
    OpId before(const Op& op) const {
        if (!joins(op)) return none;
        const OpId maker = program_.value(op.inputs[0]).op;
        if (maker == none) return none;
        const Op& first = program_.op(maker);
        const bool same = first.kind == op.kind && first.attributes.text("op") == op.attributes.text("op");
        return same && axis_of(first) != axis_of(op) ? maker : none;
    }

    /// The reason why a collective cannot be one with an earlier one of its sequence, whatever their transports are; ""
    /// if it can.
    std::string why_apart(const Op& first, const Op& then) const {
        const bool moves = collective_of(then) == Opcode::all_to_all;
        if (readers_[then.inputs[0]] > 1)
            return fmt::format("{} over {} alone is needed as well", moves ? "the exchange" : "the sum",
                               first.attributes.text("axis"));
        if (first.phase != then.phase) return "they belong to different phases";
        if (first.stage != then.stage) return "they belong to different stages";
        if (first.attributes.text("keep") != then.attributes.text("keep")) return "they are kept for different times";
        return moves ? why_no_blocks(first, then) : "";
    }

    AxisId axis_of(const Op& op) const { return mesh_.over(op.attributes.text("axis")).value_or(none); }

private:
    /// The reason why two all-to-alls together do not exchange blocks: a rank's block is cut along the dims that the
    /// axes enter, and it takes its place along the dims that they leave, so no dim may be both.
    std::string why_no_blocks(const Op& first, const Op& then) const {
        for (const AxisId one : mesh_.parts(axis_of(first)))
            for (const AxisId other : mesh_.parts(axis_of(then))) {
                if (one == other) return fmt::format("both move axis {}", mesh_.axis(one).name);
                const auto [left, entered] = dims_of(first, one);
                const auto [then_left, then_entered] = dims_of(then, other);
                const bool follows = left == then_entered;
                if (follows || entered == then_left)
                    return fmt::format("axis {} leaves dim {}, axis {} enters it",
                                       mesh_.axis(follows ? one : other).name, follows ? left : then_left,
                                       mesh_.axis(follows ? other : one).name);
            }
        return "";
    }
    /// The dim that an axis splits before an all-to-all, and the one that it splits after it.
    std::pair<int, int> dims_of(const Op& op, AxisId axis) const {
        return {program_.value(op.inputs[0]).layout.at(axis).dim, program_.value(op.outputs[0]).layout.at(axis).dim};
    }

    const Program& program_;
    const Mesh& mesh_;
    std::vector<int> readers_;
};

class Joining {
public:
    Joining(Program& program, const Mesh& mesh, const AxisCarriers& carriers)
        : program_(program), mesh_(mesh), carriers_(carriers), chains_(program, mesh) {}

    void run() {
        find_chains();
        for (const std::vector<OpId>& chain : all_) plan(chain);
        if (made_.empty()) return;
        std::vector<Op> old = std::move(program_.ops);
        program_.ops.clear();
        std::vector<OpId> moved;
        for (size_t id = 0; id < old.size(); ++id) {
            moved.push_back(program_.ops.size());
            const auto made = made_.find(id);
            if (made == made_.end())
                program_.ops.push_back(std::move(old[id]));
            else
                std::move(made->second.begin(), made->second.end(), std::back_inserter(program_.ops));
        }
        relink(program_, moved);
    }

private:
    /// Finds the longest sequences of collectives that could be one message if their axes allow it.
    void find_chains() {
        std::map<OpId, size_t> ends;
        for (OpId id = 0; id < std::ssize(program_.ops); ++id) {
            const Op& op = program_.ops[id];
            if (!Chains::joins(op)) continue;
            const OpId before = chains_.before(op);
            const auto known = before == none ? ends.end() : ends.find(before);
            if (known == ends.end() || !extends(all_[known->second], op)) {
                ends[id] = all_.size();
                all_.push_back({id});
                continue;
            }
            const size_t chain = known->second;
            ends.erase(known);
            ends[id] = chain;
            all_[chain].push_back(id);
        }
    }

    /// Whether a collective can continue a sequence. All-to-alls leave dims in this order alone, so that each of them
    /// must fit all before it. All-reduces commute: `plan` groups those with axes that fit.
    bool extends(const std::vector<OpId>& chain, const Op& op) const {
        if (!chains_.why_apart(program_.op(chain.back()), op).empty()) return false;
        if (collective_of(op) != Opcode::all_to_all) return true;
        return std::all_of(chain.begin(), chain.end(), [&](OpId id) {
            const Op& earlier = program_.op(id);
            return why_apart(mesh_, carriers_, chains_.axis_of(earlier), chains_.axis_of(op)).empty() &&
                   chains_.why_apart(earlier, op).empty();
        });
    }

    void plan(const std::vector<OpId>& chain) {
        if (chain.size() < 2) return;
        std::vector<AxisId> axes;
        for (const OpId id : chain) axes.push_back(chains_.axis_of(program_.op(id)));
        const std::vector<AxisId> joined = join_axes(mesh_, carriers_, axes);
        if (joined.size() == chain.size()) return;
        std::vector<Op> ops;
        for (const AxisId axis : joined) ops.push_back(one(chain, axis));
        link(chain, joined, ops);
        made_[chain.front()] = std::move(ops);
        for (size_t k = 1; k < chain.size(); ++k) made_[chain[k]] = {};
    }

    /// The collective over the joined axis. It is the first op of the sequence, with the cause of the last one.
    Op one(const std::vector<OpId>& chain, AxisId axis) const {
        Op op = program_.op(chain.front());
        const Op& last = program_.op(chain.back());
        op.attributes.set("axis", mesh_.axis(axis).name);
        if (const std::string cause = last.attributes.text("cause"); !cause.empty()) op.attributes.set("cause", cause);
        if (op.attributes.has("sends")) {
            const int64_t bytes = local_bytes(program_.value(last.outputs[0]), mesh_), n = mesh_.size(axis);
            op.attributes.set("sends", (collective_of(op) == Opcode::all_reduce ? 2 : 1) * bytes * (n - 1) / n);
        }
        for (const char* dim : {"from", "to"}) op.attributes.erase(dim);  // the layouts say it for each axis
        return op;
    }

    /// Gives the new ops the values of the replaced ones, from first input to last output. Other values have no op.
    void link(const std::vector<OpId>& chain, const std::vector<AxisId>& joined, std::vector<Op>& ops) {
        const ValueId last = program_.op(chain.back()).outputs[0];
        Layout layout = program_.value(last).layout;
        const ReduceOp reduce =
            program_.value(program_.op(chain.front()).inputs[0]).layout.at(mesh_.parts(joined.front()).front()).op;
        std::vector<Layout> between;  // layouts between messages, from last to first
        for (size_t k = joined.size(); k-- > 1;) {
            for (const AxisId part : mesh_.parts(joined[k])) layout.set(part, Placement::partial(reduce));
            between.push_back(layout);
        }
        ValueId from = program_.op(chain.front()).inputs[0];
        for (size_t k = 0; k + 1 < chain.size(); ++k) {
            const ValueId id = program_.op(chain[k]).outputs[0];
            program_.value(id).op = none;
            program_.value(id).output = 0;
            if (k + 1 < ops.size()) program_.value(id).layout = between[ops.size() - 2 - k];
        }
        for (size_t k = 0; k < ops.size(); ++k) {
            ops[k].inputs = {from};
            from = k + 1 < ops.size() ? program_.op(chain[k]).outputs[0] : last;
            ops[k].outputs = {from};
        }
    }

    Program& program_;
    const Mesh& mesh_;
    const AxisCarriers& carriers_;
    const Chains chains_;
    std::vector<std::vector<OpId>> all_;
    std::map<OpId, std::vector<Op>> made_;
};

/// The reason why some axis joined in `a` and one joined in `b` cannot share a message; "" if all can.
std::string why_parts_apart(const Mesh& mesh, const AxisCarriers& carriers, AxisId a, AxisId b) {
    for (const AxisId one : mesh.parts(a))
        for (const AxisId other : mesh.parts(b))
            if (std::string why = why_apart(mesh, carriers, one, other); !why.empty()) return why;
    return "";
}

class Apart {
public:
    Apart(const Program& program, const Mesh& mesh, const AxisCarriers& carriers)
        : program_(program), mesh_(mesh), carriers_(carriers), chains_(program, mesh) {}

    std::vector<ApartAxes> find() {
        sent_.resize(program_.values.size());
        for (const Op& op : program_.ops) {
            const OpDef& def = op_def(op.kind);
            if (def.collective == Opcode::all_to_all) {
                if (const OpId before = chains_.before(op); before != none) add(program_.op(before), op);
            } else if (def.collective == Opcode::all_reduce || def.collective == Opcode::reduce_scatter ||
                       def.collective == Opcode::all_gather) {
                look_at(op);
                sent_of(op.outputs[0]) = {{{op.kind, chains_.axis_of(op)}, 1}};
            } else if (def.moves != Moves::no) {  // ops that pack several values into a message
                for (const ValueId input : op.inputs)
                    for (const auto& [how, values] : sent_of(input)) sent_of(op.outputs[0])[how] += values;
            }
        }
        std::vector<ApartAxes> entries;
        for (auto& [key, entry] : all_) entries.push_back(std::move(entry));
        return entries;
    }

private:
    using Sent = std::map<std::pair<std::string, AxisId>, int64_t>;  ///< by collective and axis: values sent

    Sent& sent_of(ValueId id) { return sent_[id]; }

    void look_at(const Op& op) {
        if (const OpId before = chains_.before(op); before != none) return add(program_.op(before), op);
        const AxisId axis = chains_.axis_of(op);
        Sent firsts;
        for (const ValueId input : op.inputs)
            for (const auto& [how, values] : sent_of(input)) firsts[how] += is_stage_sum(op_def(op.kind)) ? 0 : values;
        for (const auto& [how, values] : firsts)
            if (const std::string why = why_kinds(op_def(how.first), op_def(op.kind));
                !why.empty() && how.second != axis)
                add(how.first, how.second, op, why, std::max<int64_t>(values, 1));
    }

    /// The reason why collectives of two kinds always take two messages; "" if they are unrelated.
    std::string why_kinds(const OpDef& first, const OpDef& then) const {
        if ((first.collective == Opcode::all_gather) != (then.collective == Opcode::all_gather)) return "";
        if (is_stage_sum(first) || is_stage_sum(then))
            return "lowering makes the sum over stages, after messages have been joined";
        if (first.collective == then.collective && first.collective != Opcode::all_reduce)
            return "one after the other they send no more bytes";
        if (then.collective == Opcode::reduce_scatter) return "each rank keeps a part of the second sum alone";
        if (first.collective == Opcode::reduce_scatter)
            return "each rank sums the part alone that it keeps of the first";
        return "";
    }

    void add(const Op& first, const Op& then) {
        const AxisId a = chains_.axis_of(first);
        std::string why = why_parts_apart(mesh_, carriers_, a, chains_.axis_of(then));
        if (why.empty()) why = chains_.why_apart(first, then);
        if (why.empty() && then.attributes.text("cause") == fmt::format("result {}", status_name))
            why = fmt::format("over {} it is sent together with the loss", mesh_.axis(a).name);
        assert(!why.empty());  // if both could share a message, join_axes would have joined them
        add(first.kind, a, then, why, 1);
    }

    void add(const std::string& kind, AxisId axis, const Op& then, const std::string& why, int64_t values) {
        const AxisId other = chains_.axis_of(then);
        ApartAxes& entry = all_[{axis, other, kind, then.kind, why}];
        entry.first = mesh_.axis(axis).name;
        entry.then = mesh_.axis(other).name;
        entry.first_kind = kind;
        entry.then_kind = then.kind;
        entry.why = why;
        entry.values += values;
        const bool gathers = collective_of(then) == Opcode::all_gather;
        entry.bytes += local_bytes(program_.value(gathers ? then.outputs[0] : then.inputs[0]), mesh_);
    }

    const Program& program_;
    const Mesh& mesh_;
    const AxisCarriers& carriers_;
    const Chains chains_;
    std::vector<Sent> sent_;
    std::map<std::tuple<AxisId, AxisId, std::string, std::string, std::string>, ApartAxes> all_;
};

}  // namespace

std::string why_apart(const Mesh& mesh, const AxisCarriers& carriers, AxisId a, AxisId b) {
    const std::string &first = mesh.axis(a).name, &second = mesh.axis(b).name;
    const auto one = carriers.transports.find(first), other = carriers.transports.find(second);
    for (const auto& [found, axis] : {std::pair(one, a), std::pair(other, b)})
        if (found == carriers.transports.end())
            return fmt::format("the transport of axis {} is unknown", mesh.axis(axis).name);
    if (one->second != other->second)
        return fmt::format("axis {} has transport {}, axis {} has {}", first, one->second, second, other->second);
    for (const std::string* axis : {&first, &second})
        if (carriers.tables.count(*axis)) return fmt::format("[collectives] sets an all_reduce for axis {}", *axis);
    if (!mesh.together({a, b}))
        return fmt::format("axis {} is not among the first eight axes of more than one rank",
                           mesh.axis(std::max(a, b)).name);
    return "";
}

std::vector<AxisId> join_axes(const Mesh& mesh, const AxisCarriers& carriers, const std::vector<AxisId>& axes) {
    std::vector<std::vector<AxisId>> groups;
    for (const AxisId axis : axes) {
        const auto fits = [&](const std::vector<AxisId>& group) {
            return std::all_of(group.begin(), group.end(),
                               [&](AxisId other) { return why_apart(mesh, carriers, other, axis).empty(); });
        };
        const auto group = std::find_if(groups.begin(), groups.end(), fits);
        if (group == groups.end())
            groups.push_back({axis});
        else
            group->push_back(axis);
    }
    std::vector<AxisId> joined;
    for (const std::vector<AxisId>& group : groups)
        joined.push_back(group.size() == 1 ? group.front() : mesh.together(group).value());
    return joined;
}

void join_axes(Program& program, const Mesh& mesh, const AxisCarriers& carriers) {
    Joining(program, mesh, carriers).run();
}

std::vector<ApartAxes> axes_apart(const Program& program, const Mesh& mesh, const AxisCarriers& carriers) {
    return Apart(program, mesh, carriers).find();
}

std::string apart_text(const std::vector<ApartAxes>& apart) {
    const auto verb = [](const std::string& kind) {
        const auto moved = op_def(kind).collective;
        return moved == Opcode::all_gather       ? "gathered"
               : moved == Opcode::all_to_all     ? "exchanged"
               : moved == Opcode::reduce_scatter ? "reduce-scattered"
                                                 : "summed";
    };
    std::string text;
    for (const ApartAxes& e : apart) {
        const std::string one = verb(e.first_kind), other = verb(e.then_kind);
        text += fmt::format("two messages are not merged into one{}{}: {} of {} {} over {}, then {}over {}: {}\n",
                            e.program.empty() ? "" : " in ", e.program, plural(e.values, "value"), bytes_text(e.bytes),
                            one, e.first, one == other ? "" : other + " ", e.then, e.why);
    }
    return text;
}

}  // namespace orrery
