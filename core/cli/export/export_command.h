#pragma once
#include <cstdint>
#include <string>

namespace orrery {

/// Exports a checkpoint's params as a published model.
struct ExportCommand {
    std::string run;     ///< the run's folder
    std::string folder;  ///< folder to write
    int64_t step = -1;   ///< -1: the newest valid one
    std::string dtype;   ///< "f32", "bf16", "f16"; "": from the model's config.json
    double file_gb = 5;  ///< max data per file, in 10^9 bytes
    bool raw = false;    ///< params under their own names
};

/// Runs `orrery export` and returns the exit code. Stop signals must be blocked (base/signals.h).
int export_command(const ExportCommand& command);

}  // namespace orrery
