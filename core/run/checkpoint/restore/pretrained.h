#pragma once
#include <string>
#include <vector>

#include "run/checkpoint/restore/weight_files.h"
#include "run/script_interface.h"
#include "run/session.h"

namespace orrery {

/// Returns the table `weights` with tensor names as in the files, which may omit the table's prefix from names.
PublishedWeights as_named(PublishedWeights weights, const WeightFiles& files);

/// Checks that the safetensors file or folder fits the program: every param has a source of its shape and of a floating
/// dtype, and every tensor is read completely, ignored by the table, or a bit-equal copy of one that is read. Returns
/// the params that keep their initial values: `fresh` ones without a tensor in the files. Throws Error naming file,
/// tensor, what was found and what was expected. Reads headers, and the data of copies.
std::vector<std::string> check_weights(const Program& program, const std::string& path,
                                       const PublishedWeights& weights);

/// The line that says which params (at least one) keep their initial values.
std::string fresh_text(const std::vector<std::string>& params, const std::string& path);

/// Reads the block of a param that begins at `offset` and has shape `shape`, row-major, widened to f32. Throws Error if
/// the tensor in the file does not fit the param.
std::vector<float> read_weights(const WeightFiles& files, const Value& param, const WeightSource& source, Shape offset,
                                Shape shape);

/// Fills this rank's block of every param from a published safetensors file or folder. bf16 and f16 are widened to f32.
/// Rank 0 first checks, like check_weights, that the file fits the program, and returns the params that keep their
/// initial values; other ranks return nothing. The params are initialized already.
std::vector<std::string> load_weights(Session& session, const std::string& path, const PublishedWeights& weights);

}  // namespace orrery
