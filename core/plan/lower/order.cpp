#include "plan/lower/order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "ir/sent.h"
#include "plan/lower/run_ahead.h"
#include "plan/replay/replay.h"
#include "plan/timeline.h"

namespace orrery::lowering {

namespace {

/// Orders the steps of one pipeline rank:
///  1. lay_out writes the ops before the loop, those of each fragment, and those after the loop. It sets collectives
///     after the loop aside, as they may run as soon as the last micro-batch has made their inputs.
///  2. post_receives or receive_on_time moves receives, so that their order cannot deadlock.
///  3. RunAhead moves gathers of params and steps that wait for reduce-scatters.
///  4. hoist attaches each collective that was set aside to the step that makes its input. All-reduces that may share a
///     message join a bucket, which is attached to the step that makes its last member.
///  5. merge inserts the attached steps.
///  6. open moves what is made of sent states to the start.
class Ordering {
public:
    Ordering(const LoopAnalysis& roles, const RankSchedule& schedule, bool group)
        : roles_(roles), schedule_(schedule), group_(group) {
        for (size_t i = 0; i < schedule.order.size(); ++i) {
            const Fragment& f = schedule.order[i];
            fragments_[{f.kind, f.micro, f.chunk}] = i;
        }
        lay_out();
    }

    /// By pipeline rank: the messages that this rank sends to it, each as (op, micro-batch), in order.
    using Message = std::pair<OpId, int64_t>;
    std::map<int, std::vector<Message>> sends() const {
        std::map<int, std::vector<Message>> to;
        for (const Step& s : base_)
            if (roles_.sends(s.op)) {
                const int64_t stage = program().op(s.op).attributes.integer("to");
                to[roles_.spread.rank_of[stage]].emplace_back(s.op, s.micro);
            }
        return to;
    }

    /// Moves receives up to match the order of the peer's sends: each precedes the receives of all later sends.
    void post_receives(const std::vector<Message>& sent) {
        std::map<Message, size_t> needed;
        for (size_t at = 0; at < base_.size(); ++at)
            if (is_transfer(roles_.def(base_[at].op)) && !roles_.sends(base_[at].op))
                needed[{base_[at].op, base_[at].micro}] = at;
        std::vector<std::pair<size_t, size_t>> moved;  // (step to move before, step to move), the last one first
        size_t bound = base_.size();
        for (size_t i = sent.size(); i-- > 0;) {
            const size_t at = needed.at(sent[i]);
            if (at > bound) moved.emplace_back(bound, at);
            bound = std::min(bound, at);
        }
        if (moved.empty()) return;
        std::vector<char> taken(base_.size(), 0);
        for (const auto& [before, from] : moved) taken[from] = 1;
        std::vector<Step> steps;
        for (size_t at = 0; at < base_.size(); ++at) {
            for (; !moved.empty() && moved.back().first == at; moved.pop_back())
                steps.push_back(base_[moved.back().second]);
            if (!taken[at]) steps.push_back(base_[at]);
        }
        base_ = std::move(steps);
    }

    /// For each message, the time of its send and the send's index on its rank. `slots`: the fragments of that rank.
    using Sent = std::map<Message, std::pair<int64_t, size_t>>;
    void note_sends(const std::vector<Slot>& slots, Sent& all) const {
        size_t sends = 0;
        for (const Step& s : base_)
            if (in_loop(s) && roles_.sends(s.op))
                all[{s.op, s.micro}] = {slots[fragment_index(s.fragment)].end, sends++};
    }

