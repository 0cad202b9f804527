#pragma once
#include <cstdint>
#include <string>

namespace orrery {

struct ExportCommand {
    std::string run;
    std::string folder;  ///< folder to write the model to
    int64_t step = -1;   ///< step of the checkpoint; -1: the newest valid one
    std::string dtype;   ///< "f32", "bf16", "f16"; "": from the model's config.json
    double file_gb = 5;  ///< max bytes of a weights file, in units of 10^9 bytes
    bool raw = false;    ///< keep the params' own names instead of the published ones
};

/// Runs `orrery export` and returns the exit code. Stop signals must be blocked (base/signals.h).
int export_command(const ExportCommand& command);

}  // namespace orrery
