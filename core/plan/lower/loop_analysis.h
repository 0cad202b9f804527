#pragma once
#include <map>
#include <vector>

#include "ir/op.h"
#include "orrery/plan.h"
#include "plan/lower/insert_transfers.h"

namespace orrery::lowering {

/// When an op runs: once before the fragments, in the fragments of each micro-batch, or once after them.
enum class Section : uint8_t { unused, before, inside, after };

struct OpRole {
    Section section = Section::unused;
    Fragment::Kind kind = Fragment::Kind::forward;  ///< inside
    bool weight = false;                            ///< W: leads to gradients of params only
    bool absorbed = false;  ///< no instruction of its own: an alias, a folded transpose, a sum made by accumulation
};

/// Where a value's contents live. An *instance* is one place: per micro-batch, once a step, or both.
struct ValueRole {
    bool per_micro = false;    ///< an instance for each micro-batch
    bool accumulated = false;  ///< an instance that sums the micro-batches' contributions
    bool gathered = false;     ///< micro-batches are slices of one whole instance, the outermost dim in order
    bool swapped = false;      ///< a transpose folded into the matmuls that read it: read `alias` with the flag flipped
    ValueId alias = none;      ///< lives in this value's instance, at `offset` + micro * `step` bytes
    int64_t offset = 0;
    int64_t step = 0;
    ValueId sum = none;  ///< contributes straight into this value's instance: written first, then added
    int first_instance = none;
    TensorType type;          ///< local; of one micro-batch where it is split over micro
    int64_t whole_bytes = 0;  ///< local bytes of all micro-batches
};

/// One instance and the place in it.
struct Ref {
    int instance = none;
    int64_t offset = 0;
    int64_t step = 0;   ///< what the offset grows by with each micro-batch
    bool each = false;  ///< the instance is one micro-batch's own
};

/// What lowering knows of each op and value before it orders anything. Linear in the size of the program.
class LoopAnalysis {
public:
    /// Of the whole program: which ops are needed, and when they run. All ranks of the pipeline agree on that.
    /// `written`: micro-batches that are written out; the rest repeats them (steady.h).
    LoopAnalysis(const Program& program, const Mesh& mesh, const StagePlacement& spread, int64_t written);
    /// The share of one rank of the pipeline; what it does not run is Section::unused.
    LoopAnalysis(const LoopAnalysis& whole, int rank);

    const Program& program;
    const Mesh& mesh;
    const StagePlacement& spread;
    int rank = none;  ///< on the pipeline; none: of the whole program
    AxisId micro_axis = none;
    int64_t micros = 1;
    int64_t written = 1;  ///< of these, those that have instances
    std::vector<OpRole> ops;
    std::vector<ValueRole> values;
    std::map<OpId, std::vector<ValueId>> sums;  ///< root of a sum -> the leaves that do not add themselves
    int instances = 0;
    std::vector<Result> results;  ///< those that this rank has
    std::vector<Update> updates;

    const OpRole& of(const Op& op) const { return ops[&op - program.ops.data()]; }
    const ValueRole& value(ValueId id) const { return values[id]; }
    ValueRole& value(ValueId id) { return values[id]; }
    Placement over_micro(ValueId id) const;
    /// Where a reader in micro-batch `micro` (-1: once a step) finds the value; follows aliases, not swaps.
    Ref find(ValueId id, int64_t micro) const;
    int instance(ValueId id, int64_t micro) const;
    /// The values that the op's instructions read: its inputs, past folded transposes; of a sum, the remaining leaves.
    std::vector<ValueId> reads(OpId op) const;
    /// What this rank makes: of a transfer the receiver alone makes something.
    const std::vector<ValueId>& makes(OpId op) const { return sends(op) ? nothing_ : program.op(op).outputs; }
    /// A transfer from this rank's stages.
    bool sends(OpId op) const;
    /// The rank's stage, by chunk, to whose fragments the op belongs.
    int chunk_of(OpId op) const;
    bool holds(ValueId id) const { return value(id).first_instance != none; }
    /// The mesh axis of a collective.
    AxisId axis(const Op& op) const;
    const OpDef& def(OpId op) const { return *defs_[op]; }
    const OpDef& def(const Op& op) const { return *defs_[&op - program.ops.data()]; }
    bool collective(const Op& op) const { return communicates(def(op)); }
    /// Over the axis that carries the stages.
    bool crosses(const Op& op) const { return def(op).between_stages; }

    /// Needed ops that read a value, results and updates that name it.
    struct Readers {
        std::vector<OpId> ops;
        int ends = 0;
    };
    const Readers& readers(ValueId id) const { return readers_[id]; }

private:
    void find_needed();
    void find_readers();
    void take_share();
    bool mine(const Op& op) const;
    bool touched(ValueId id) const;
    std::vector<ValueId> operands(OpId op) const;
    void find_sections();
    void settle(OpId id, std::vector<char>& late);
    void sink_and_delay();
    bool only_after(const Op& op) const;
    void find_types();
    void find_instances();
    void find_aliases();
    void alias_op(const Op& op, OpRole& role);
    void fold_transposes();
    void find_sums();
    bool joins(OpId root, ValueId leaf, std::vector<ValueId>& leaves);
    void plan_sum(OpId root, std::vector<ValueId> leaves);

    std::vector<const OpDef*> defs_;
    std::vector<Readers> readers_;
    std::vector<ValueId> nothing_;
    std::vector<char> used_;  ///< by value: an op of this rank reads or makes it
};

}  // namespace orrery::lowering
