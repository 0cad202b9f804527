#include "plan/order.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace orrery::lowering {

namespace {

/// Which backward ops a fragment runs: B brings W along where the schedule has no W of its own.
bool belongs(const OpRole& role, const Fragment& fragment, bool separate_weights) {
    if (role.section != Section::inside) return false;
    if (role.kind == fragment.kind) return true;
    return role.kind == Fragment::Kind::weight && fragment.kind == Fragment::Kind::backward && !separate_weights;
}

class Ordering {
public:
    Ordering(const Roles& roles, const RankSchedule& schedule) : roles_(roles), schedule_(schedule) {}

    Order run() {
        lay_out();
        find_producers();
        hoist();
        merge();
        order_.readers = std::move(readers_);
        return std::move(order_);
    }

private:
    const Program& program() const { return roles_.program; }

    void add(OpId op, int64_t micro, Fragment fragment) { base_.push_back({op, micro, fragment, none}); }

    void lay_out() {
        const bool separate = std::any_of(schedule_.order.begin(), schedule_.order.end(),
                                          [](const Fragment& f) { return f.kind == Fragment::Kind::weight; });
        const auto count = static_cast<OpId>(program().ops.size());
        auto once = [&](Section section) {
            for (OpId id = 0; id < count; ++id) {
                const OpRole& role = roles_.ops[static_cast<size_t>(id)];
                if (role.section != section || role.absorbed) continue;
                if (section == Section::after && roles_.collective(program().op(id))) {
                    hoisted_.push_back(id);
                } else {
                    add(id, -1, {role.kind, -1, 0});
                }
            }
        };
        once(Section::before);
        for (const Fragment& fragment : schedule_.order)
            for (OpId id = 0; id < count; ++id) {
                const OpRole& role = roles_.ops[static_cast<size_t>(id)];
                if (!role.absorbed && belongs(role, fragment, separate))
                    add(id, roles_.micros > 1 ? fragment.micro : 0, fragment);
            }
        once(Section::after);
    }

    void find_producers() {
        made_at_.assign(static_cast<size_t>(roles_.instances), -1);
        readers_.assign(static_cast<size_t>(roles_.instances), 0);
        for (size_t at = 0; at < base_.size(); ++at) {
            for (ValueId id : roles_.reads(base_[at].op)) ++readers_at(roles_.find(id, base_[at].micro).instance);
            for (ValueId id : program().op(base_[at].op).outputs) {
                made_at(roles_.find(id, base_[at].micro).instance) = static_cast<int>(at);
                if (roles_.value(id).accumulated) made_at(roles_.instance(id, -1)) = static_cast<int>(at);
            }
        }
        for (OpId id : hoisted_)
            for (ValueId input : roles_.reads(id)) ++readers_at(roles_.find(input, -1).instance);
        for (const Result& r : program().results) ++readers_at(roles_.find(r.value, -1).instance);
        for (const Update& u : program().updates) ++readers_at(roles_.find(u.value, -1).instance);
    }

    int& made_at(int instance) { return made_at_[static_cast<size_t>(instance)]; }
    int& readers_at(int instance) { return readers_[static_cast<size_t>(instance)]; }

    /// A kernel makes the input for this all-reduce alone, so that it can be made inside the bucket.
    bool can_join(OpId id) {
        const Op& op = program().op(id);
        if (op.kind != "all_reduce" || program().bucket_bytes(op.attributes.text("axis")) <= 0) return false;
        const Ref in = roles_.find(op.inputs[0], -1);
        ValueId root = op.inputs[0];
        while (roles_.value(root).alias != none) root = roles_.value(root).alias;
        const OpId maker = program().value(root).op;
        // What is made after the loop may come later than what reads the other members.
        const int made = made_at(in.instance);
        return maker != none && in.offset == 0 && readers_at(in.instance) == 1 && made >= 0 &&
               base_[static_cast<size_t>(made)].micro >= 0 && roles_.instance(root, -1) == in.instance &&
               !roles_.value(root).gathered &&
               roles_.value(root).type.bytes() == roles_.value(op.inputs[0]).type.bytes() &&
               !roles_.collective(program().op(maker));
    }

    void hoist() {
        std::vector<std::pair<int, OpId>> joining;
        for (OpId id : hoisted_) {
            const Op& op = program().op(id);
            const int at = made_at(roles_.find(op.inputs[0], -1).instance);
            if (can_join(id)) {
                joining.emplace_back(at, id);
            } else {
                attached_.emplace_back(at, Step{id, -1, {Fragment::Kind::backward, -1, 0}, none});
            }
            for (ValueId output : op.outputs) made_at(roles_.instance(output, -1)) = at;
        }
        std::stable_sort(joining.begin(), joining.end());
        std::map<Key, size_t> open;
        for (const auto& [at, id] : joining) join(at, id, open);
        for (size_t i = 0; i < order_.buckets.size(); ++i) settle(i);
    }

