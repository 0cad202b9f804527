#pragma once
#include "orrery/program.h"

namespace orrery {

/// Joins reduce-scatters, and all-gathers, of a propagated program in messages of at most Program::bucket_bytes: of one
/// axis, type, phase, stage and scope of life, as long as nothing reads them yet. The members' blocks are packed side
/// by side for each rank, and cut apart behind the message; both are ordinary ops. What other axes split is sent alone.
/// (All-reduces are joined by lowering, which makes their members in place.) Linear in the program.
void bucket_collectives(Program& program, const Mesh& mesh);

}  // namespace orrery
