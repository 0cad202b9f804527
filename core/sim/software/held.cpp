#include "sim/software/held.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/op.h"
#include "plan/lower/buffers.h"
#include "plan/memory_parts.h"
#include "sim/kernel_prices.h"
#include "sim/software/passes.h"

namespace orrery {
namespace {

/// Bytes of a logit where the loss is several kernels: in 16 bits, in f32, its softmax or the logarithm of that in f32,
/// and its gradient in 16 bits.
constexpr double logit_bytes = 2 + 4 + 4 + 2;

class Held {
public:
    Held(const Plan& plan, const RankClass& c, const SoftwareRun& run)
        : plan_(plan),
          p_(plan.program),
          c_(c),
          how_(run),
          tp_(plan.mesh.find("tp").value_or(none)),
          data_(axes_named(plan.mesh, {"dp", "ep", "cp"})),
          backward_(p_.values.size()) {
        for (const Op& op : p_.ops) {
            if (op.attributes.text("axis") == "tp" && gathers_again(p_, op)) gathered_again_.insert(op.inputs[0]);
            if (op.phase == Phase::backward)
                for (ValueId input : op.inputs) backward_[input].push_back(&op);
            if (const OpDef& def = op_def(op.kind); def.loss && op.phase == Phase::forward)
                logits_.insert(op.inputs[0]);
        }
    }

    int64_t bytes(std::string* text) {
        for (const Operand& place : c_.places) count_place(place);
        std::vector<Alive> alive;
        const std::vector<Lifetime> lives = pool_lifetimes(c_);
        const std::vector<double> pool_scale = scale_of_pools(lives.size());
        for (size_t pool = 0; pool < lives.size(); ++pool)
            alive.push_back({static_cast<double>(lives[pool].bytes) * pool_scale[pool], lives[pool].first,
                             lives[pool].last, nullptr});
        for (const Buffer& b : c_.buffers)
            if (b.arena == Arena::scratch && b.first >= 0 && b.frames == none)
                alive.push_back({held(b), b.first, b.last, &b});
        for (const Buffer& b : c_.buffers)
            if (how_.zero < 3 && b.value != none)
                if (const ValueId param = copied_param(p_, b.value); param != none) count_param(param);
        const auto [most, when] = fullest(alive);
        if (text) *text += text_of(alive, when);
        return static_cast<int64_t>(always_ + most);
    }

private:
    struct Alive {
        double bytes = 0;
        int first = 0, last = 0;
        const Buffer* buffer = nullptr;
    };

    /// The largest sum of bytes in use at once, and at which instruction.
    static std::pair<double, int> fullest(const std::vector<Alive>& alive) {
        std::map<int, double> change;
        for (const Alive& one : alive) change[one.first] += one.bytes, change[one.last + 1] -= one.bytes;
        double now = 0, most = 0;
        int when = 0;
        for (const auto& [index, by] : change)
            if ((now += by) > most) most = now, when = index;
        return {most, when};
    }

    void count_place(const Operand& place) {
        const Value& value = p_.value(place.value);
        const int64_t bytes = place.type.bytes();
        if (value.role == Role::param && how_.zero < 3) count_param(place.value);
        if (value.role != Role::param && value.role != Role::state) {
            always_ += static_cast<double>(bytes);
            return;
        }
        // Flat buffers also split what no dim of a param divides.
        const int64_t ranks = how_.zero > 0 && !split_by_data(value) ? data_ranks() : 1;
        const double part = static_cast<double>(bytes) / static_cast<double>(ranks);
        states_ += part;
        always_ += part;
    }

    /// A param's copy in 16 bits and its gradients, which stay during the whole step.
    void count_param(ValueId param) {
        if (!counted_.insert(param).second) return;
        int64_t parts = 1;
        const Value& value = p_.value(param);
        for (size_t dim = 0; dim < value.layout.splits().size(); ++dim)
            for (const AxisId axis : value.layout.splits()[dim])
                if (!is_data(axis) || value.dims[dim] == "experts") parts *= plan_.mesh.size(axis);
        const double bytes = (2 + gradient_bytes()) * static_cast<double>(value.type.count() / parts);
        params_ += bytes;
        always_ += bytes;
    }

