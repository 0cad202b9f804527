#pragma once
#include <string>
#include <vector>

#include "layout/shards.h"
#include "run/checkpoint/format/manifest.h"
#include "run/export/published_record.h"

namespace orrery {

/// The part of an output tensor that comes from one param of a checkpoint, from its first rows, or from one index along
/// its first dim.
struct TensorPiece {
    const ManifestTensor* param = nullptr;
    bool rows = false;       ///< whether the param is the mean over its first dim, which its shape here lacks
    bool transpose = false;  ///< whether the piece of the param is a matrix [in, out], and the tensor [.., out, in]
    int64_t index = -1;      ///< index along the param's first dim; -1: all
    /// Params that alternate along the tensor's last dim, element by element.
    std::vector<const ManifestTensor*> interleaved = {};
    Block place;
};

struct OutTensor {
    std::string name;
    TensorType type;
    std::vector<TensorPiece> pieces;  ///< pieces that together cover every element
};

/// Returns the tensors of the published model, in the order of the record. Throws Error naming a param that the
/// checkpoint lacks, or a tensor that its params do not cover.
std::vector<OutTensor> published_tensors(const PublishedRecord& record, const Manifest& manifest, DType dtype);

/// Returns each param as a whole tensor under its own name. Throws Error naming a param that the checkpoint lacks.
std::vector<OutTensor> own_tensors(const PublishedRecord& record, const Manifest& manifest, DType dtype);

/// Distributes tensors over files of at most `most` bytes of data; a larger tensor gets its own file. Returns the
/// indices of each file's tensors.
std::vector<std::vector<size_t>> files_of(const std::vector<OutTensor>& tensors, int64_t most);

/// Returns a file's name: "model-00002-of-00004.safetensors"; "model.safetensors" for a single file.
std::string file_name_of(size_t file, size_t files);

}  // namespace orrery
