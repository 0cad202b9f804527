#pragma once
#include <string>
#include <vector>

#include "run/checkpoint/restore/weight_files.h"
#include "run/script_interface.h"
#include "run/session.h"

namespace orrery {

/// The table with the names that the files have: those that begin with its prefix may stand without it.
PublishedWeights as_named(PublishedWeights weights, const WeightFiles& files);

/// Throws Error naming file, tensor, what was found and expected, unless every param of the program has a source of its
/// shape and of a floating dtype in the safetensors file or folder, and every tensor there is read whole, ignored, or a
/// bit-equal copy. Reads headers, and the data of copies.
void check_weights(const Program& program, const std::string& path, const PublishedWeights& weights);

/// The block of a param that begins at `offset` and has `shape`, row-major, from its source; bf16 and f16 are
/// widened to f32. Throws as check_weights does.
std::vector<float> read_weights(const WeightFiles& files, const Value& param, const WeightSource& source, Shape offset,
                                Shape shape);

/// Fills this rank's part of every param from a published safetensors file or folder. Stored bf16 and f16 are widened
/// to f32. Rank 0 throws as check_weights does, first: nobody else may have looked at the file.
void load_weights(Session& session, const std::string& path, const PublishedWeights& weights);

}  // namespace orrery