    /// Moves each receive between two fragments, to the time of its send on the schedule's timeline. All ranks then
    /// order their messages by one clock, so groups of messages in one lane cannot wait for each other in a cycle.
    void receive_on_time(const std::vector<Slot>& slots, const Sent& sent) {
        using Key = std::tuple<size_t, int64_t, size_t>;  // index of fragment, time of the send, index of the send
        std::vector<std::pair<Key, Step>> receives;
        std::vector<Step> rest;
        for (const Step& s : base_) {
            if (!in_loop(s) || !is_transfer(roles_.def(s.op)) || roles_.sends(s.op)) {
                rest.push_back(s);
                continue;
            }
            const auto [time, place] = sent.at({s.op, s.micro});
            const auto before = std::upper_bound(slots.begin(), slots.end(), time,
                                                 [](int64_t t, const Slot& slot) { return t < slot.end; });
            receives.push_back({{static_cast<size_t>(before - slots.begin()), time, place}, s});
        }
        std::stable_sort(receives.begin(), receives.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        size_t end = rest.size();
        while (end > 0 && !in_loop(rest[end - 1])) --end;
        base_.clear();
        auto next = receives.begin();
        for (size_t i = 0; i <= rest.size(); ++i) {
            const size_t here = i >= end ? slots.size() : in_loop(rest[i]) ? fragment_index(rest[i].fragment) : 0;
            const bool may = i >= end || in_loop(rest[i]);
            for (; may && next != receives.end() && std::get<0>(next->first) <= here; ++next)
                base_.push_back(next->second);
            if (i < rest.size()) base_.push_back(rest[i]);
        }
    }

    Order run(const std::vector<PrefetchDepth>& ahead) {
        RunAhead moved(roles_, ahead, std::move(base_));
        base_ = moved.take_steps();
        find_producers();
        hoist();
        hold(moved);
        merge();
        open();
        order_.readers = std::move(readers_);
        return std::move(order_);
    }

private:
    const Program& program() const { return roles_.program; }
    static bool in_loop(const Step& s) { return s.micro >= 0; }
    size_t fragment_index(const Fragment& f) const { return fragments_.at({f.kind, f.micro, f.chunk}); }

    void add(OpId op, int64_t micro, Fragment fragment) { base_.push_back({op, micro, fragment, none}); }

    void lay_out() {
        const bool separate = std::any_of(schedule_.order.begin(), schedule_.order.end(),
                                          [](const Fragment& f) { return f.kind == Fragment::Kind::weight; });
        const auto count = static_cast<OpId>(program().ops.size());
        auto once = [&](Section section) {
            for (OpId id = 0; id < count; ++id) {
                const OpRole& role = roles_.ops[id];
                if (role.section != section || role.absorbed) continue;
                const Op& op = program().op(id);
                const bool moved_up = roles_.collective(op) ? !roles_.crosses(op) : sent_as_cast(op);
                if (section == Section::after && moved_up) {
                    hoisted_.push_back(id);
                } else {
                    add(id, -1, {role.kind, -1, 0});
                }
            }
        };
        once(Section::before);
        const auto inside = by_fragment(separate);
        for (const Fragment& fragment : schedule_.order) {
            const auto found = inside.find({fragment.chunk, fragment.kind});
            if (found == inside.end()) continue;
            for (bool last : {false, true})
                for (OpId id : found->second)
                    if (last == (group_ && roles_.sends(id))) add(id, roles_.micros > 1 ? fragment.micro : 0, fragment);
        }
        once(Section::after);
    }

    /// Whether the op casts a gradient to the type of its message (encode_edges.h). It moves with the message.
    bool sent_as_cast(const Op& op) const {
        if (!roles_.def(op).casts || op.phase != Phase::backward) return false;
        const auto& readers = roles_.readers(op.outputs[0]);
        return readers.ends == 0 && std::all_of(readers.ops.begin(), readers.ops.end(), [&](OpId id) {
                   const Op& reader = program().op(id);
                   return roles_.collective(reader) && !roles_.crosses(reader);
               });
    }

    /// The ops of each chunk's F, B and W fragments, in order. B includes W if the schedule has no W.
    std::map<std::pair<int, Fragment::Kind>, std::vector<OpId>> by_fragment(bool separate_weights) const {
        std::map<std::pair<int, Fragment::Kind>, std::vector<OpId>> all;
        for (OpId id = 0; id < std::ssize(roles_.ops); ++id) {
            const OpRole& role = roles_.ops[id];
            if (role.absorbed || role.section != Section::inside) continue;
            const bool along = role.kind == Fragment::Kind::weight && !separate_weights;
            all[{roles_.chunk_of(id), along ? Fragment::Kind::backward : role.kind}].push_back(id);
        }
        return all;
    }

    void find_producers() {
        made_at_.assign(roles_.instances, -1);
        readers_.assign(roles_.instances, 0);
        for (size_t at = 0; at < base_.size(); ++at) {
            if (base_[at].part != Step::Part::end)
                for (ValueId id : roles_.reads(base_[at].op)) ++readers_at(roles_.find(id, base_[at].micro).instance);
            for (ValueId id : roles_.makes(base_[at].op)) {
                made_at(roles_.find(id, base_[at].micro).instance) = at;
                if (roles_.value(id).accumulated) made_at(roles_.instance(id, -1)) = at;
            }
        }
        for (OpId id : hoisted_)
            for (ValueId input : roles_.reads(id)) ++readers_at(roles_.find(input, -1).instance);
        for (const Result& r : roles_.results) ++readers_at(roles_.find(r.value, -1).instance);
        for (const Update& u : roles_.updates) ++readers_at(roles_.find(u.value, -1).instance);
    }

    int& made_at(int instance) { return made_at_[instance]; }
    int& readers_at(int instance) { return readers_[instance]; }

    /// Whether a kernel makes the input only for this all-reduce, so that it can write the input into the bucket.
    bool can_join(OpId id) {
        const Op& op = program().op(id);
        if (roles_.def(id).collective != Opcode::all_reduce ||
            program().bucket_bytes(op.attributes.text("axis"), op.phase) <= 0)
            return false;
        const Ref in = roles_.find(op.inputs[0], -1);
        ValueId root = op.inputs[0];
        while (roles_.value(root).alias != none) root = roles_.value(root).alias;
        const OpId maker = program().value(root).op;
        // An input made after the loop could come after the readers of other members.
        const int made = made_at(in.instance);
        return maker != none && in.offset == 0 && readers_at(in.instance) == 1 && made >= 0 && base_[made].micro >= 0 &&
               roles_.instance(root, -1) == in.instance && !roles_.value(root).gathered &&
               roles_.value(root).type.bytes() == roles_.value(op.inputs[0]).type.bytes() &&
               !roles_.collective(program().op(maker)) && !(hoisted_cast(maker) && way_to(maker).collective);
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

    /// Members of a bucket have equal keys. The last field separates the loss, from the forward pass, from gradients.
    using Key = std::tuple<AxisId, ReduceOp, DType, bool>;

    void join(int at, OpId id, std::map<Key, size_t>& open) {
        const Op& op = program().op(id);
        const TensorType& type = roles_.value(op.inputs[0]).type;
        const AxisId axis = roles_.axis(op);
        const bool forward = base_[at].fragment.kind == Fragment::Kind::forward;
        const Key key{axis, reduce_of(op), type.dtype, forward};
        auto found = open.find(key);
        if (found == open.end() || order_.buckets[found->second].bytes + type.bytes() >
                                       program().bucket_bytes(op.attributes.text("axis"), op.phase)) {
            open[key] = order_.buckets.size();
            order_.buckets.push_back({axis, reduce_of(op), type.dtype, {}, 0});
            ready_.push_back(at);
        }
        Bucket& bucket = order_.buckets[open[key]];
        bucket.members.push_back({id, 0, type.bytes()});
        bucket.bytes += type.bytes();
        ready_[open[key]] = std::max(ready_[open[key]], at);
    }

    /// Assigns offsets to the members, and puts the message right after the step that makes the last of them.
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

    /// Moves each collective after the collective that makes its input. Positions only increase along such a chain.
    void chain() {
        for (auto& [at, step] : attached_) {
            const std::vector<ValueId> inputs = step.bucket == none ? roles_.reads(step.op) : std::vector<ValueId>{};
            for (ValueId input : inputs) at = std::max(at, made_at(roles_.find(input, -1).instance));
            if (step.bucket != none) continue;
            for (ValueId output : program().op(step.op).outputs) made_at(roles_.instance(output, -1)) = at;
        }
    }

    /// If a collective reads the output of one over another axis, and the loop still has collectives over its own axis,
    /// moves it to the end of the loop. Otherwise it would block these until the other axis' message is complete. An
    /// example is a norm's gradient, scattered over dp and then summed over tp.
    void behind_the_loop() {
        std::map<AxisId, int> last;  // by axis: position of the last collective in the loop
        int end = none;
        for (size_t at = 0; at < base_.size(); ++at) {
            if (!in_loop(base_[at])) continue;
            end = at;
            const Op& op = program().op(base_[at].op);
            if (!is_transfer(roles_.def(op)) && roles_.collective(op)) last[roles_.axis(op)] = end;
        }
        for (auto& [at, step] : attached_) {
            const Op& op = program().op(step.op);
            if (step.bucket != none || !roles_.collective(op) || at < 0 || at >= end) continue;
            const auto loop = last.find(roles_.axis(op));
            if (loop == last.end() || loop->second <= at || !way_to(step.op, loop->first).other_axis) continue;
            at = end;
            for (ValueId output : op.outputs) made_at(roles_.instance(output, -1)) = at;
        }
    }

    /// Keeps the input of a reduce-scatter alive while that may trail: kernels that reuse its buffer would wait.
    void hold(const RunAhead& moved) {
        chain();
        behind_the_loop();
        chain();
        std::vector<std::pair<int, OpId>> scatters;
        std::map<OpId, size_t> steps;
        for (size_t i = 0; i < attached_.size(); ++i) {
            const auto& [at, step] = attached_[i];
            if (step.bucket != none || roles_.def(step.op).collective != Opcode::reduce_scatter) continue;
            scatters.emplace_back(at, step.op);
            steps[step.op] = i;
        }
        std::stable_sort(scatters.begin(), scatters.end());
        const std::vector<int> until = moved.held_until(scatters);
        for (size_t i = 0; i < scatters.size(); ++i) {
            if (until[i] == none) continue;
            Step& scatter = attached_[steps.at(scatters[i].second)].second;
            Step release = scatter;
            scatter.part = Step::Part::held;
            release.part = Step::Part::release;
            attached_.emplace_back(until[i], release);
        }
    }

    /// Inserts each attached step after the step that makes its input, or before all steps if no step makes it.
    void merge() {
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

    /// Moves before all others the kernels of sent states alone and the collectives of what these make (opening.h), if
    /// there is such a collective.
    void open() {
        std::vector<char> made(program().values.size(), 0), first(order_.steps.size(), 0);
        bool sends = false;
        for (size_t i = 0; i < first.size(); ++i) {
            const Step& s = order_.steps[i];
            const auto& reads = roles_.reads(s.op);
            const bool collective = roles_.collective(program().op(s.op));
            const bool stays = is_transfer(roles_.def(s.op)) || roles_.def(s.op).between_stages;
            first[i] = !stays && !reads.empty() && std::ranges::all_of(reads, [&](ValueId id) {
                for (OpId maker = program().value(id).op; maker != none && roles_.of(program().op(maker)).absorbed;
                     maker = program().value(id).op)
                    id = program().op(maker).inputs[0];
                return is_sent(program().value(id)) || made[id];
            });
            sends |= first[i] && collective;
            for (const ValueId id : roles_.makes(s.op)) made[id] = first[i] && !collective;
        }
        if (!sends) return;
        std::vector<Step> steps;
        for (const char opens : {1, 0})
            for (size_t i = 0; i < first.size(); ++i)
                if (first[i] == opens) steps.push_back(order_.steps[i]);
        order_.steps = std::move(steps);
    }

    /// The attached steps between a kernel and the input of an op: how many, whether a collective is among them, and
    /// whether one over an axis other than `own` is.
    struct Way {
        int steps = 0;
        bool collective = false, other_axis = false;
    };

    Way way_to(OpId op, AxisId own = none) const {
        Way way;
        const auto maker_of = [&](OpId id) { return program().value(program().op(id).inputs[0]).op; };
        for (OpId id = maker_of(op); id != none && !program().op(id).inputs.empty(); id = maker_of(id)) {
            const Op& maker = program().op(id);
            const bool collective = roles_.collective(maker);
            if (!collective && !roles_.of(maker).absorbed && !hoisted_cast(id)) break;
            way.collective |= collective;
            way.other_axis |= collective && roles_.axis(maker) != own;
            ++way.steps;
        }
        return way;
    }

    bool hoisted_cast(OpId id) const {
        const Op& op = program().op(id);
        return roles_.of(op).section == Section::after && sent_as_cast(op);
    }

    /// The position among steps attached to one step: casts of kernel outputs, buckets, by length of chain, releases.
    int chained(const Step& step) const {
        if (step.part == Step::Part::release) return std::numeric_limits<int>::max();
        if (step.bucket != none) return 0;
        const Way way = way_to(step.op);
        return hoisted_cast(step.op) && !way.collective ? -1 : way.steps;
    }

    const LoopAnalysis& roles_;
    const RankSchedule& schedule_;
    bool group_;
    std::map<std::tuple<Fragment::Kind, int64_t, int>, size_t> fragments_;  ///< index of a fragment in the schedule
    std::vector<Step> base_;
    std::vector<OpId> hoisted_;
    std::vector<std::pair<int, Step>> attached_;  ///< attached steps: (step of base_ that it follows, step)
    std::vector<int> made_at_;                    ///< by instance of a value: last step that writes it
    std::vector<int> readers_;                    ///< by instance: number of steps, results and updates that read it
    std::vector<int> ready_;                      ///< by bucket: the step that makes its last member
    Order order_;
};

}  // namespace

ReduceOp reduce_of(const Op& op) {
    const std::string name = op.attributes.text("op", "sum");
    for (ReduceOp reduce : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
        if (name == name_of(reduce)) return reduce;
    throw Error(op.origin, op.kind + " has no reduction '" + name + "'; there are sum, max and min");
}

namespace {

/// Finds the receive after which each sender knows that its message has arrived. Replays the messages of all ranks with
/// vector clocks: a receiving rank learns all that the sender knew when it sent.
class Arrivals final : public ReplayPolicy {
public:
    Arrivals(const std::vector<LoopAnalysis>& shares, std::vector<Order>& orders)
        : orders_(orders), known_(orders.size(), std::vector<int>(orders.size(), none)), open_(orders.size()) {
        for (size_t r = 0; r < orders.size(); ++r) {
            view_.add_actor();
            for (size_t at = 0; at < orders[r].steps.size(); ++at) {
                const Step& s = orders[r].steps[at];
                if (s.bucket != none || !is_transfer(shares[r].def(s.op))) continue;
                const bool sends = shares[r].sends(s.op);
                const int channel = channel_of({s.op, s.micro});
                if (!sends) received_[channel] = {static_cast<int>(r), static_cast<int>(at)};
                const auto kind = sends ? ReplayItem::Kind::send : ReplayItem::Kind::receive;
                view_.add({.kind = kind, .lane = 0, .channel = channel, .source = static_cast<int>(at)});
            }
        }
    }

    void run() { Replay(view_, *this).run(); }

    void done(int item) override {
        const ReplayItem& i = view_.at(item);
        const int rank = i.actor, channel = i.channel;
        std::vector<int>& known = known_[rank];
        known[rank] = i.source;
        if (i.kind == ReplayItem::Kind::send) {
            sent_[channel] = known;
            open_[rank].emplace_back(i.source, channel);
            return;
        }
        for (size_t q = 0; q < known.size(); ++q) known[q] = std::max(known[q], sent_[channel][q]);
        std::erase_if(open_[rank], [&](const auto& sent) {
            const auto [peer, there] = received_[sent.second];
            if (known[peer] < there) return false;
            orders_[rank].arrived_by[sent.first] = i.source;
            return true;
        });
    }

private:
    /// The channel of a message. Each message has its own, because receives may be in any order.
    int channel_of(const std::pair<OpId, int64_t>& message) {
        const auto [place, fresh] = channels_.try_emplace(message, channels_.size());
        if (!fresh) return place->second;
        sent_.emplace_back();
        received_.emplace_back(none, none);
        return view_.add_channel(1);
    }

    std::vector<Order>& orders_;
    std::map<std::pair<OpId, int64_t>, int> channels_;
    std::vector<std::vector<int>> sent_;         ///< by channel: by rank, last complete step that the sender knew
    std::vector<std::pair<int, int>> received_;  ///< by channel: the receiving rank, and the step that receives
    std::vector<std::vector<int>> known_;        ///< [rank][other]: last step of `other` that `rank` knows to be done
    std::vector<std::vector<std::pair<int, size_t>>> open_;  ///< by rank: (send, channel) that may still be in flight
    ReplayView view_;
};

}  // namespace

std::vector<Order> order_steps(const std::vector<LoopAnalysis>& shares, const Schedule& schedule, Messages messages,
                               const std::vector<PrefetchDepth>& ahead) {
    std::vector<Ordering> ranks;
    ranks.reserve(shares.size());
    for (size_t r = 0; r < shares.size(); ++r)
        ranks.emplace_back(shares[r], schedule.ranks[r], messages != Messages::apart);
    if (messages == Messages::grouped) {
        const Timeline time = timeline(schedule);
        Ordering::Sent sent;
        for (size_t r = 0; r < ranks.size(); ++r) ranks[r].note_sends(time.ranks[r], sent);
        for (size_t r = 0; r < ranks.size(); ++r) ranks[r].receive_on_time(time.ranks[r], sent);
    } else {
        for (const Ordering& rank : ranks)
            for (const auto& [to, sent] : rank.sends()) ranks[to].post_receives(sent);
    }
    std::vector<Order> orders;
    for (Ordering& rank : ranks) orders.push_back(rank.run(ahead));
    if (orders.size() > 1) Arrivals(shares, orders).run();
    return orders;
}

}  // namespace orrery::lowering
