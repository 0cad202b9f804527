#pragma once
#include "orrery/program.h"

namespace orrery {

/// Packs reduce-scatters, all-gathers, exchanges of codes and all-reduces of codes of a propagated program into
/// messages of at most Program::bucket_bytes. The members of a message have the same axis, reduction, type, phase,
/// stage and `keep`; nothing reads their outputs before it. A value that another axis splits, or of more than half a
/// bucket, is sent alone. Lowering packs other all-reduces. Linear. For dp=2:
///
///     %5 = reduce_scatter %3 {axis=dp, dim=0}  f32[8,4]     %7  = reshape %3            f32[2,16]
///     %6 = reduce_scatter %4 {axis=dp, dim=0}  f32[2,6]     %8  = reshape %4            f32[2,6]
///                                                     ->    %9  = concat %7 %8 {dim=1}  f32[2,22]
///                                                           %10 = reduce_scatter %9 {axis=dp, dim=0}
///                                                           %5, %6: slices of %10, reshaped
void bucket_collectives(Program& program, const Mesh& mesh);

}  // namespace orrery
