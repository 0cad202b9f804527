#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/mark.h"

namespace orrery {

class Mesh;
struct Codec;  // declared in orrery/codec.h

enum class Role : uint8_t { temporary, input, param, state };
enum class Phase : uint8_t { forward, backward, update };

/// A tensor of the program, with its *global* shape.
struct Value {
    std::string name;  ///< "layers.0.attn.q.weight"; may be empty for temporaries
    TensorType type;
    std::vector<std::string> dims;  ///< logical name of each dim, "" for an unnamed one
    Role role = Role::temporary;
    Attributes init;    ///< initial contents of a param or state: {kind = normal|uniform|zeros|ones, scale}
    ValueId of = none;  ///< of a state: its param; of a sum over islands: what `moved_by` returns
    int stage = none;   ///< of a param or state: the pipeline stage that holds it; none: the first that reads it
    OpId op = none;     ///< the op that produces it; none for input, param and state
    int output = 0;     ///< index of the value among the outputs of `op`
    Layout layout;      ///< set by propagation; for params and states, the layout between steps
    std::vector<Origin> causes;  ///< origins of the marks that set the layout, newest last
    Origin origin;               ///< script line that made the value
};

/// Whether a value outlives a step: a param or a state.
inline bool is_array(const Value& value) { return value.role == Role::param || value.role == Role::state; }

struct Op {
    std::string kind;  ///< name in the table of ops: "matmul"
    Attributes attributes;
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;
    Phase phase = Phase::forward;
    std::string scope;    ///< "layers.0.attn"
    OpId forward = none;  ///< for a backward op: the forward op that it differentiates
    int stage = none;     ///< pipeline stage; none before stages are assigned
    Origin origin;
};

/// A communication option of an axis, set by a strategy. core/ir/edges.cpp declares the options and their types.
struct EdgeMark {
    std::string axis;
    std::optional<Phase> phase;  ///< phase of the step; nullopt: all phases
    std::string option;          ///< "bucket", "codec", "prefetch"
    Attribute value;
    bool operator==(const EdgeMark&) const = default;
};

/// Assigns `value` to `target` (a param or state) at the end of a step, in place when the op allows it.
struct Update {
    ValueId target;
    ValueId value;
};

/// A value that the host can read by name after a step: "loss_sum", "count", "grad_norm", "lr", "logits".
struct Result {
    std::string name;
    ValueId value;
};

/// A value that messages between the members of an axis carry as codes (compile/passes/encode_edges.h).
struct CodedMessage {
    ValueId result = none;   ///< the sum over the axis, or what was gathered, exchanged or passed to another stage
    ValueId plain = none;    ///< what the result is without a codec; of a sum, its terms
    ValueId encoded = none;  ///< what each member encodes: `plain` cut in parts, with what feedback adds
    ValueId decoded = none;  ///< what those that receive codes make of `encoded`, in the same shape; none: only sums
    ValueId sum = none;      ///< the sum of decoded terms, if that is encoded again
    ValueId sum_decoded = none;  ///< what those that receive its codes make of `sum`
    std::string codec;
    std::string axis;
};

/// A traced program: ops in execution order over values. The passes differentiate, annotate and propagate extend it.
class ORRERY_API Program {
public:
    std::string name;
    std::vector<Value> values;
    std::vector<Op> ops;
    std::vector<Update> updates;
    std::vector<Result> results;
    std::vector<CodedMessage> coded;
    std::vector<std::shared_ptr<const Codec>> codecs;  ///< those of the script and of plugins

    const Value& value(ValueId id) const { return values.at(static_cast<size_t>(id)); }
    Value& value(ValueId id) { return values.at(static_cast<size_t>(id)); }
    const Op& op(OpId id) const { return ops.at(static_cast<size_t>(id)); }

    std::vector<ValueId> inputs() const;
    std::vector<ValueId> params() const;
    std::vector<ValueId> states_of(ValueId param) const;
    /// The gradient of a param, summed over the whole batch; none before differentiation.
    ValueId grad_of(ValueId param) const;
    void set_grad(ValueId param, ValueId grad);
    /// Returns the terms that the gradient of a param is a sum of, inner sums included; empty when it is not a sum.
    std::vector<ValueId> grad_terms(ValueId param) const;
    /// Returns a flag per value: true for a param of which forward ops read a lower-precision copy.
    std::vector<bool> params_with_low_copies() const;
    std::optional<ValueId> find(std::string_view value_name) const;
    std::optional<ValueId> result(std::string_view result_name) const;
    /// Index of the dim with this logical name; nullopt when there is none.
    std::optional<int> dim(ValueId value, std::string_view dim_name) const;
    /// Returns the first dim that can be split over n more ranks (n >= 1), in addition to the axes of its store marks;
    /// nullopt when no dim is divisible.
    std::optional<int> first_dim_divisible_by(ValueId value, int64_t n, const Mesh& mesh) const;