    /// What may share a message. The loss, made in the forward pass, does not hold a gradients' bucket open or alive.
    using Key = std::tuple<AxisId, ReduceOp, DType, bool>;

    void join(int at, OpId id, std::map<Key, size_t>& open) {
        const Op& op = program().op(id);
        const TensorType& type = roles_.value(op.inputs[0]).type;
        const AxisId axis = roles_.axis(op);
        const bool forward = base_[static_cast<size_t>(at)].fragment.kind == Fragment::Kind::forward;
        const Key key{axis, reduce_of(op), type.dtype, forward};
        auto found = open.find(key);
        if (found == open.end() ||
            order_.buckets[found->second].bytes + type.bytes() > program().bucket_bytes(op.attributes.text("axis"))) {
            open[key] = order_.buckets.size();
            order_.buckets.push_back({axis, reduce_of(op), type.dtype, {}, 0});
            ready_.push_back(at);
        }
        Bucket& bucket = order_.buckets[open[key]];
        bucket.members.push_back({id, 0, type.bytes()});
        bucket.bytes += type.bytes();
        ready_[open[key]] = std::max(ready_[open[key]], at);
    }

    /// Places the members and puts the message right after the last of them is made.
    void settle(size_t index) {
        Bucket& bucket = order_.buckets[index];
        auto alignment = [](const Bucket::Member& m) { return std::min<int64_t>(64, m.bytes & -m.bytes); };
        std::stable_sort(bucket.members.begin(), bucket.members.end(),
                         [&](const auto& a, const auto& b) { return alignment(a) > alignment(b); });
        int64_t offset = 0;
        for (Bucket::Member& member : bucket.members) {
            member.offset = offset;
            offset += member.bytes;
        }
        attached_.emplace_back(
            ready_[index],
            Step{bucket.members.front().op, -1, {Fragment::Kind::backward, -1, 0}, static_cast<int>(index)});
        for (const Bucket::Member& member : bucket.members)
            made_at(roles_.instance(program().op(member.op).outputs[0], -1)) = ready_[index];
    }

    /// Hoisted steps follow the step that makes their input; what needs nothing from the loop comes after it.
    void merge() {
        // A collective that reads another's output must not overtake it: places only grow along such a chain.
        for (auto& [at, step] : attached_) {
            const std::vector<ValueId> inputs = step.bucket == none ? roles_.reads(step.op) : std::vector<ValueId>{};
            for (ValueId input : inputs) at = std::max(at, made_at(roles_.find(input, -1).instance));
            if (step.bucket != none) continue;
            for (ValueId output : program().op(step.op).outputs) made_at(roles_.instance(output, -1)) = at;
        }
        auto rank = [&](const std::pair<int, Step>& a) { return std::make_tuple(a.first, chained(a.second)); };
        std::stable_sort(attached_.begin(), attached_.end(),
                         [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
        auto next = attached_.begin();
        order_.steps.reserve(base_.size() + attached_.size());
        for (; next != attached_.end() && next->first < 0; ++next) order_.steps.push_back(next->second);
        for (size_t at = 0; at < base_.size(); ++at) {
            order_.steps.push_back(base_[at]);
            for (; next != attached_.end() && next->first == static_cast<int>(at); ++next)
                order_.steps.push_back(next->second);
        }
    }

    /// How many hoisted collectives precede this one on its way from a kernel.
    int chained(const Step& step) {
        if (step.bucket != none) return 0;
        int depth = 0;
        for (OpId maker = program().value(program().op(step.op).inputs[0]).op;
             maker != none && (roles_.collective(program().op(maker)) || roles_.of(program().op(maker)).absorbed) &&
             !program().op(maker).inputs.empty();
             maker = program().value(program().op(maker).inputs[0]).op)
            ++depth;
        return depth;
    }

    const Roles& roles_;
    const RankSchedule& schedule_;
    std::vector<Step> base_;
    std::vector<OpId> hoisted_;
    std::vector<std::pair<int, Step>> attached_;  ///< (place in base_, step)
    std::vector<int> made_at_;                    ///< per instance: the last step that writes it
    std::vector<int> readers_;                    ///< per instance: steps and ends that read it
    std::vector<int> ready_;                      ///< per bucket
    Order order_;
};

}  // namespace

ReduceOp reduce_of(const Op& op) {
    const std::string name = op.attributes.text("op", "sum");
    for (ReduceOp reduce : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
        if (name == name_of(reduce)) return reduce;
    throw Error(op.origin, op.kind + " has no reduction '" + name + "'; there are sum, max and min");
}

Order order_steps(const Roles& roles, const RankSchedule& schedule) { return Ordering(roles, schedule).run(); }

}  // namespace orrery::lowering
