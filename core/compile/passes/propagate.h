#pragma once
#include "orrery/program.h"

namespace orrery {

struct PropagateOptions {
    /// A gather that no mark asked for may send at most this many bytes per rank; negative: any number.
    int64_t budget_bytes = -1;
    /// Every such gather is an error.
    bool forbid_implicit = false;
};

/// Gives every value of an annotated program, its stages assigned and what is recomputed in it, a layout on the mesh
/// and inserts the collectives (and local `shard`s) that the layouts ask for. Values keep their ids; those of inserted
/// ops are appended. Every inserted op has the attributes `axis`, `dim` or `from` and `to`, `op`, `sends` (bytes that
/// each rank puts on the wire), `cause` (for what), and for a parameter that is read otherwise than it rests `keep`
/// (step | fragment). The ops stay in program order; what the update needs of the backward pass is redistributed right
/// behind the op that made it. Results and updates name the value that is complete: never a Partial one, and an
/// update's lies as its target rests.
///
/// On the sequential axis `micro`, an op with a split or partial operand or output is inside the loop over
/// micro-batches, every other op is outside. A value partial over `micro` is accumulated: an op outside the loop that
/// reads it reads the sum.
///
/// Throws Error naming values, dims, axes, bytes and the origins of both sides when a mark cannot be honoured, a dim
/// does not divide, an op inside the loop needs a sum over it, or a gather is forbidden or over budget.
Program propagate(const Program& placed, const Mesh& mesh, const PropagateOptions& options = {});

}  // namespace orrery
