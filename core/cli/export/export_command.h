#pragma once
#include <cstdint>
#include <string>

namespace orrery {

/// A checkpoint's params as a published model.
struct ExportCommand {
    std::string run;     ///< the run's folder
    std::string folder;  ///< to be written
    int64_t step = -1;   ///< -1: the newest good one
    std::string dtype;   ///< "f32", "bf16", "f16"; "": as the model's config.json says
    double file_gb = 5;  ///< 10^9 bytes of data a file
    bool raw = false;    ///< params under their own names
};

/// Returns the exit code. Stop signals must be held (base/signals.h).
int export_command(const ExportCommand& command);

}  // namespace orrery
