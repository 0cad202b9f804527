#pragma once
#include <chrono>
#include <string>

#include "base/process.h"
#include "orrery/engine.h"

namespace orrery {

/// Returns the path of a program in PATH; "": there is none.
std::string in_path(const std::string& program);

/// Runs a call to its end and returns its output; kills it after `limit`. `engine`: its name, for the Error that names
/// a missing program.
ChildEnd run_call(const std::string& engine, const EngineCall& call,
                  std::chrono::milliseconds limit = std::chrono::minutes(10));
/// Runs a call, with its output on this process's streams; returns its exit code, 128 + signal after a signal.
int show_call(const std::string& engine, const EngineCall& call);
/// Replaces this process by the call's program.
[[noreturn]] void become_call(const std::string& engine, const EngineCall& call);

}  // namespace orrery
