#pragma once
#include <optional>
#include <string>
#include <vector>

#include "orrery/checkpoint.h"
#include "run/checkpoint/format/manifest.h"
#include "run/export/published_record.h"

namespace orrery {

struct ExportOptions {
    std::optional<DType> dtype;               ///< dtype to write; none: the one in config.json, f32 for raw exports
    int64_t file_bytes = 5'000'000'000;       ///< max bytes of data per file; a larger tensor gets its own file
    bool raw = false;                         ///< whether to write params under their own names, without config.json
    std::vector<std::string> beside = {};     ///< additional files to copy into the folder
    int64_t block_bytes = int64_t{48} << 20;  ///< bytes of one block; two blocks are in memory at a time, and blocks of
                                              ///< transposed params are three times as large
};

struct Exported {
    int64_t tensors = 0, files = 0, elements = 0, bytes = 0;
    DType dtype = DType::f32;
    bool rounded = false;  ///< whether params of f32 have other values in dtype
};

/// Writes the params of a committed step in the layout of transformers' save_pretrained: config.json,
/// generation_config.json, and model.safetensors or an index with several files. Streams in blocks, so memory does not
/// grow with the model. Each block is read back and compared; `folder` appears complete or not at all. Throws Error:
/// usage if the folder is not empty, if no published architecture fits, or if a value exceeds the dtype; Damaged for a
/// corrupt checkpoint; failed for disk errors; requeue, between blocks, if a stop was requested
/// (run/control/stop_request.h).
Exported export_checkpoint(CheckpointStore& store, const Manifest& manifest, const PublishedRecord& record,
                           const std::string& folder, const ExportOptions& options);

}  // namespace orrery
