#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "cli/describe/describe.h"
#include "cli/flags.h"

namespace orrery {
namespace {

/// Escapes what roff would interpret.
std::string roff(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        if (c == '\\')
            safe += "\\e";
        else if (c == '-')
            safe += "\\-";
        else if ((c == '.' || c == '\'') && (safe.empty() || safe.back() == '\n'))
            safe += fmt::format("\\&{}", c);
        else
            safe += c;
    }
    return safe;
}

/// Whether the valid values of a flag are a name of their kind or a list, not a sentence on their bounds.
bool are_short(const std::string& shown) { return shown.starts_with('{') || shown == "FILE"; }

std::string value_word(const Flag& flag) {
    if (flag.rules.type) return flag.rules.type;
    if (are_short(flag.check.shown)) return flag.check.shown;
    if (!flag.takes_value()) return "";
    if (std::holds_alternative<bool*>(flag.to)) return "true|false";
    return flag.takes_text() ? "TEXT" : "NUMBER";
}

void print_flag(const Flag& flag) {
    if (flag.rules.hidden) return;
    std::string names;
    if (flag.positional()) {
        names = fmt::format("\\fI{}\\fR", roff(flag.name));
    } else {
        for (const std::string& name : split(flag.name, ','))
            names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
        if (const std::string value = value_word(flag); !value.empty())
            names += fmt::format(" \\fI{}\\fR", roff(value));
    }
    const std::string& shown = flag.check.shown;
    const bool more = !shown.empty() && (flag.positional() ? shown != "FILE" : !are_short(shown));
    std::printf(".TP\n%s\n%s\n", names.c_str(), roff(more ? flag.help + " (" + shown + ")" : flag.help).c_str());
}

/// Prints a command under `before`, the names of those that it is part of: "orrery checkpoints ".
void print_command(const Command& command, const std::string& before) {
    std::string synopsis = before + command.name;
    for (const Flag& flag : command.flags)
        if (flag.positional()) synopsis += flag.rules.required ? " " + flag.name : " [" + flag.name + "]";
    if (command.commands.empty()) synopsis += " [options]";
    std::printf(".SS %s\n%s\n", roff(synopsis).c_str(), roff(command.help).c_str());
    for (const Flag& flag : command.flags) print_flag(flag);
    if (!command.footer.empty()) std::printf(".PP\n.nf\n%s\n.fi\n", roff(command.footer).c_str());
    for (const Command& part : command.commands) print_command(part, before + command.name + " ");
}

}  // namespace

int print_man_page(const CommandProgram& program, std::string_view exit_codes) {
    const std::string name = program.name;
    std::printf(".TH %s 1 \"\" \"%s %s\"\n", name.c_str(), name.c_str(), ORRERY_VERSION);
    std::printf(".SH NAME\n%s \\- %s\n", name.c_str(), roff(program.help).c_str());
    std::printf(".SH SYNOPSIS\n\\fB%s\\fR \\fICOMMAND\\fR [options]\n.br\n\\fB%s\\fR \\-\\-version\n", name.c_str(),
                name.c_str());
    std::printf(".SH COMMANDS\n");
    for (const Command& command : program.commands) print_command(command, name + " ");
    std::printf(".SH EXIT STATUS\n%s\n", roff(exit_codes).c_str());
    std::printf(
        ".SH SEE ALSO\nThe manual is share/orrery/manual of the prefix; \\fBorrery \\-\\-help\\fR prints where.\n");
    return 0;
}

}  // namespace orrery
