#pragma once
#include <string>
#include <vector>

#include "layout/shards.h"
#include "run/checkpoint/format/manifest.h"
#include "run/export/published_record.h"

namespace orrery {

/// The part of a tensor to be written that is one param of a checkpoint, or its first rows.
struct TensorPiece {
    const ManifestTensor* param = nullptr;
    bool transpose = false;  ///< the param is [in, out], the tensor [out, in]
    Block place;             ///< in the tensor
};

/// A tensor to be written.
struct OutTensor {
    std::string name;
    TensorType type;
    std::vector<TensorPiece> pieces;  ///< every element lies in one of them
};

/// What published files hold of the model, in the order of the record. Throws Error naming a param that the checkpoint
/// lacks, or a tensor that its params do not fill.
std::vector<OutTensor> published_tensors(const PublishedRecord& record, const Manifest& manifest, DType dtype);

/// Every param as a tensor of its own name, whole. The same errors.
std::vector<OutTensor> own_tensors(const PublishedRecord& record, const Manifest& manifest, DType dtype);

/// Cuts tensors in files of at most `most` bytes of data, one that is larger has a file to itself: for each file the
/// indices of its tensors.
std::vector<std::vector<size_t>> files_of(const std::vector<OutTensor>& tensors, int64_t most);

/// "model-00002-of-00004.safetensors", of one file "model.safetensors"
std::string file_name_of(size_t file, size_t files);

}  // namespace orrery
