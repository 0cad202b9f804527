#include "plan/lower/run_ahead.h"

#include <algorithm>

#include "ir/layers.h"

namespace orrery::lowering {

RunAhead::RunAhead(const LoopAnalysis& roles, const std::vector<PrefetchDepth>& ahead, std::vector<Step> base)
    : roles_(roles), ahead_(ahead), base_(std::move(base)) {
    const bool any = std::any_of(ahead.begin(), ahead.end(), [](const PrefetchDepth& p) { return !p.none(); });
    if (!any) {
        steps_ = std::move(base_);
        return;
    }
    scopes_ = layers_of_ops(program());
    pure_.assign(program().ops.size(), 0);
    taken_.assign(base_.size(), 0);
    cut_in_layers();
    if (!gathers_.empty()) {
        weights_first();
        cut_in_layers();
    }
    front_.resize(first_.size());
    back_.resize(first_.size());
    if (!first_.empty()) {
        move_gathers();
        move_scatters();
    }
    merge();
}

int RunAhead::step_of(OpId op, int64_t micro) const { return at_[op * (roles_.written + 1) + micro + 1]; }

/// Whether a step is a gather, made in each fragment, of values that depend only on params and states.
bool RunAhead::moves_ahead(const Step& s) {
    const Op& op = program().op(s.op);
    return in_loop(s) && roles_.def(op).collective == Opcode::all_gather && op.attributes.text("keep") == "fragment" &&
           !ahead(roles_.axis(op)).none() && of_params_alone(s.op);
}

bool RunAhead::of_params_alone(OpId id) {
    char& known = pure_[id];
    if (known != 0) return known == 1;
    const OpRole& role = roles_.ops[id];
    const Op& op = program().op(id);
    bool pure = role.section != Section::after && !is_transfer(roles_.def(op));
    if (role.section == Section::inside) {
        for (ValueId out : op.outputs) pure = pure && roles_.over_micro(out).kind == Placement::Kind::replicate;
        for (ValueId in : op.inputs) {
            const OpId maker = program().value(in).op;
            pure = pure && (maker == none ? program().value(in).role != Role::input : of_params_alone(maker));
        }
    }
    pure_[id] = pure ? 1 : 2;
    return pure;
}

/// Whether a step is a reduce-scatter of gradients of params, with no message in the loop that depends on it.
bool RunAhead::trails(const Step& s) {
    const Op& op = program().op(s.op);
    const bool weight = roles_.ops[s.op].weight;
    if (!in_loop(s) || !weight || roles_.def(op).collective != Opcode::reduce_scatter || ahead(roles_.axis(op)).none())
        return false;
    const auto [found, fresh] = followers_.try_emplace(s.op);
    if (fresh) {
        std::set<OpId> followers;
        if (follow(op.outputs[0], followers)) found->second = std::move(followers);
    }
    return found->second.has_value();
}

/// Adds to `followers` the ops of the loop that depend on a value. Returns false if one of them communicates.
bool RunAhead::follow(ValueId value, std::set<OpId>& followers) const {
    for (OpId reader : roles_.readers(value).ops) {
        const OpRole& role = roles_.ops[reader];
        const Op& op = program().op(reader);
        if (role.section != Section::inside) continue;
        if (is_transfer(roles_.def(op)) || (roles_.collective(op) && !role.absorbed)) return false;
        if (!role.absorbed && !followers.insert(reader).second) continue;
        for (ValueId out : op.outputs)
            if (!follow(out, followers)) return false;
    }
    return true;
}

/// Finds the messages that may move. Returns by step the layer that a step between two layers belongs to.
std::vector<RunAhead::Belongs> RunAhead::find_messages() {
    gathers_.clear();
    scatters_.clear();
    std::vector<Belongs> belongs(base_.size(), Belongs::here);
    for (size_t i = 0; i < base_.size(); ++i) {
        const Step& s = base_[i];
        const Op& op = program().op(s.op);
        if (moves_ahead(s)) {
            gathers_.push_back({i, roles_.axis(op), none, roles_.value(op.outputs[0]).type.bytes()});
        } else if (belongs[i] == Belongs::here && trails(s)) {
            belongs[i] = Belongs::to_the_last;
            for (OpId follower : *followers_.at(s.op))
                if (const int at = step_of(follower, s.micro); at != none) belongs[at] = Belongs::to_the_last;
            scatters_.push_back({i, roles_.axis(op), none, roles_.value(op.inputs[0]).type.bytes()});
        }
        if (belongs[i] == Belongs::here && in_loop(s) && of_params_alone(s.op)) belongs[i] = Belongs::to_the_next;
    }
    return belongs;
}

/// Divides the loop into layers. An op without a scope belongs to the preceding layer, a gather to the layer that reads
/// it, a reduce-scatter with its followers to the layer that makes its input.
void RunAhead::cut_in_layers() {
    const size_t places = roles_.written + 1;
    at_.assign(program().ops.size() * places, none);
    for (size_t i = 0; i < base_.size(); ++i) at_[base_[i].op * places + (base_[i].micro + 1)] = i;
    first_.clear();
    last_.clear();
    layer_of_.assign(base_.size(), none);
    const std::vector<Belongs> belongs = find_messages();
    int scope = none;
    size_t waiting = 0;
    const auto settle = [&](size_t end) {
        for (; waiting < end; ++waiting)
            if (belongs[waiting] == Belongs::to_the_next && in_loop(base_[waiting]))
                layer_of_[waiting] = std::ssize(first_) - 1;
    };
    for (size_t i = 0; i < base_.size(); ++i) {
        const Step& s = base_[i];
        if (!in_loop(s) || is_transfer(roles_.def(s.op)) || belongs[i] == Belongs::to_the_next) continue;
        const int here = scopes_[s.op];
        const bool opens = first_.empty() || !(base_[first_.back()].fragment == s.fragment) ||
                           (belongs[i] == Belongs::here && here != none && here != scope);
        if (opens) {
            first_.push_back(i);
            last_.push_back(i);
        }
        if (opens || scope == none) scope = here;
        settle(i);
        waiting = std::max(waiting, i + 1);
        layer_of_[i] = std::ssize(first_) - 1;
        last_.back() = i;
    }
    if (first_.empty()) return;
    settle(base_.size());
    for (size_t i = last_.back() + 1; i < base_.size(); ++i)
        if (layer_of_[i] != none) last_.back() = i;
    for (auto* messages : {&gathers_, &scatters_})
        for (Message& m : *messages) m.layer = layer_of_[m.step];
    gathers_over_.assign(ahead_.size(), 0);
    for (const Message& m : gathers_) gathers_over_[m.axis] = 1;
}

/// Moves gradients of params before those of inputs where operands allow it, so that their reduce-scatters overlap with
/// the latter. Leaves layers with other messages, which overlap with gradients of params.
void RunAhead::weights_first() {
    const auto is_weight = [&](size_t i) { return roles_.ops[base_[i].op].weight; };
    std::vector<char> own(base_.size(), 0);
    for (const auto* messages : {&gathers_, &scatters_})
        for (const Message& m : *messages) own[m.step] = 1;
    const auto other = [&](size_t i) {
        const Op& op = program().op(base_[i].op);
        return is_transfer(roles_.def(op)) || (roles_.collective(op) && own[i] == 0);
    };
    std::vector<size_t> order;
    for (size_t begin = 0; begin < base_.size();) {
        size_t end = begin + 1;
        while (end < base_.size() && layer_of_[end] == layer_of_[begin]) ++end;
        bool apart = layer_of_[begin] == none;
        for (size_t i = begin; i < end; ++i) apart = apart || other(i);
        const size_t opened = order.size();
        size_t behind = opened;  // gradients of params move to this position or a later one
        for (size_t i = begin; i < end; ++i) {
            if (apart || !is_weight(i)) {
                order.push_back(i);
                continue;
            }
            for (size_t k = order.size(); k > behind; --k)
                if (reads(i, order[k - 1])) behind = k;
            order.insert(order.begin() + behind, i);
            ++behind;
        }
        begin = end;
    }
    std::vector<Step> steps;
    for (size_t i : order) steps.push_back(base_[i]);
    base_ = std::move(steps);
}

bool RunAhead::reads(size_t reader, size_t maker) const {
    const auto from = [&](auto&& self, OpId id) -> bool {
        for (ValueId in : program().op(id).inputs) {
            const OpId before = program().value(in).op;
            if (before == none) continue;
            if (before == base_[maker].op) return true;
            if (roles_.ops[before].absorbed && self(self, before)) return true;
        }
        return false;
    };
    return base_[reader].micro == base_[maker].micro && from(from, base_[reader].op);
}

/// By gather: the layer before which it begins. With a limit in bytes, this is the first layer from which on the
/// gathers of the axis that wait to be read, with this one, take no more bytes.
std::vector<int> RunAhead::begins(const std::vector<Message>& messages) const {
    struct Window {
        std::vector<size_t> messages;
        size_t from = 0;  ///< index in `messages` of the first gather that is read after `layer`
        int64_t bytes = 0;
        int layer = 0;
    };
    std::vector<Window> windows(ahead_.size());
    std::vector<int> all;
    for (size_t i = 0; i < messages.size(); ++i) {
        const Message& m = messages[i];
        const PrefetchDepth& p = ahead(m.axis);
        if (p.bytes == 0) {
            all.push_back(static_cast<int>(std::max<int64_t>(0, m.layer - p.layers)));
            continue;
        }
        Window& w = windows[m.axis];
        w.messages.push_back(i);
        w.bytes += m.bytes;
        while (w.bytes > p.bytes && w.layer < m.layer) {
            ++w.layer;
            for (; w.from < w.messages.size() && messages[w.messages[w.from]].layer <= w.layer; ++w.from)
                w.bytes -= messages[w.messages[w.from]].bytes;
        }
        all.push_back(std::min(w.layer, m.layer));
    }
    return all;
}

/// By reduce-scatter: the layer after which it ends. With a limit in bytes, this is the last layer until which it and
/// the reduce-scatters of the axis begun since take no more bytes.
std::vector<int> RunAhead::ends(const std::vector<Message>& messages) const {
    const int last = std::ssize(first_) - 1;
    std::vector<int> all(messages.size(), 0);
    std::vector<std::vector<size_t>> by_axis(ahead_.size());
    for (size_t i = 0; i < messages.size(); ++i) by_axis[messages[i].axis].push_back(i);
    for (const auto& of_axis : by_axis) {
        size_t to = 0;
        int64_t bytes = 0;
        for (size_t k = 0; k < of_axis.size(); ++k) {
            const Message& m = messages[of_axis[k]];
            const PrefetchDepth& p = ahead(m.axis);
            int& end = all[of_axis[k]];
            if (p.bytes == 0) {
                end = static_cast<int>(std::min<int64_t>(last, m.layer + p.layers));
                continue;
            }
            for (to = std::max(to, k); to < of_axis.size(); ++to) {
                if (bytes + messages[of_axis[to]].bytes > p.bytes) break;
                bytes += messages[of_axis[to]].bytes;
            }
            end = std::max(m.layer, to == of_axis.size() ? last : messages[of_axis[to]].layer);
            if (to > k) bytes -= m.bytes;
        }
    }
    return all;
}

void RunAhead::bring_along(OpId op, int64_t micro, size_t layer) {
    for (ValueId in : program().op(op).inputs) {
        const OpId maker = program().value(in).op;
        if (maker == none || roles_.ops[maker].section != Section::inside) continue;
        const int at = step_of(maker, micro);
        const size_t step = at;
        if (at != none && (step < first_[layer] || taken_[step])) continue;
        bring_along(maker, micro, layer);
        if (at == none) continue;
        taken_[step] = 1;
        front_[layer].emplace_back(step, base_[step].part);
    }
}

/// If gather `op` reads outputs of other gathers, lets them begin no later than it.
void RunAhead::begin_in_order(OpId op, int64_t micro, int begin, const std::map<size_t, size_t>& gather_at,
                              std::vector<int>& begins) const {
    for (ValueId in : program().op(op).inputs) {
        const OpId maker = program().value(in).op;
        if (maker == none || roles_.ops[maker].section != Section::inside) continue;
        const int at = step_of(maker, micro);
        const auto inner = at == none ? gather_at.end() : gather_at.find(at);
        if (inner == gather_at.end())
            begin_in_order(maker, micro, begin, gather_at, begins);
        else
            begins[inner->second] = std::min(begins[inner->second], begin);
    }
}

void RunAhead::move_gathers() {
    std::vector<int> begin = begins(gathers_);
    std::map<size_t, size_t> gather_at;
    std::vector<size_t> order;
    for (size_t i = 0; i < gathers_.size(); ++i) {
        gather_at[gathers_[i].step] = i;
        order.push_back(i);
    }
    for (size_t i = gathers_.size(); i-- > 0;) {
        const Step& s = base_[gathers_[i].step];
        begin_in_order(s.op, s.micro, begin[i], gather_at, begin);
    }
    // The gather that begins first moves first, with the steps for its inputs, which other gathers may need too.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return begin[a] < begin[b]; });
    for (size_t i : order) {
        const Message& m = gathers_[i];
        if (begin[i] == m.layer || taken_[m.step]) continue;
        const size_t layer = begin[i];
        Step& s = base_[m.step];
        bring_along(s.op, s.micro, layer);
        front_[layer].emplace_back(m.step, Step::Part::begin);
        s.part = Step::Part::end;
    }
}

void RunAhead::move_scatters() {
    const std::vector<int> end = ends(scatters_);
    std::map<size_t, int> followers;  // by step: the last layer in which a message ends that the step waits for
    for (size_t i = 0; i < scatters_.size(); ++i) {
        const Message& m = scatters_[i];
        if (end[i] == m.layer || !gathers_over(m.axis)) continue;
        Step& s = base_[m.step];
        s.part = Step::Part::begin;
        back_[end[i]].emplace_back(m.step, Step::Part::end);
        for (OpId follower : *followers_.at(s.op)) {
            const int at = step_of(follower, s.micro);
            if (at == none) continue;
            // A step may not move before its own layer: it may also read values that are made there.
            int& behind = followers.try_emplace(at, layer_of_[at]).first->second;
            behind = std::max(behind, end[i]);
        }
    }
    for (const auto& [step, behind] : followers) {
        taken_[step] = 1;
        back_[behind].emplace_back(step, Step::Part::whole);
    }
    for (Parts& back : back_) std::sort(back.begin(), back.end());
}

void RunAhead::merge() {
    end_of_.assign(first_.size(), none);
    const auto add = [&](size_t step, Step::Part part, int layer) {
        steps_.push_back(base_[step]);
        steps_.back().part = part;
        layer_at_.push_back(layer);
        if (layer != none) end_of_[layer] = std::ssize(steps_) - 1;
    };
    size_t opened = 0, closed = 0;
    for (size_t i = 0; i < base_.size(); ++i) {
        for (; opened < first_.size() && first_[opened] == i; ++opened)
            for (const auto& [step, part] : front_[opened]) add(step, part, opened);
        if (!taken_[i]) add(i, base_[i].part, layer_of_[i]);
        for (; closed < last_.size() && last_[closed] == i; ++closed)
            for (const auto& [step, part] : back_[closed]) add(step, part, closed);
    }
    at_.clear();
}

std::vector<int> RunAhead::held_until(const std::vector<std::pair<int, OpId>>& scatters) const {
    std::vector<int> until(scatters.size(), none);
    if (first_.empty()) return until;
    std::vector<Message> messages;
    std::vector<size_t> of;
    for (size_t i = 0; i < scatters.size(); ++i) {
        const auto& [at, id] = scatters[i];
        const Op& op = program().op(id);
        if (at < 0 || layer_at_[at] == none || !gathers_over(roles_.axis(op))) continue;
        messages.push_back({0, roles_.axis(op), layer_at_[at], roles_.value(op.inputs[0]).type.bytes()});
        of.push_back(i);
    }
    const std::vector<int> end = ends(messages);
    for (size_t k = 0; k < of.size(); ++k)
        if (end[k] > messages[k].layer) until[of[k]] = end_of_[end[k]];
    return until;
}

}  // namespace orrery::lowering
