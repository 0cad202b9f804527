#pragma once
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "plan/lower/lower.h"
#include "plan/lower/order.h"
#include "plan/lower/steady.h"

namespace orrery::lowering {

/// Writes the instruction stream of one rank class: finds operands and decides which outputs are computed in place.
class Emitter {
public:
    /// `steady`: the steady state of the schedule; nullptr: the stream contains all micro-batches.
    Emitter(const LoopAnalysis& roles, Order order, Persistent& persistent, const LowerOptions& options,
            const Steady* steady, RankClass& out);
    /// Returns false if the stream does not repeat itself as `steady` does.
    bool run();

private:
    struct Spot {
        int buffer = none;
        int64_t offset = 0;
        bool written = false;
    };
    /// Where a kernel writes an output.
    struct Target {
        ValueId value = none;
        Operand place;
        bool add = false;  ///< `place` contains other terms of a sum, which the output must not overwrite
    };

    /// A collective in flight, and what remains to be done after it.
    struct Underway {
        std::vector<int> buffers;
        Operand came, out;  ///< if `perm` is set: the blocks as received, and where they go in the order of `perm`
        std::vector<int64_t> perm;
        Target to;
        Operand made;
    };

    void place_persistent();
    void place_results();
    void place_buckets();
    void find_gradients();
    std::vector<size_t> beside_messages(int end) const;
    void set_apart_opening();
    void place_scratch();
    bool repeats() const { return steady_ != nullptr; }
    int new_buffer(int64_t bytes, ValueId value, BufferUse use, bool once = false);
    int persistent_buffer(int64_t offset, int64_t bytes, ValueId value, BufferUse use);
    Operand temporary(TensorType type, ValueId value);
    Spot& spot(int instance) { return spots_[instance]; }
    /// Bytes by which an operand moves per micro-batch in later runs of the repeated part; 0 if nothing repeats.
    int64_t step_of(const Ref& ref) const { return repeats() ? ref.step : 0; }
    int& uses(int instance) { return order_.readers[instance]; }
    TensorType type(ValueId id, int64_t micro) const;

    void step(const Step& step);
    void kernel(const Step& step);
    void finish_sum(const Step& step);
    void shard(const Step& step);
    void move(const Step& step);
    void collective(const Step& step);
    void transfer(const Step& step);
    void roll(const Step& step, Operand in, const Operand& out);
    int64_t tag_of(const Step& step) const;
    int lane(AxisId axis, int peer, Opcode what);
    int further_queue(AxisId axis, int peer, Opcode what);
    int queue_of(AxisId axis);
    void keep_sent();
    void keep_rolled();
    void keep_groups();
    void joined(const Step& step);
    void gather(const Step& step, const Operand& in, Underway& message);
    void scatter(const Step& step, const Operand& in, const Operand& out);
    void exchange(const Step& step, const Operand& in, Underway& message);
    Underway send_off(const Step& step);
    void arrive(const Step& step, const Underway& message);
    void hold(const Underway& message);
    void final_copies();

    Operand read(ValueId id, int64_t micro);
    std::vector<Operand> read_all(const Step& step);
    Target target(const Step& step, size_t output, const std::vector<Operand>& reads,
                  const std::vector<std::pair<int, int>>& in_place);
    bool take_over(const Step& step, const Operand& in, int input, int64_t bytes, const std::vector<Operand>& reads);
    int update_place(const Step& step, size_t output, const std::vector<Operand>& reads,
                     const std::vector<std::pair<int, int>>& in_place);
    void finish(const Step& step, const Target& target, const Operand& made);
    void accumulate(const Step& step, ValueId value, const Operand& part);

    Instruction& emit(Opcode what, const Step& step, std::vector<Operand> operands);
    void emit_kernel(const Step& step, KernelSpec spec, std::vector<PerRank> patches, std::vector<Operand> operands,
                     size_t inputs);
    void emit_collective(Opcode what, const Step& step, std::vector<Operand> operands);
    int64_t workspace_of(const Step& step, const KernelSpec& spec) const;
    int kernel_index(const Step& step, KernelSpec spec, const std::vector<PerRank>& patches);
    Attributes kernel_attributes(const Step& step, std::vector<PerRank>& patches) const;
    void set_global(const Step& step, ValueId operand, int only, Attributes& attributes,
                    std::vector<PerRank>& patches) const;

    const Program& program() const { return roles_.program; }
    const TransportContract& contract(AxisId axis) const;

    const LoopAnalysis& roles_;
    Order order_;
    Persistent& persistent_;
    const LowerOptions& options_;
    const Steady* const steady_;
    RankClass& out_;
    const Step* at_ = nullptr;
    int made_here_ = 0;  ///< number of buffers that the current step has made for its micro-batch
    std::vector<MadeBy> made_by_;
    std::vector<Spot> spots_;
    std::vector<char> gradient_;          ///< by value: whether it is part of a param's gradient
    std::vector<ValueId> update_target_;  ///< by value: the param or state that gets it as its new value
    std::vector<char> updated_;           ///< by value: computed in place of its param or state, without a copy
    std::vector<std::pair<ValueId, Operand>> copies_;  ///< results and where to copy them at the end of the step
    std::unordered_map<std::string, int> kernel_ids_;
    std::vector<int64_t> workspaces_;
    std::vector<int> first_of_step_;
    std::map<std::pair<OpId, int64_t>, Underway> underway_;
    std::vector<char> sent_;  ///< by instance of a value: whether a send may still be reading it
    std::map<std::tuple<AxisId, int, Opcode>, int> lanes_;
};

/// Sets the `waits` of every instruction of a class. A read waits for the last write of its bytes; a write for that and
/// for later reads; neither for its own queue. Waits that another one implies are omitted. Returns false if waits of
/// the repeated part would not suffice in its later runs.
bool insert_waits(RankClass& rank_class);

}  // namespace orrery::lowering
