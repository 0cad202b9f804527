#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compile/passes/code_ops.h"
#include "ir/codecs.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// Replaces sums over ranks of matrices by sums of codes (Codec::rounds). Leading dims are a batch of matrices, and so
/// are the shards of a matrix that other axes split. A rank sends 2 (P-1)/P of the codes, for a reduce_scatter, too:
/// each member decodes its own part from its part of the codes. A bucket has the bytes of terms, which hold memory.
/// With powersgd/r, for a term x over dp:
///
///     %8  = matmul %4 q                   f32[m,r]    dp:P
///     %9  = all_reduce %8 {axis=dp}       f32[m,r]
///     %10 = orthogonalize %9              f32[m,r]
///     %11 = matmul %4 %10 {trans_a}       f32[n,r]    dp:P
///     %12 = all_reduce %11 {axis=dp}      f32[n,r]
///     %5  = matmul %10 %12 {trans_b}      f32[m,n]
class CodeFactors : public SumOps {
public:
    using SumOps::SumOps;

    /// Whether the sum is sent as codes. Throws Error for a sum that is also over other ranks, or if its param
    /// has no state for what the codec keeps.
    bool takes(const Op& sum, const Codec& codec);
    /// Appends the ops that send the codes of the first round.
    void send(Op sum, const Codec& codec);
    /// Appends the other rounds of what was sent, and decodes the sums.
    void finish_all();

private:
    /// How a term becomes matrices [shards.., batch.., m, n] that are whole on a rank.
    struct Cut {
        Shape wide;                 ///< the shape with a dim of its own for each axis that splits its last two
        std::vector<int64_t> perm;  ///< of `wide`, to the matrices
        Shape matrices;
        Shape kept;  ///< what the codec keeps, cut like this: [shards of m.., batch.., shards of n.., n, columns]
        std::vector<int64_t> kept_perm;  ///< of that, to [shards.., batch.., n, columns]
        int64_t m() const { return matrices[matrices.size() - 2]; }
        int64_t n() const { return matrices.back(); }
    };
    struct States {
        ValueId kept = none;   ///< what the codec keeps: [product of shards of m, batch.., n, columns]
        ValueId error = none;  ///< with feedback: the errors of earlier steps
    };
    struct Sent {
        Op sum;
        const Codec* codec = nullptr;
        Cut cut = {};
        States states = {};
        ValueId x = none;                ///< matrices, partial over the sum's axis
        ValueId kept = none;             ///< what the codec keeps, for the matrices
        ValueId own = none;              ///< the member's own codes of the last round
        std::vector<ValueId> made = {};  ///< by round
    };

    Cut cut(const Op& sum) const;
    Layout kept_layout(const Op& sum) const;
    std::vector<ValueId> record(std::string_view kind, const Op& like, bool in_loop, std::vector<ValueId> inputs,
                                Attributes attributes);
    AddPart tracer(const Op& like, bool in_loop);
    ValueId one(std::string_view kind, const Op& sum, std::vector<ValueId> inputs, Attributes attributes = {});
    ValueId permuted(const Op& sum, bool in_loop, ValueId x, const std::vector<int64_t>& perm);
    ValueId in_matrices(const Sent& sent, ValueId x);
    ValueId kept_in_matrices(const Sent& sent);
    void send_round(Sent& sent, size_t round);
    void decode(const Sent& sent);
    void keep(const Sent& sent);

    std::map<ValueId, States> states_;  ///< by sum
    std::vector<Sent> sent_;
};

}  // namespace orrery
