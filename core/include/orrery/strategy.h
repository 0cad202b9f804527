#pragma once
#include <memory>
#include <string>

#include "orrery/config.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// A way to spread a program over a mesh. Pure: it reads the program and the mesh and writes marks, the same on every
/// rank. It cannot add an op or a collective; propagation derives those.
class ORRERY_API Strategy {
public:
    virtual ~Strategy();
    /// Options were read by the factory. Throws Error naming the value, dim and axis that cannot be marked.
    virtual void annotate(Program& program, const Mesh& mesh) = 0;
};

}  // namespace orrery