    double gradient_bytes() const {
        const double summed = how_.reduce_bf16 ? 2 : 4;
        switch (how_.software.held_gradients) {
            case SoftwareDefaults::HeldGradients::as_summed: return summed;
            case SoftwareDefaults::HeldGradients::bits_16: return 2;
            case SoftwareDefaults::HeldGradients::f32_and_16_bits: return 6;
            case SoftwareDefaults::HeldGradients::sharded:
                return how_.zero < 2 ? summed : summed / static_cast<double>(data_ranks());
        }
        return 0;
    }

    bool is_data(AxisId axis) const { return data_[at(axis)] != 0; }
    bool split_by_data(const Value& value) const {
        for (const auto& axes : value.layout.splits())
            for (const AxisId axis : axes)
                if (is_data(axis)) return true;
        return false;
    }
    int64_t data_ranks() const {
        int64_t ranks = 1;
        for (size_t axis = 0; axis < plan_.mesh.axes().size(); ++axis)
            if (data_[axis]) ranks *= plan_.mesh.axes()[axis].size;
        return ranks;
    }

    /// Bytes that the software has for a buffer of the plan.
    double held(const Buffer& b) const {
        const auto bytes = static_cast<double>(b.bytes);
        if (b.value == none || b.use == BufferUse::workspace) return bytes;
        if (copied_param(p_, b.value) != none) return how_.zero < 3 ? 0 : bytes * gathered_param(b);
        if (b.use == BufferUse::gradient) return how_.zero < 3 ? 0 : bytes;
        return bytes * activation(b);
    }

    /// FSDP holds whole params only of the units that it is computing, and casts nothing before it gathers.
    double gathered_param(const Buffer& b) const {
        const OpId maker = p_.value(b.value).op;
        if (maker == none || !communicates(op_def(p_.op(maker).kind)) || saved(b)) return 0;
        return how_.software.f32_params ? 3 : 1;  // in f32, and as autocast makes them
    }

    /// Saved for a backward pass.
    bool saved(const Buffer& b) const {
        const auto phase = [&](int index) {
            const OpId op = c_.stream[static_cast<size_t>(index)].op;
            return op == none ? Phase::forward : p_.op(op).phase;
        };
        return phase(b.first) == Phase::forward && phase(b.last) == Phase::backward;
    }

    double activation(const Buffer& b) const {
        const Value& value = p_.value(b.value);
        if (logits_.contains(b.value))
            return how_.software.loss == SoftwareDefaults::Loss::fused ? 1 : logit_bytes / size_of(value.type.dtype);
        if (value.op == none || p_.op(value.op).phase != Phase::forward || !saved(b)) return 1;
        const Op& maker = p_.op(value.op);
        const OpDef& def = op_def(maker.kind);
        // A plan gathers inputs of GEMMs over tp again that the software saves, or the reverse.
        double factor = 1;
        const auto ranks = static_cast<double>(tp_ == none ? 1 : plan_.mesh.size(tp_));
        if (!how_.software.gathers_again && gathered_again_.contains(b.value)) factor = ranks;
        if (how_.software.gathers_again && how_.sequence && gathered_again_.empty() && communicates(def) &&
            is_split_by_tp(maker.inputs[0]) && !is_split_by_tp(b.value))
            return 1 / ranks;
        if (how_.eight_bit) factor += eight_bit_copy(b.value);
        if (how_.software.separate_elementwise && multiplies_two(maker, def)) factor += 1;
        if (how_.recomputes_blocks && how_.software.f32_params) factor *= 2;  // autocast leaves the residual sum in f32
        return factor;
    }

    bool is_split_by_tp(ValueId id) const {
        return tp_ != none && p_.value(id).layout.at(tp_).kind == Placement::Kind::split;
    }

