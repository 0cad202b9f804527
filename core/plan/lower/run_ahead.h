#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/lower/order.h"

namespace orrery::lowering {

/// Moves gathers of params ahead of their readers, and what waits for reduce-scatters behind their makers, as far as
/// `PrefetchDepth` says. Steps of the loop over micro-batches are cut where the layer or the fragment changes; a gather
/// begins where the layer begins that is so many before the one that reads it, in whatever fragment that is, with the
/// ops that pack it. Reduce-scatters over an axis without such gathers stay. Where there are such, a layer's gradients
/// of params are made before those of its inputs, if it has no other messages. Messages of an axis keep their order.
/// Linear in steps, but for sorts and what a layer's gradients read.
class RunAhead {
public:
    /// `ahead`: by AxisId. `base`: the rank's steps, in order.
    RunAhead(const LoopAnalysis& roles, const std::vector<PrefetchDepth>& ahead, std::vector<Step> base);

    std::vector<Step> take_steps() { return std::move(steps_); }
    /// Reduce-scatters behind the loop, each with the step (of take_steps()) that it follows, in order: the step up to
    /// whose end its places are its own; none where nothing is held.
    std::vector<int> held_until(const std::vector<std::pair<int, OpId>>& scatters) const;

private:
    /// A message with the layer that it belongs to.
    struct Message {
        size_t step = 0;  ///< in base_
        AxisId axis = none;
        int layer = 0;
        int64_t bytes = 0;  ///< of the gathered params, or the gradients
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
    /// Of a step: to the layer that it stands in, to the one that opens next, or to the one that was opened last.
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

    using Parts = std::vector<std::pair<size_t, Step::Part>>;  ///< steps of base_

    const LoopAnalysis& roles_;
    const std::vector<PrefetchDepth>& ahead_;
    std::vector<Step> base_;
    std::vector<Step> steps_;
    std::vector<int> at_;      ///< [op * (written + 1) + micro + 1]: the step in base_
    std::vector<int> scopes_;  ///< per op: layers_of_ops
    std::vector<char> pure_;   ///< per op: 0 not looked at, 1 of params alone, 2 not
    std::vector<Message> gathers_, scatters_;
    std::vector<char> gathers_over_;  ///< by AxisId
    std::map<OpId, std::optional<std::set<OpId>>>
        followers_;                     ///< of reduce-scatters: what waits for it; none: it stays
    std::vector<int> layer_of_;         ///< per step of base_; none outside of the loop, and of transfers
    std::vector<size_t> first_, last_;  ///< per layer: steps of base_
    std::vector<char> taken_;           ///< per step of base_: stands elsewhere
    std::vector<Parts> front_, back_;   ///< per layer: what stands before and behind it
    std::vector<int> layer_at_;         ///< per step of steps_
    std::vector<int> end_of_;           ///< per layer: its last step of steps_
};

}  // namespace orrery::lowering
