// Tensors of published files, decoded to a floating-point type. A tensor X may be stored as
// - X, of a floating-point type;
// - X of F8_E4M3 [rows, columns] and X_scale_inv, F32 [ceil(rows / 128), ceil(columns / 128)]: each block of 128 x 128
//   elements is multiplied by its scale (DeepSeek-V3);
// - X_blocks, U8 [.., rows, G, 16] and X_scales, U8 [.., rows, G], in MXFP4 (OCP Microscaling Formats 1.0): 16 bytes
//   are 32 elements e2m1, the low half of a byte first, times 2^(scale - 127). X is [.., 32 G, rows], with the last
//   two dims transposed, as gpt-oss names it. Reads as bf16, which holds each value.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "run/checkpoint/restore/weight_files.h"

namespace orrery {

/// Returns the names of the stored tensors of a tensor X; empty if the files lack X.
std::vector<std::string> stored_names_of(const WeightFiles& files, const std::string& tensor);

/// Returns the type of a tensor. Throws Error that names file and tensor if a scale is missing or does not fit, if the
/// type cannot be read, or, with similar names, if no file has the tensor.
TensorType decoded_type(const WeightFiles& files, const std::string& tensor);

/// Reads the block of a tensor at `offset` of shape `shape`, row-major, as f32. Reads no more of the file than that,
/// but whole groups of 32 elements of MXFP4, and all scales of an F8_E4M3 tensor. Throws like decoded_type and
/// SafetensorsFile::read.
std::vector<float> read_decoded(const WeightFiles& files, const std::string& tensor, const Shape& offset,
                                const Shape& shape);

}  // namespace orrery
