#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/codecs.h"
#include "ir/permutation.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

Shape in_order(const Shape& shape, const std::vector<int64_t>& perm);

/// Appends ops in place of a collective, with its phase, stage, scope and origin (`like`).
class CodeOps {
public:
    CodeOps(Program& program, const Mesh& mesh) : program_(program), mesh_(mesh) {}

    /// Whether the array is too small or too sensitive to encode: a vector, or one number a token, as the statistics of
    /// a loss. Counts it.
    bool is_plain(const Op& message, ValueId x, const std::string& axis, const Codec& codec);
    /// Notes how many arrays are not sent as codes, and why.
    void note_unencoded();

protected:
    /// Counts an array that is not sent as codes; false.
    bool unencoded(const Op& message, ValueId x, const std::string& axis, const Codec& codec, const std::string& why);
    bool is_short(const Op& message, ValueId x, const std::string& axis, const Codec& codec);
    /// Attributes of a message of codes in place of `message`.
    static Attributes coded_attributes(const Op& message, const Codec& codec);
    /// Adds an op; its outputs have the layout. `out`: the value of its first output; none: a new one.
    ValueId add(std::string kind, const Op& like, std::vector<ValueId> inputs, Attributes attributes, Layout layout,
                ValueId out = none);
    ValueId reshaped(const Op& like, ValueId x, Shape shape, Layout layout);
    ValueId permuted(const Op& like, ValueId x, const std::vector<int64_t>& perm);
    /// Reshapes what was decoded to `out`, a message's result.
    void reshape_to(ValueId out, const Op& like, ValueId x, const std::string& axis, const Codec& codec);
    /// x [.., n] -> codes. All dims but the last stay as they are, and no op mixes elements along them.
    std::vector<ValueId> encoded(const Op& like, const Codec& codec, ValueId x);
    /// Codes -> f32 of this shape.
    ValueId decoded(const Op& like, const Codec& codec, const std::vector<ValueId>& codes, const Shape& rows);

    Program& program_;
    const Mesh& mesh_;

private:
    struct Unencoded {
        int64_t arrays = 0, bytes = 0;
        Origin origin;
    };
    std::map<std::string, Unencoded> unencoded_;  ///< by where and why

    /// `rows`: shape of what is encoded. The output of each op has the layout `laid` in all dims but the last.
    AddPart tracer(const Op& like, const Shape& rows, const Layout& laid);
};

/// What both kinds of coded sums have: sums are sent first and finished together, up to the size of a bucket, and have
/// states that are carried from step to step (code_errors.h).
class SumOps : public CodeOps {
public:
    using CodeOps::CodeOps;

    /// Whether the value is a sum that has been sent and not finished.
    bool waits(ValueId sum) const { return waiting_.count(sum) != 0; }
    /// Appends the updates of states, which a skipped step leaves as they are. Comes after `relink`.
    void keep_states();

protected:
    AxisId axis(const Op& sum) const { return *mesh_.find(sum.attributes.text("axis")); }
    /// Notes that a sum has been sent, with its bytes of a bucket. Returns whether the bucket is full.
    bool wait_for(const Op& sum, int64_t bytes);
    /// Notes that no sum waits any more.
    void end_waits();
    /// Throws Error for a sum that is also over another axis of ranks.
    void refuse_other_sums(const Op& sum, const Codec& codec) const;
    /// Whether each micro-batch is sent.
    bool in_loop(const Op& sum) const;
    bool feeds_back(const Op& sum) const;
    /// Name of a param's state for an axis.
    using StateName = std::function<std::string(std::string_view param, std::string_view axis)>;
    /// The state of the param that has the sum as its gradient. It gets this layout, that of the term, and a row for
    /// each member of the axes that split its first dim: a gradient may be summed while it is split more than its
    /// param. Throws Error if there is no such state: the term cannot have `what`.
    ValueId state_of(const Op& sum, const StateName& name, Layout layout, std::string_view what,
                     std::string_view remedy);
    /// The state with the errors of a sum's terms: [members, ..], a row as the term. Throws Error if there can be none.
    ValueId error_of(const Op& sum);
    /// Clears the errors that a sum of islands has included, since it is sent unencoded; false.
    bool settle(const Op& sum);
    /// Sets the next value of a state; none: zeros.
    void carry(const Op& sum, ValueId state, ValueId next) { carried_.push_back({sum, state, next}); }

private:
    ValueId guard_of(ValueId param) const;

    struct Carried {
        Op sum;
        ValueId state, next;
    };
    std::vector<Carried> carried_;
    std::set<ValueId> waiting_;
    int64_t bytes_ = 0;  ///< of the bucket, of sums that wait
};

}  // namespace orrery
