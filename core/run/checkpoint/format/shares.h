#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layout/shards.h"
#include "orrery/mark.h"

namespace orrery {

/// How a value with a row for each member of an axis is read from a checkpoint of another number of members: n rows.
enum class OtherRows : uint8_t {
    refused,
    mean,    ///< each takes the mean of all; a value that is not f32, bf16 or f16 as `copies`
    copies,  ///< row k takes row k modulo n
    hints,   ///< the same, of a value that may be any, as where a search begins
    sum,     ///< of m rows, row k takes the sum of rows k, k + m, ..: the sum of all stays. f32
};

/// One param or optimizer state as this rank holds it. `local` is host-readable, of shape layout.local_shape(global).
/// Names are unique. Ranks of one pipeline stage hold the same values; other stages may hold other values.
struct StateValue {
    std::string name;
    TensorType global;
    Layout layout;
    Tensor local;
    std::vector<int64_t> stages = {};  ///< pipeline stages that hold the value (on the stage axis); empty: all
    bool fixed = false;                ///< whether the program never changes the value
    bool absent_ok = false;            ///< a checkpoint may lack the value; restoring then leaves `local` as it is
    std::optional<OtherRows> other_rows = {};  ///< nullopt: the value has no row for each member
};

/// One value's block on this rank: the ranks that hold the same block, and the part of it that this rank writes.
struct Share {
    std::string holders;  ///< names the set of ranks, the same text on each of them: "dp+tp, stages 0 3, rank 5"
    int64_t count = 1;    ///< number of ranks that hold the block
    bool first = false;   ///< whether this rank is the lowest that holds the block
    Block local;
    std::vector<Block> blocks;  ///< parts of the tensor that this rank writes, each contiguous in the local block
};

/// Splits the values that several ranks hold, so that each element is written by exactly one rank and all ranks write
/// about the same number of bytes. `least_bytes`: min bytes of a rank's part of values with the same holders. Needs no
/// communication. Throws if `rank` is on a stage that does not hold a value. O(n log n) in the number of values.
std::vector<Share> shares_of(std::span<const StateValue> state, const Mesh& mesh, int64_t rank, AxisId stage_axis,
                             int64_t least_bytes);

/// The ranks that hold the same block of a value as `rank` does, itself included.
std::vector<int64_t> holders_of(const StateValue& value, const Mesh& mesh, int64_t rank, AxisId stage_axis);

/// The block of a value that a rank holds. Throws if `local` has another shape or dtype, or holds partial sums.
Block box_of(const StateValue& value, const Mesh& mesh, int64_t rank);

}  // namespace orrery
