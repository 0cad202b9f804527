#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

// What CLI11's own checks let through (nan) or say in 309 digits (the bounds of a double), for `check`.

/// A number within bounds, not nan.
CLI::Validator number_from(double least, double most);
/// A whole number within bounds.
CLI::Validator whole_number_from(int64_t least, int64_t most);
/// A name of a file; "" would read as if the option were not there.
CLI::Validator file_name();

/// Lines shown behind a command's options, each behind "orrery "; `before` them a word of what it does.
void add_examples(CLI::App& app, const std::vector<std::string>& lines, const std::string& before = "");

}  // namespace orrery
