#pragma once
#include <memory>
#include <string>
#include <vector>

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
    /// The pipeline that annotate() marks, nullptr where it marks none. Where its chunks are 0 the core writes there
    /// how many the schedule needs, before annotate(): a schedule is Lua, which a plugin cannot call.
    virtual Pipeline* pipeline() { return nullptr; }
};

/// A layer of the model, as a pipeline cuts it: the ops below one numbered scope ("h.3", "layers.11").
struct Layer {
    std::string scope;  ///< "": what comes before the first layer, or after the last
    double flops = 0;   ///< of the matrix products and attentions of its forward pass
};

/// The forward pass in layers, in order of the trace. The first is what comes before any layer, the last what comes
/// behind all of them; both are always there. Where no scope is numbered the outermost scopes are the layers.
ORRERY_API std::vector<Layer> layers(const Program& program);

}  // namespace orrery
