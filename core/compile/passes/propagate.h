#pragma once
#include "orrery/program.h"

namespace orrery {

struct PropagateOptions {
    /// Max bytes per rank of a gather that no mark of a strategy requests; larger ones are errors. Negative: no limit.
    int64_t budget_bytes = -1;
    /// true: a gather that no mark of a strategy requests is an error.
    bool forbid_implicit = false;
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
/// Throws Error naming values, dims, axes, bytes and origins when a mark cannot be applied, a dim is not divisible, an
/// op inside the loop needs a sum over it, or a gather is forbidden or over budget.
Program propagate(const Program& placed, const Mesh& mesh, const PropagateOptions& options = {});

}  // namespace orrery
