#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/lower/order.h"

namespace orrery::lowering {

/// Prefetches gathers of params, and lets reduce-scatters of gradients trail, by a PrefetchDepth. With one layer:
///   layer 2: kernels                      layer 2: begin gather 3, kernels
///   layer 3: gather 3, kernels     ->     layer 3: end gather 3, kernels
/// The loop is divided into layers, where the layer of the model or the fragment changes. A gather and the ops that
/// pack its input move to the start of an earlier layer, possibly of another fragment. The ops that wait for a
/// reduce-scatter move to the end of a later layer, if the axis has such gathers. In such a loop, a layer without other
/// messages computes gradients of params before those of its inputs. Messages over one axis keep their order. Linear in
/// steps, but for sorting and the ops that gradients read.
class RunAhead {
public:
    /// `ahead`: the prefetch depth by AxisId. `base`: the steps of the rank, in order.
    RunAhead(const LoopAnalysis& roles, const std::vector<PrefetchDepth>& ahead, std::vector<Step> base);

    std::vector<Step> take_steps() { return std::move(steps_); }
    /// For each reduce-scatter after the loop, the step until which its input must stay in memory; none if its own step
    /// suffices. `scatters`: in order, each with the index of the step (in take_steps()) that it follows.
    std::vector<int> held_until(const std::vector<std::pair<int, OpId>>& scatters) const;

private:
    /// A gather of params or a reduce-scatter of gradients, which may move to another layer.
    struct Message {
        size_t step = 0;  ///< index in base_
        AxisId axis = none;
        int layer = 0;
        int64_t bytes = 0;  ///< size of the whole params or gradients
    };

    const Program& program() const { return roles_.program; }
    const PrefetchDepth& ahead(AxisId axis) const { return ahead_[axis]; }
    bool gathers_over(AxisId axis) const { return !gathers_over_.empty() && gathers_over_[axis]; }
    int step_of(OpId op, int64_t micro) const;
    static bool in_loop(const Step& s) { return s.micro >= 0; }
    bool moves_ahead(const Step& s);
    bool of_params_alone(OpId op);
    bool trails(const Step& s);
    bool follow(ValueId value, std::set<OpId>& followers) const;
    /// The layer that an op between two layers counts with: that at its position, the next or the preceding one.
    enum class Belongs : uint8_t { here, to_the_next, to_the_last };
    std::vector<Belongs> find_messages();
    void cut_in_layers();
    void weights_first();
    bool reads(size_t reader, size_t maker) const;
    void move_gathers();
    void move_scatters();
    void bring_along(OpId op, int64_t micro, size_t layer);
    void begin_in_order(OpId op, int64_t micro, int begin, const std::map<size_t, size_t>& gather_at,
                        std::vector<int>& begins) const;
    std::vector<int> begins(const std::vector<Message>& messages) const;
    std::vector<int> ends(const std::vector<Message>& messages) const;
    void merge();

    using Parts = std::vector<std::pair<size_t, Step::Part>>;  ///< indices in base_, and which part of the step

    const LoopAnalysis& roles_;
    const std::vector<PrefetchDepth>& ahead_;
    std::vector<Step> base_;
    std::vector<Step> steps_;
    std::vector<int> at_;      ///< [op * (written + 1) + micro + 1]: index of the step in base_
    std::vector<int> scopes_;  ///< by op: its layer of the model
    std::vector<char> pure_;   ///< by op: whether it depends only on params and states; 0: not known yet, 1: yes, 2: no
    std::vector<Message> gathers_, scatters_;
    std::vector<char> gathers_over_;  ///< by AxisId: whether a gather over the axis may move
    std::map<OpId, std::optional<std::set<OpId>>>
        followers_;              ///< by reduce-scatter: ops of the loop that wait for it; nullopt: it cannot move
    std::vector<int> layer_of_;  ///< by step of base_: its layer; none: outside the loop, or a transfer between stages
    std::vector<size_t> first_, last_;
    std::vector<char> taken_;
    std::vector<Parts> front_, back_;  ///< by layer: steps that moved to its start; to its end
    std::vector<int> layer_at_;        ///< by step of steps_: its layer
    std::vector<int> end_of_;
};

}  // namespace orrery::lowering
