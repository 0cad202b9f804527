#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/mark.h"

namespace orrery {

class Mesh;

enum class Role : uint8_t { temporary, input, param, state };
enum class Phase : uint8_t { forward, backward, update };

/// One array of the program, with its *global* shape.
struct Value {
    std::string name;  ///< "layers.0.attn.q.weight"; temporaries may have none
    TensorType type;
    std::vector<std::string> dims;  ///< logical name of each dim, "" where unnamed
    Role role = Role::temporary;
    Attributes init;             ///< param, state: {kind = normal|uniform|zeros|ones, scale}
    ValueId of = none;           ///< state: its param
    OpId op = none;              ///< who makes it; none for input, param and state
    int output = 0;              ///< which output of that op
    Layout layout;               ///< set by propagation; for param and state the layout at rest
    std::vector<Origin> causes;  ///< who set the layout, newest last
    Origin origin;               ///< the script line
};

struct Op {
    std::string kind;  ///< a name of the op table, "matmul"
    Attributes attributes;
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    Phase phase = Phase::forward;
    std::string scope;    ///< "layers.0.attn"
    OpId forward = none;  ///< backward: the forward op it belongs to
    int stage = none;     ///< pipeline stage, none before stages are set
    Origin origin;
};

/// A communication option of an axis, set by a strategy. core/ir/edges.cpp declares the options and their types.
struct EdgeMark {
    std::string axis;
    std::optional<Phase> phase;  ///< nullopt: in every phase
    std::string option;          ///< "bucket", "reduce", "prefetch"
    Attribute value;
    bool operator==(const EdgeMark&) const = default;
};

/// At the end of a step `target` (param or state) takes the contents of `value`, in place where its op allows it.
struct Update {
    ValueId target;
    ValueId value;
};

/// A value the host may read after a step, by name: "loss_sum", "count", "grad_norm", "lr", "logits".
struct Result {
    std::string name;
    ValueId value;
};

/// A traced program: ops in execution order over values. Passes fill it further: differentiate, annotate, propagate.
class ORRERY_API Program {
public:
    std::string name;
    std::vector<Value> values;
    std::vector<Op> ops;
    std::vector<Update> updates;
    std::vector<Result> results;

    const Value& value(ValueId id) const { return values.at(static_cast<size_t>(id)); }
    Value& value(ValueId id) { return values.at(static_cast<size_t>(id)); }
    const Op& op(OpId id) const { return ops.at(static_cast<size_t>(id)); }

    std::vector<ValueId> inputs() const;
    std::vector<ValueId> params() const;
    std::vector<ValueId> states_of(ValueId param) const;
    /// The gradient of a param, summed over the whole batch; none before differentiation.
    ValueId grad_of(ValueId param) const;
    void set_grad(ValueId param, ValueId grad);
    /// The values that the gradient of a param is a sum of, inner sums included; none where it is no sum.
    std::vector<ValueId> grad_terms(ValueId param) const;
    /// By value: whether it is a param of which forward ops read a copy of lower precision. Linear in the program.
    std::vector<bool> params_with_low_copies() const;
    std::optional<ValueId> find(std::string_view value_name) const;
    std::optional<ValueId> result(std::string_view result_name) const;
    /// Index of the dim with this logical name; nullopt when there is none.
    std::optional<int> dim(ValueId value, std::string_view dim_name) const;
    /// The first dim that n more ranks (1 or more) can split; nullopt where none divides. It comes behind the axes that
    /// store marks split it over already.
    std::optional<int> first_dim_divisible_by(ValueId value, int64_t n, const Mesh& mesh) const;

    // Marks: all that a strategy may write. An axis that the mesh lacks, or of size 1, is skipped by propagation.
    // Earlier marks stay: a later one that differs is kept in `ignored` for `orrery check`.
    void store(ValueId value, std::string_view axis, Placement placement, const Origin& origin, bool optional = false);
    void use(ValueId value, std::string_view axis, Placement placement, const Origin& origin, Keep keep = Keep::step,
             bool optional = false);
    void stage(std::string_view scope, int stage, const Origin& origin);
    void recompute(std::string_view scope, const Origin& origin, const std::vector<std::string>& kinds = {});
    void note(ValueId value, std::string_view text, const Origin& origin);
    /// Splits the logical dim `batch` in n sequential micro-batches.
    void microbatches(int64_t n, const Origin& origin);
    /// Stages lie on the ranks of an axis. Throws when an earlier strategy asked for another pipeline.
    void pipeline(Pipeline pipeline);
    /// Sets a communication option of an axis, as `bucket`, `reduce_as` and `prefetch` do; nullopt: in every phase. The
    /// first value for an option, axis and phase is kept; a later, different one leaves a remark. Throws Error for an
    /// unknown option, a value that it cannot have, and a phase that it cannot be set for.
    void edge(std::string_view axis, std::optional<Phase> phase, std::string_view option, Attribute value,
              const Origin& origin);
    /// Joins collectives of one axis, kind and type in messages of at most this many bytes.
    void bucket(std::string_view axis, int64_t bytes, const Origin& origin);
    /// Gradients cross the axis as this type (bf16), and come back to their own behind each sum. Throws for a type that
    /// sums cannot be sent as.
    void reduce_as(std::string_view axis, DType type, const Origin& origin);
    /// How far ahead of their readers the params' gathers over an axis run, and how far reduce-scatters trail.
    void prefetch(std::string_view axis, PrefetchDepth prefetch, const Origin& origin);

    const std::vector<Mark>& marks() const { return marks_; }
    const std::vector<Mark>& ignored() const { return ignored_; }
    const std::vector<ScopeMark>& scope_marks() const { return scope_marks_; }
    const std::vector<Remark>& remarks() const { return remarks_; }
    int64_t microbatches() const { return microbatches_; }
    const Pipeline& pipeline() const { return pipeline_; }
    const std::vector<EdgeMark>& edges() const { return edges_; }
    /// The communication options of an axis in a phase.
    Attributes edge(std::string_view axis, Phase phase) const;
    /// The axes that have the option, in the order in which they were given it.
    std::vector<std::string> axes_with(std::string_view option) const;
    /// Max bytes of a message; 0: messages are not joined. For joined axes ("rep+dp") the smallest of their values.
    int64_t bucket_bytes(std::string_view axis, Phase phase = Phase::backward) const;
    /// nullopt: gradients are summed over the axis in their own type.
    std::optional<DType> reduced_as(std::string_view axis) const;
    /// nullopt: lowering decides: 1 layer where the transport is `queued`, else 0.
    std::optional<PrefetchDepth> prefetch_depth(std::string_view axis) const;
    const std::vector<std::pair<ValueId, ValueId>>& grads() const { return grads_; }  ///< (param, gradient)

private:
    void mark(Mark mark);

    std::vector<Mark> marks_;
    std::vector<std::vector<int>> marks_of_;  ///< places in marks_, by value: marking stays linear
    std::vector<Mark> ignored_;
    std::vector<ScopeMark> scope_marks_;
    std::vector<Remark> remarks_;
    std::vector<std::pair<ValueId, ValueId>> grads_;
    std::vector<int> grad_at_;  ///< places in grads_, by param; none
    std::vector<EdgeMark> edges_;
    int64_t microbatches_ = 1;
    Pipeline pipeline_;
};

}  // namespace orrery