    // Marks: all that a strategy may write. Propagation skips axes that the mesh lacks or that have size 1. Of several
    // marks for a value and axis the first counts; a different later one is added to ignored(), for `orrery check`.
    void store(ValueId value, std::string_view axis, Placement placement, const Origin& origin, bool optional = false);
    void use(ValueId value, std::string_view axis, Placement placement, const Origin& origin, Keep keep = Keep::step,
             bool optional = false);
    void stage(std::string_view scope, int stage, const Origin& origin);
    void recompute(std::string_view scope, const Origin& origin, const std::vector<std::string>& kinds = {});
    void note(ValueId value, std::string_view text, const Origin& origin);
    /// Splits the logical dim `batch` into n sequential micro-batches.
    void microbatches(int64_t n, const Origin& origin);
    /// Assigns pipeline stages to the ranks of an axis. Throws Error when an earlier strategy set another pipeline.
    void pipeline(Pipeline pipeline);
    /// Sets a communication option of an axis, as `bucket`, `reduce_as` and `prefetch` do; phase nullopt: all phases.
    /// The first value for an option, axis and phase is kept; a later one that differs adds a remark. Throws Error for
    /// an unknown option, an invalid value, or a phase that the option cannot be set for.
    void edge(std::string_view axis, std::optional<Phase> phase, std::string_view option, Attribute value,
              const Origin& origin);
    /// Joins collectives of the same axis, kind and type into messages of at most this many bytes.
    void bucket(std::string_view axis, int64_t bytes, const Origin& origin);
    /// Sums gradients over the axis in this type (bf16), as the codec of that name does. Throws Error for another type.
    void reduce_as(std::string_view axis, DType type, const Origin& origin);
    /// Sets how many layers all-gathers of params over an axis run ahead of readers, and reduce-scatters trail.
    void prefetch(std::string_view axis, PrefetchDepth prefetch, const Origin& origin);

    const std::vector<Mark>& marks() const { return marks_; }
    const std::vector<Mark>& ignored() const { return ignored_; }
    const std::vector<ScopeMark>& scope_marks() const { return scope_marks_; }
    const std::vector<Remark>& remarks() const { return remarks_; }
    int64_t microbatches() const { return microbatches_; }
    const Pipeline& pipeline() const { return pipeline_; }
    const std::vector<EdgeMark>& edges() const { return edges_; }
    Attributes edge(std::string_view axis, Phase phase) const;
    /// Returns the axes for which a communication option is set, in the order in which it was set.
    std::vector<std::string> axes_with(std::string_view option) const;
    /// Max bytes of a message; 0: messages are not joined. For a joined axis ("rep+dp"), the min of its axes.
    int64_t bucket_bytes(std::string_view axis, Phase phase = Phase::backward) const;
    /// The codec of what the option names: "codec" of gradients, "param_codec" of gathered params, "activation_codec"
    /// of activations and their gradients; "none" by default.
    std::string codec(std::string_view axis, std::string_view option = "codec") const;
    /// Layers of prefetch over the axis; nullopt: lowering uses 1 layer when the transport is `queued`, else 0.
    std::optional<PrefetchDepth> prefetch_depth(std::string_view axis) const;
    const std::vector<std::pair<ValueId, ValueId>>& grads() const { return grads_; }  ///< pairs (param, its gradient)

private:
    void mark(Mark mark);

    std::vector<Mark> marks_;
    std::vector<std::vector<int>> marks_of_;  ///< indices in marks_ by value, to find the marks of a value fast
    std::vector<Mark> ignored_;
    std::vector<ScopeMark> scope_marks_;
    std::vector<Remark> remarks_;
    std::vector<std::pair<ValueId, ValueId>> grads_;
    std::vector<int> grad_at_;  ///< index in grads_ of each param, by ValueId; or none
    std::vector<EdgeMark> edges_;
    int64_t microbatches_ = 1;
    Pipeline pipeline_;
};

}  // namespace orrery
