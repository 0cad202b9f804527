#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "orrery/checkpoint.h"
#include "orrery/layout.h"

namespace orrery {

/// What a copy of a step is, made or to be made.
struct StepCopy {
    int64_t objects = 0;
    int64_t bytes = 0;       ///< of objects, their headers included
    bool resharded = false;  ///< other objects than those of the source
};

struct CopyOptions {
    std::optional<Mesh> mesh = {};  ///< lay it out for this one; none, or its own: object by object as it is
    bool only_look = false;         ///< put nothing
    int64_t object_bytes = int64_t{256} << 20;
    int64_t piece_bytes = int64_t{1} << 20;
};

/// Copies a committed step into another store, where it appears whole or not at all, is read back, and has the step's
/// number and mark, but no pin. For another mesh each rank's objects are made one after the other: a tensor keeps the
/// splits of those axes that the mesh has and that divide it, each block is written once, by the lowest rank that holds
/// it. Takes memory for an object and the largest block. Throws Damaged naming object, tensor and bytes when the source
/// is not as its manifest says, Error when the step is there already, is removed meanwhile, or what is written does not
/// read back (nothing is left then), and what the stores throw.
StepCopy copy_step(CheckpointStore& from, int64_t step, CheckpointStore& to, const CopyOptions& options);

/// A tensor of `shape` that was split so on the mesh `from`, on another mesh, as copy_step takes it over.
Layout layout_on(const Layout& split, const Mesh& from, const Shape& shape, const Mesh& mesh);

}  // namespace orrery
