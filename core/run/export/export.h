#pragma once
#include <optional>
#include <string>
#include <vector>

#include "orrery/checkpoint.h"
#include "run/checkpoint/format/manifest.h"
#include "run/export/published_record.h"

namespace orrery {

struct ExportOptions {
    std::optional<DType> dtype;               ///< none: as config.json says, f32 of raw ones
    int64_t file_bytes = 5'000'000'000;       ///< of data; a larger tensor has a file to itself
    bool raw = false;                         ///< params under their own names, without config.json
    std::vector<std::string> beside = {};     ///< further files that are copied into the folder
    int64_t block_bytes = int64_t{48} << 20;  ///< what is held at a time, twice; of transposed params thrice that
};

struct Exported {
    int64_t tensors = 0, files = 0, elements = 0, bytes = 0;
    DType dtype = DType::f32;
};

/// Writes the params of a committed step as transformers' save_pretrained lays a model: config.json,
/// generation_config.json, model.safetensors or its index and files. Streamed in blocks: memory does not grow with the
/// model. Each block is read back and compared; `folder` is there whole or not at all. Throws Error:
/// usage for a folder that is in the way, a model that nobody publishes and values beyond the dtype; Damaged, and
/// failed for what the disk refuses; requeue, between blocks, where a stop was asked for (run/control/stop_request.h).
Exported export_checkpoint(CheckpointStore& store, const Manifest& manifest, const PublishedRecord& record,
                           const std::string& folder, const ExportOptions& options);

}  // namespace orrery
