#pragma once
#include <functional>
#include <string>
#include <vector>

#include "orrery/op.h"
#include "orrery/program.h"

namespace orrery {

/// A decomposition that a script declares (o.decompose). It precedes OpDef::decompose.
struct Decomposition {
    std::string op;    ///< the kind of the ops that it replaces
    std::string axis;  ///< it is called for ops that read a value in a layout split by this axis
    std::string text;  ///< the source text of the script's function
    Origin origin;     ///< the line of the script
    /// Adds ops that make all outputs of the op and returns true, or adds none and returns false. It may add no
    /// collective. Call it where functions of the Recipe may be called.
    std::function<bool(const OpLayouts&, const AddPart& add)> parts;
};

struct PropagateOptions {
    /// Max bytes per rank of a gather that no mark of a strategy requests; larger ones are errors. Negative: no limit.
    int64_t budget_bytes = -1;
    /// true: a gather that no mark of a strategy requests is an error.
    bool forbid_implicit = false;
    std::vector<Decomposition> decompositions = {};  ///< of ops, in the order in which they are tried
};

/// Gives every value of an annotated program a layout on the mesh and inserts the collectives between layouts. Stages
/// and recomputation must be applied before. With x stored dp:S(0), up tp:S(1), down tp:S(0) on a mesh dp=2 tp=2:
///
///     %2 = matmul x up      f32[8,2048]        %2 = matmul x up               dp:S(0) tp:S(1)
///     %3 = matmul %2 down   f32[8,512]    ->   %3 = matmul %2 down            dp:S(0) tp:P(sum)
///     %4 = square %3        f32[8,512]         %9 = all_reduce %3 {axis=tp}   dp:S(0) tp:R
///                                              %4 = square %9                 dp:S(0) tp:R
///
/// Values keep their ids. Inserted ops have the attributes `axis`, `dim` or `from` and `to`, `op`, `sends` (bytes that
/// each rank sends), `cause`, and `keep` (step | fragment) when the value has `use` marks. They come before their
/// reader, or right after the producer for values of the backward pass that the update reads. Results are never
/// partial; an updated value has the layout of its target.
///
/// An op is inside the loop over micro-batches when an operand or output is split or partial over the sequential axis
/// `micro`. A value partial over `micro` is accumulated: an op outside the loop reads its sum.
///
/// Ops are replaced by others where a decomposition of the script, or the op's own, does so. A train step gets a remark
/// for each decomposition of the script that replaces nothing, except over an axis of one rank.
///
/// Throws Error naming values, dims, axes, bytes and origins when a mark cannot be applied, a dim is not divisible, an
/// op inside the loop needs a sum over it, or a gather is forbidden or over budget.
Program propagate(const Program& placed, const Mesh& mesh, const PropagateOptions& options = {});

}  // namespace orrery
