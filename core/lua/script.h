#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "run/script_interface.h"

namespace orrery {

/// Runs a Lua script from top to bottom against a host. The script has the safe standard libraries, `require
/// "orrery..."` from the script library, and modules of its own folder; [lua] of the configuration sets library, allow
/// and limits. Lua errors become Error with the script's file:line and the calls that led there. Exceptions of the host
/// pass through; the calls are added to an Error.
void run_script(const std::filesystem::path& script, Host& host);

/// Runs a script from text: `shown` is its name in messages, `folder` the folder of its modules.
void run_script_text(std::string_view text, const std::string& shown, const std::filesystem::path& folder, Host& host);

/// Returns the folder that contains orrery/init.lua: `configured` unless it is empty, otherwise one found near the
/// program or library (source tree or installed prefix). Throws Error with the places tried.
std::filesystem::path script_library(const std::string& configured);

/// Returns the schedule of a pipeline, from `folder` or the library. If the pipeline's chunks are 0, uses the number
/// that the schedule needs and stores it in `chunks`. Throws Error at the function's line when it returns no orders;
/// passes on the function's own errors.
Schedule load_schedule(Pipeline pipeline, int64_t ranks, int64_t microbatches, const std::filesystem::path& folder,
                       Host& host, int* chunks = nullptr);

}  // namespace orrery
