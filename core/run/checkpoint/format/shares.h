#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout/shards.h"
#include "orrery/mark.h"

namespace orrery {

/// One parameter, gradient or optimizer state as this rank holds it. `local` is host-readable and has
/// layout.local_shape(global). Names are unique; ranks of one stage hold the same names, other stages may hold others.
struct StateValue {
    std::string name;
    TensorType global;
    Layout layout;
    Tensor local;
    /// Where ranks that hold it lie on the axis of stages (CheckpointOptions::stage_axis); empty: everywhere.
    std::vector<int64_t> stages = {};
    bool fixed = false;  ///< the program does not change it
};

/// Of one value: who holds the same block as a rank, and which part of it that rank writes.
struct Share {
    std::string holders;  ///< the same text on all who hold the block, and on nobody else: "dp+tp, stages 0 3, rank 5"
    int64_t count = 1;    ///< how many ranks they are
    bool first = false;   ///< this rank is the lowest of them
    Block local;          ///< all that this rank holds
    std::vector<Block> blocks;  ///< written by this rank: parts of the tensor, each contiguous in the local block
};

/// What each rank writes follows from layouts, mesh and stages, so nobody asks. What is replicated over the same ranks
/// is laid end to end, by name, what is fixed by itself, and cut into one part of equal bytes per holder, at rows (of
/// the first dim whose rows are small against a part), or fewer parts where these would fall below `least_bytes`. Every
/// element is in the part of one holder. Throws when a rank of another stage than the value's asks. O(n log n) in the
/// rank's own values.
std::vector<Share> shares_of(std::span<const StateValue> state, const Mesh& mesh, int64_t rank, AxisId stage_axis,
                             int64_t least_bytes);

/// The ranks that hold the same block of a value as this one does.
std::vector<int64_t> holders_of(const StateValue& value, const Mesh& mesh, int64_t rank, AxisId stage_axis);

/// The part of a value that a rank holds. Throws when `local` is not of that shape, or holds partial sums.
Block box_of(const StateValue& value, const Mesh& mesh, int64_t rank);

}  // namespace orrery
