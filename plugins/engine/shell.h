#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/engine.h"

namespace orrery {

/// Returns a word as a POSIX shell reads it back: in single quotes where it has more than plain characters.
inline std::string quoted(std::string_view word) {
    const auto plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("_-./:=,+@%^").find(c) != std::string_view::npos;
    };
    if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

/// Returns the words as one line of shell.
inline std::string quoted(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted(word);
    return line;
}

/// Returns `texts`, each with an end of line.
inline std::string lines_of(const std::vector<std::string>& texts) {
    std::string lines;
    for (const std::string& text : texts) lines += text + "\n";
    return lines;
}

/// Returns the line that sets a variable in a shell and in the programs that it starts.
inline std::string exported(std::string_view name, std::string_view value) {
    return "export " + std::string(name) + "=" + quoted(value) + "\n";
}

/// Whether the command of a job has a flag, as "--restarts 3" or "--restarts=3".
inline bool has_flag(const EngineJob& job, std::string_view flag) {
    return std::any_of(job.command.begin(), job.command.end(), [&](std::string_view word) {
        return word == flag || (word.starts_with(flag) && word.substr(flag.size()).starts_with("="));
    });
}

}  // namespace orrery
