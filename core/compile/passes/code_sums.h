#pragma once
#include <map>
#include <set>
#include <vector>

#include "compile/passes/code_ops.h"
#include "ir/codecs.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Replaces sums over ranks by messages of codes that are decoded before they are added (encode_edges.h). A bucket
/// has the bytes of codes, so that later passes can join their messages. The sum of a sent state (ir/sent.h) is
/// gathered: what is sent of it is then the opening of its program (plan/opening.h).
class CodeSums : public SumOps {
public:
    using SumOps::SumOps;

    /// Whether the sum is sent as codes. Throws Error for a sum that is also over other ranks.
    bool takes(const Op& sum, const Codec& codec);
    /// Appends the ops that encode and send the terms of a sum.
    void send(Op sum, const Codec& codec);
    /// Appends the ops that add what was sent.
    void finish_all();

private:
    /// A sum in parts: where its elements are in what is encoded.
    struct Cut {
        Shape wide;                 ///< the shape with a dim of its own for each axis that splits it, and for the parts
        std::vector<int64_t> perm;  ///< of `wide`, to [parts, axes.., rest..]; an all_reduce has no dim of parts there
        std::vector<AxisId> axes;   ///< those that split the term, in this order
        Layout laid;                ///< of `wide`, by `axes` alone
        int64_t shards = 1;         ///< blocks into which `axes` split the term
        int64_t members = 1;        ///< of the sum's axis
        int64_t parts = 1;          ///< that go to different members; 1: all of the term goes to each
        int64_t own = 0;            ///< elements of a shard
        int64_t size = 0;           ///< elements of a part of a shard, rounded up
        Shape terms() const { return {members, parts, shards, size}; }
        Shape sum() const { return {parts, shards, size}; }
        int64_t padding() const { return parts * size - own; }
    };
    struct Sent {
        Op sum;
        const Codec* codec = nullptr;
        Cut cut = {};
        CodedMessage message = {};
        std::vector<ValueId> codes = {};  ///< [members, parts, shards, ..], split over the parts
        ValueId error = none;             ///< with feedback: the state with the errors of earlier steps
        ValueId left = none;              ///< [members, parts, shards, elements]: what encoding leaves out in this one
    };

    Cut cut(const Op& sum) const;
    ValueId in_own_part(const Sent& sent, ValueId left);
    bool scatters(const Op& sum) const { return sum.attributes.has("dim"); }
    bool gathers(const Op& sum) const { return gathered_.count(sum.outputs[0]) != 0; }
    bool encodes_once(const Op& sum) const { return scatters(sum) || gathers(sum); }
    Layout after_loop(const Op& sum, size_t rank) const;
    Layout placed(const Sent& sent, size_t rank, int over, size_t shards) const;
    Layout rows_of(const Op& sum) const;
    Layout wide(const Sent& sent, int over, bool in_order) const;
    ValueId in_parts(const Sent& sent, ValueId x);
    ValueId out_of_parts(const Sent& sent, ValueId x, int over);
    std::vector<ValueId> moved(const Sent& sent, bool exchanges, const std::vector<ValueId>& codes);

    std::vector<Sent> sent_;
    std::map<ValueId, ValueId> error_of_;  ///< with feedback: from a sum to the state with the errors of its terms
    std::set<ValueId> gathered_;           ///< sums of sent states: members gather the codes of all terms, in one round
};

}  // namespace orrery
