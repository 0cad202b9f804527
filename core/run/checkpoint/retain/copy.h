#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "orrery/checkpoint.h"
#include "orrery/layout.h"

namespace orrery {

struct StepCopy {
    int64_t objects = 0;     ///< number of objects; 0 if unknown (only_look with resharding)
    int64_t bytes = 0;       ///< bytes of the objects; without their headers if `objects` is unknown
    bool resharded = false;  ///< whether the copy's objects differ from the source's
};

struct CopyOptions {
    std::optional<Mesh> mesh = {};  ///< mesh to reshard to; nullopt or the step's own mesh: objects stay as they are
    bool only_look = false;         ///< whether to compute only the size and write nothing
    bool finishes = false;          ///< whether the target may have this copy already, from a process that was killed
    int64_t object_bytes = int64_t{256} << 20;
    int64_t piece_bytes = int64_t{1} << 20;
};

/// Copies a committed step to another store, with its number and mark but without its pin. The copy appears whole or
/// not at all, and is read back. To reshard, the objects of each rank are built one after the other: each block is
/// written once, by the lowest rank that holds it. Uses memory for one object and the largest block. Throws Damaged
/// naming object, tensor and bytes if the source does not match its manifest; Error if the target has the step already
/// (with `finishes`: unless it is this copy), the source was removed meanwhile, or the copy cannot be read back (it is
/// removed then); and what the stores throw.
StepCopy copy_step(CheckpointStore& from, int64_t step, CheckpointStore& to, const CopyOptions& options);

/// The layout on `mesh` of a tensor with layout `split` on the mesh `from`. Keeps the splits over axes of the same name
/// whose sizes divide the dim; drops the others.
Layout layout_on(const Layout& split, const Mesh& from, const Shape& shape, const Mesh& mesh);

}  // namespace orrery
