#pragma once
#include <map>
#include <vector>

#include "ir/op.h"
#include "orrery/plan.h"
#include "plan/lower/insert_transfers.h"

namespace orrery::lowering {

/// When an op runs: once before the loop over micro-batches, in fragments of each micro-batch, or once after it.
enum class Section : uint8_t { unused, before, inside, after };

struct OpRole {
    Section section = Section::unused;
    Fragment::Kind kind = Fragment::Kind::forward;  ///< kind of fragment in which the op runs
    bool weight = false;                            ///< backward-weight (W) op: leads only to gradients of params
    bool absorbed = false;  ///< needs no instruction: an alias, a folded transpose, or a sum made by accumulation
};

/// Where a value is stored. An instance is a storage location of the value: one per micro-batch, one per step, or both.
struct ValueRole {
    bool per_micro = false;    ///< each micro-batch has an instance
    bool accumulated = false;  ///< one instance sums the contributions of all micro-batches
    bool gathered = false;     ///< one instance contains all micro-batches as slices of its outermost dim, in order
    bool swapped = false;  ///< a transpose folded into its matmuls: they read `alias` with the transpose flag flipped
    ValueId alias = none;  ///< value that has this one in its instance, `offset` + micro * `step` bytes from its start
    int64_t offset = 0;
    int64_t step = 0;
    ValueId sum = none;  ///< value that this one contributes to directly, in its instance: the first writes, others add
    int first_instance = none;
    TensorType type;          ///< local type; that of one micro-batch if split over micro-batches
    int64_t whole_bytes = 0;  ///< local size for all micro-batches together
};

/// A location in memory: an instance of a value and an offset in bytes.
struct Ref {
    int instance = none;
    int64_t offset = 0;
    int64_t step = 0;   ///< bytes added to `offset` per micro-batch
    bool each = false;  ///< the instance belongs to one micro-batch
};

/// Roles of ops and values in the loop over micro-batches, found before steps are ordered. Linear in the program.
class LoopAnalysis {
public:
    /// Analyzes the whole program: which ops are needed, and when they run. The result holds for all pipeline ranks.
    /// `written`: number of micro-batches that streams contain; the others are repetitions (steady.h).
    LoopAnalysis(const Program& program, const Mesh& mesh, const StagePlacement& spread, int64_t written);
    /// Restricts the analysis to one pipeline rank: ops that the rank does not run become Section::unused.
    LoopAnalysis(const LoopAnalysis& whole, int rank);

    const Program& program;
    const Mesh& mesh;
    const StagePlacement& spread;
    int rank = none;  ///< pipeline rank of this analysis; none: the whole program
    AxisId micro_axis = none;
    int64_t micros = 1;
    int64_t written = 1;  ///< number of micro-batches that have instances of values, at most `micros`
    std::vector<OpRole> ops;
    std::vector<ValueRole> values;
    std::map<OpId, std::vector<ValueId>> sums;  ///< root op of a sum -> the leaves that need instructions to be added
    int instances = 0;
    std::vector<Result> results;  ///< results that this rank stores
    std::vector<Update> updates;

    const OpRole& of(const Op& op) const { return ops[&op - program.ops.data()]; }
    const ValueRole& value(ValueId id) const { return values[id]; }
    ValueRole& value(ValueId id) { return values[id]; }
    Placement over_micro(ValueId id) const;
    /// Where a reader in micro-batch `micro` (-1: once per step) finds the value. Follows aliases, not transposes.
    Ref find(ValueId id, int64_t micro) const;
    int instance(ValueId id, int64_t micro) const;
    /// The values that an op's instructions read: inputs before folded transposes; for a sum, the leaves in `sums`.
    std::vector<ValueId> reads(OpId op) const;
    /// The outputs of an op that this rank computes or receives; empty for a transfer that this rank sends.
    const std::vector<ValueId>& makes(OpId op) const { return sends(op) ? nothing_ : program.op(op).outputs; }
    /// Whether the op is a transfer from a stage of this rank.
    bool sends(OpId op) const;
    /// The chunk of an op: index of its stage among the stages of this rank.
    int chunk_of(OpId op) const;
    bool holds(ValueId id) const { return value(id).first_instance != none; }
    AxisId axis(const Op& op) const;
    const OpDef& def(OpId op) const { return *defs_[op]; }
    const OpDef& def(const Op& op) const { return *defs_[&op - program.ops.data()]; }
    bool collective(const Op& op) const { return communicates(def(op)); }
    /// Whether the op communicates between pipeline stages.
    bool crosses(const Op& op) const { return def(op).between_stages; }

    /// The needed ops that read a value; `ends`: number of results and updates that name the value.
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
    std::vector<char> used_;  ///< by value: whether an op of this rank reads or makes it
};

}  // namespace orrery::lowering
