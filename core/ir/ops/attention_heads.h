#pragma once
#include <optional>
#include <vector>

#include "ir/op.h"

namespace orrery::ops {

/// The decomposition of attention and of its gradient, for query heads that axes of P ranks split together, as context
/// parallelism by heads does. With G key/value heads:
///   P divides G: none; an all_to_all makes a split of heads from the split of the keys' sequence.
///   The axes split the G heads completely, further axes the queries of one head: keys and values are gathered over the
///   latter.
///   Otherwise keys and values are repeated to lcm(G, P) heads, which P divides, and their gradients' terms are added
///   where the sequence is split again.
/// Where a strategy asks for a ring, ring attention follows.
bool decompose_attention(const OpLayouts& at, const AddPart& add);

/// The axis of a ring: a strategy marked the use of keys and values as split in their sequence over it. Throws Error if
/// there are two such axes, or if it cannot be done.
std::optional<AxisId> ring_axis(const OpLayouts& at);

/// Adds attention, or its gradient, with other operands in place of the op's: one op, or with an axis of P ranks those
/// of ring attention (Liu, Zaharia and Abbeel 2023), which passes blocks of keys and values around the axis:
///
///     step     0            1            2            each rank's queries meet the keys of rank p, p-1, p-2 ...
///     rank 0   q0 k0 -----. q0 k2 -----. q0 k1
///     rank 1   q1 k1 --.  ` q1 k0 --.  ` q1 k2        each roll is issued before the attention that it overlaps with
///     rank 2   q2 k2    `-> q2 k1    `-> q2 k0
///
/// Forward, the P attentions are merged. For the gradient, given o and lse of all keys, the terms of dq are added, and
/// dk and dv travel with their block back to its rank. With U bytes of keys and values on a rank and U' bytes of
/// their gradients, a rank sends (P-1) U forward, and (P-1) (U + U') for the gradient; an index is rolled once for all
/// layers of a stage. `made` is as for AddPart.
std::vector<ValueId> add_attention(const OpLayouts& at, const AddPart& add, const std::vector<ValueId>& inputs,
                                   std::optional<AxisId> ring, const std::vector<ValueId>& made);

}  // namespace orrery::ops
