#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace orrery {

/// Returns the folder of the manual's pages, next to the Lua library: installed or in the source tree; "" if neither.
std::filesystem::path manual_folder();

/// Returns the text with each `what` replaced.
std::string replaced(std::string text, std::string_view what, std::string_view by);

/// Reads a file that was installed with the program, for example a template.
std::string installed_text(const std::filesystem::path& path);

/// Makes a folder for files that a command writes from templates. Throws Error if it exists and is not empty.
/// `instead`: the command line for another folder, for the message.
void make_new_folder(const std::filesystem::path& folder, std::string_view instead);

/// Writes a file of a new folder.
void write_new(const std::filesystem::path& path, std::string_view text);

}  // namespace orrery
