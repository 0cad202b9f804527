#pragma once
#include "ir/op.h"

namespace orrery::ops {

/// The decomposition of attention and of its gradient, for query heads that axes of P ranks split together, as context
/// parallelism by heads does. With G key/value heads:
///   P divides G: none; an all_to_all makes a split of heads from the split of the keys' sequence.
///   The axes split the G heads completely, further axes the queries of one head: keys and values are gathered over the
///   latter.
///   Otherwise keys and values are repeated to lcm(G, P) heads, which P divides, and their gradients' terms are added
///   where the sequence is split again.
bool decompose_attention(const OpLayouts& at, const AddPart& add);

}  // namespace orrery::ops
