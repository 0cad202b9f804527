#include "cli/flag_checks.h"

#include <fmt/format.h>

#include <charconv>

namespace orrery {
namespace {

template <class T>
CLI::Validator within(T least, T most, const char* what) {
    const std::string bounds = fmt::format("from {} to {}", least, most);
    const auto check = [=](std::string& text) -> std::string {
        T value{};
        const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool sound = problem == std::errc() && end == text.data() + text.size();
        if (sound && value >= least && value <= most) return "";
        return fmt::format("{}: expected {} {}", text.empty() ? "''" : text, what, bounds);
    };
    return CLI::Validator(check, bounds);
}

}  // namespace

CLI::Validator number_from(double least, double most) { return within(least, most, "a number"); }

CLI::Validator whole_number_from(int64_t least, int64_t most) { return within(least, most, "a whole number"); }

CLI::Validator file_name() {
    const auto check = [](std::string& text) -> std::string {
        return text.empty() ? "'': expected the name of a file" : "";
    };
    return CLI::Validator(check, "FILE");
}

void add_examples(CLI::App& app, const std::vector<std::string>& lines, const std::string& before) {
    std::string text = before + (before.empty() ? "" : "\n") + "Examples:";
    for (const std::string& line : lines) text += "\n  orrery " + line;
    app.footer(text);
}

}  // namespace orrery