    /// Relative change in size from an 8-bit copy saved for the weight gradient; the 16-bit value is freed if nothing
    /// else reads it.
    double eight_bit_copy(ValueId id) const {
        bool weights = false, others = false;
        for (const Op* reader : backward_[id]) {
            (reader->forward != none && is_linear(p_.op(reader->forward), id) ? weights : others) = true;
        }
        return !weights ? 0 : others ? 0.5 : -0.5;
    }

    /// A GEMM of `id` and a param, but for the head.
    bool is_linear(const Op& op, ValueId id) const {
        return op_def(op.kind).product && op.inputs[0] == id && copied_param(p_, op.inputs[1]) != none &&
               !logits_.contains(op.outputs[0]);
    }

    /// Whether the op is a gate (product of two activations), of which PyTorch also saves the activated input.
    bool multiplies_two(const Op& op, const OpDef& def) const {
        if (op.inputs.size() != 2 || multiplies(def.work) || is_sum(def) || op.outputs.size() != 1) return false;
        if (p_.value(op.inputs[0]).type != p_.value(op.inputs[1]).type) return false;
        return std::ranges::any_of(backward_[op.inputs[0]], [&](const Op* reader) {
            return reader->forward != none && &p_.op(reader->forward) == &op &&
                   std::ranges::count(reader->inputs, op.inputs[1]) > 0;
        });
    }

    /// For each pool of frames: max bytes of a frame in the software, over that in the plan.
    std::vector<double> scale_of_pools(size_t pools) const {
        std::map<int, std::vector<Alive>> own, plans;  // by kind of frame
        for (const Buffer& b : c_.buffers) {
            if (b.arena != Arena::scratch || b.first < 0 || b.frames == none) continue;
            own[b.frames].push_back({held(b), b.first, b.last, &b});
            plans[b.frames].push_back({static_cast<double>(b.bytes), b.first, b.last, &b});
        }
        std::map<int, std::pair<double, double>> most;  // by pool
        for (const auto& [kind, alive] : own) {
            auto& [here, there] = most[c_.frames[static_cast<size_t>(kind)].pool];
            here = std::max(here, fullest(alive).first);
            there = std::max(there, fullest(plans[kind]).first);
        }
        std::vector<double> scale(pools, 1);
        for (const auto& [pool, two] : most)
            if (two.second > 0) scale[static_cast<size_t>(pool)] = two.first / two.second;
        return scale;
    }

    std::string text_of(const std::vector<Alive>& alive, int when) const {
        std::map<std::string, double> kinds{{"params and states", states_}, {"16-bit params and gradients", params_}};
        for (const Alive& one : alive) {
            if (one.first > when || one.last < when) continue;
            std::string name = "activations of micro-batches";
            if (one.buffer) {
                const Buffer& b = *one.buffer;
                name = std::string(name_of(b.use));
                if (b.value != none && p_.value(b.value).op != none)
                    name += fmt::format(" of {} {}", p_.op(p_.value(b.value).op).kind, p_.value(b.value).type.text());
            }
            kinds[name] += one.bytes;
        }
        std::vector<std::pair<std::string, double>> sorted(kinds.begin(), kinds.end());
        std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
        std::string text;
        for (size_t i = 0; i < std::min<size_t>(16, sorted.size()); ++i)
            text += fmt::format("  {:7.2f} GiB  {}\n", sorted[i].second / (1 << 30), sorted[i].first);
        return text;
    }

    const Plan& plan_;
    const Program& p_;
    const RankClass& c_;
    const SoftwareRun& how_;
    AxisId tp_;
    AxisFlags data_;                                ///< ranks along them share gradients and states
    std::vector<std::vector<const Op*>> backward_;  ///< by ValueId: ops of the backward pass that read it
    std::set<ValueId> logits_, counted_;
    std::set<ValueId> gathered_again_;  ///< values of forward passes that backward passes gather over tp
    double always_ = 0, states_ = 0, params_ = 0;
};

}  // namespace

int64_t held_bytes(const Plan& plan, const RankClass& c, const SoftwareRun& run, std::string* kinds) {
    return Held(plan, c, run).bytes(kinds);
}

}  // namespace orrery
