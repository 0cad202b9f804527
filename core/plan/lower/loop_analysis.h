#pragma once
#include <map>
#include <vector>

#include "ir/op.h"
#include "orrery/plan.h"
#include "plan/lower/insert_transfers.h"

namespace orrery::lowering {

/// When an op runs: before the loop over micro-batches, once per micro-batch, or after the loop.
enum class Section : uint8_t { unused, before, inside, after };

struct OpRole {
    Section section = Section::unused;
    Fragment::Kind kind = Fragment::Kind::forward;  ///< kind of pipeline fragment in which the op runs
    bool weight = false;    ///< the op leads only to gradients of params, so it can run in W fragments
    bool absorbed = false;  ///< needs no instruction: an alias, a folded transpose, or an addition done by accumulation
};

/// Where a value is stored. An instance is one place in memory: a value has one per micro-batch, one per step, or both.
struct ValueRole {
    bool per_micro = false;    ///< each micro-batch has an instance
    bool accumulated = false;  ///< one instance sums the contributions of all micro-batches
    bool gathered = false;     ///< one instance contains all micro-batches in order, as slices of the outermost dim
    bool swapped = false;      ///< a transpose that its matmuls do: they read `alias` with the transpose flag flipped
    ValueId alias = none;      ///< value that contains this one, `offset` + micro-batch * `step` bytes from its start
    int64_t offset = 0;
    int64_t step = 0;
    ValueId sum = none;  ///< sum to which its kernel adds this value in place
    int first_instance = none;
    TensorType type;          ///< local type, of one micro-batch if the value is split over them
    int64_t whole_bytes = 0;  ///< local size for all micro-batches together
};

/// A place in memory: an offset in bytes from the start of a value's instance.
struct Ref {
    int instance = none;
    int64_t offset = 0;
    int64_t step = 0;   ///< bytes added to `offset` per micro-batch
    bool each = false;  ///< the instance is of one micro-batch
};

/// When each op runs and where each value is stored. Found before steps are ordered. Linear.
class LoopAnalysis {
public:
    /// Analyzes the whole program, for all pipeline ranks. `written`: number of micro-batches that streams contain; the
    /// others are repetitions (steady.h).
    LoopAnalysis(const Program& program, const Mesh& mesh, const StagePlacement& spread, int64_t written);
    /// Restricts the analysis to one pipeline rank: ops of other ranks become Section::unused.
    LoopAnalysis(const LoopAnalysis& whole, int rank);

    const Program& program;
    const Mesh& mesh;
    const StagePlacement& spread;
    int rank = none;  ///< pipeline rank of this analysis; none: the whole program
    AxisId micro_axis = none;
    int64_t micros = 1;
    int64_t written = 1;  ///< number of micro-batches in the stored streams, at most `micros`
    std::vector<OpRole> ops;
    std::vector<ValueRole> values;
    std::map<OpId, std::vector<ValueId>> sums;  ///< last addition of a sum -> the terms that instructions add to it
    int instances = 0;
    std::vector<Result> results;  ///< results that this rank stores
    std::vector<Update> updates;

    const OpRole& of(const Op& op) const { return ops[&op - program.ops.data()]; }
    const ValueRole& value(ValueId id) const { return values[id]; }
    ValueRole& value(ValueId id) { return values[id]; }
    Placement over_micro(ValueId id) const;
    /// Where a reader in micro-batch `micro` (-1: outside the loop) finds the value. Follows aliases, not transposes.
    Ref find(ValueId id, int64_t micro) const;
    int instance(ValueId id, int64_t micro) const;
    /// The values that the instructions of an op read: inputs before folded transposes; for a sum, its terms (`sums`).
    std::vector<ValueId> reads(OpId op) const;
    /// The outputs of an op that this rank computes or receives; none for a transfer that it sends.
    const std::vector<ValueId>& makes(OpId op) const { return sends(op) ? nothing_ : program.op(op).outputs; }
    /// Whether this rank is the sender of a transfer between stages.
    bool sends(OpId op) const;
    /// The chunk in which the op runs: the index of its stage among the stages of this rank.
    int chunk_of(OpId op) const;
    bool holds(ValueId id) const { return value(id).first_instance != none; }
    AxisId axis(const Op& op) const;
    const OpDef& def(OpId op) const { return *defs_[op]; }
    const OpDef& def(const Op& op) const { return *defs_[&op - program.ops.data()]; }
    /// Whether the op runs by a collective or by messages.
    bool collective(const Op& op) const { return communicates(def(op)) || exchanges_blocks(def(op), op); }
    bool crosses(const Op& op) const { return def(op).between_stages; }

    /// The ops of this rank that read a value, and the number of results and updates that name it (`ends`).
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
    bool may_sink(const Op& op) const;
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
