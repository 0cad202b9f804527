#pragma once
#include <memory>
#include <string>
#include <vector>

#include "orrery/config.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// A parallelization strategy. It is pure: it reads the program and the mesh and writes marks, the same on every rank.
/// It cannot add an op or a collective; propagation derives those.
class ORRERY_API Strategy {
public:
    virtual ~Strategy();
    /// Writes the marks. Throws Error naming the value, dim and axis that cannot be marked.
    virtual void annotate(Program& program, const Mesh& mesh) = 0;
    /// The pipeline that annotate() marks, or nullptr. When its `chunks` is 0, the core sets it before annotate() to
    /// what the schedule needs: a schedule is Lua, which a plugin cannot call.
    virtual Pipeline* pipeline() { return nullptr; }
};

/// A layer of the model for splitting it into pipeline stages: the ops below one numbered scope ("h.3", "layers.11").
struct Layer {
    std::string scope;  ///< "" for the ops before the first layer or after the last
    double flops = 0;   ///< FLOPs of the GEMMs and attentions in the layer's forward pass
};

/// The layers of the forward pass, in trace order. The first entry is the ops before any layer, the last entry those
/// after all layers; both always exist. When no scope is numbered, the outermost scopes are the layers.
ORRERY_API std::vector<Layer> layers(const Program& program);

}  // namespace orrery
