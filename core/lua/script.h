#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "run/script_interface.h"

namespace orrery {

/// Runs a Lua script top to bottom against a host. The script sees the safe standard libraries, `require "orrery..."`
/// from the script library and modules beside itself; [lua] of the configuration sets library, allow and limits.
/// Lua errors become Error with script file:line and the calls that led there. Exceptions of the host, Error or any
/// other std::exception, cross the script unchanged but for those calls.
void run_script(const std::filesystem::path& script, Host& host);

/// The same from text: `shown` is its name in messages, `folder` where its own modules lie.
void run_script_text(std::string_view text, const std::string& shown, const std::filesystem::path& folder, Host& host);

/// The folder that holds orrery/init.lua: `configured` when not empty, otherwise found beside the program or library
/// (source tree or installed prefix). Throws with the places tried.
std::filesystem::path script_library(const std::string& configured);

/// The schedule of a pipeline, found beside scripts of `folder` or in the library; chunks of 0: as many as it needs,
/// which `chunks` is told. Throws Error at the function's line where it returns no orders, and what the function
/// throws.
Schedule load_schedule(Pipeline pipeline, int64_t ranks, int64_t microbatches, const std::filesystem::path& folder,
                       Host& host, int* chunks = nullptr);

}  // namespace orrery
