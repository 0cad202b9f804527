#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace orrery {

struct FlagCheck {
    std::string shown;                                          ///< the valid values, for the help
    std::function<std::string(const std::string&)> problem_of;  ///< returns what is wrong with a value; "": valid
    std::vector<std::string> values = {};                       ///< all valid values, where they are few names
};

FlagCheck number(double least, double most);
/// Accepts a whole number within bounds, in decimal.
FlagCheck whole_number(int64_t least, int64_t most);
/// Accepts a whole number within bounds, in decimal, hexadecimal (0x) or octal (0).
FlagCheck in_range(int64_t least, int64_t most);
/// Accepts any file name except "", which means that the flag was not given.
FlagCheck file_name();
FlagCheck one_of(std::vector<std::string> names);
FlagCheck one_number_of(std::vector<int64_t> numbers);

/// What a flag sets: a variable, unchanged if the flag is not given, or a function that gets the value's text.
using FlagTarget =
    std::variant<bool*, int*, int64_t*, double*, std::string*, std::optional<int64_t>*, std::optional<uint64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*, std::vector<int64_t>*,
                 std::function<void(const std::string&)>>;

struct FlagRules {
    const char* needs = nullptr;     ///< name of another flag that must be given too
    const char* excludes = nullptr;  ///< name of another flag that must not be given too
    const char* type = nullptr;      ///< name of the value's type, shown in the help instead of TEXT or INT
    bool required = false;
    bool one_each = false;  ///< for a flag with several values: the flag is repeated before each
    bool commas = false;    ///< for a flag with several values: they may be separated by commas
    bool valued = false;    ///< for a bool flag: true or false follows it
    bool hidden = false;    ///< not shown in the help: only a command's child processes get it
    bool is_help = false;   ///< the command's own -h: needs no required flags; the command runs after its help
};

struct Flag {
    Flag(std::string name, FlagTarget to, std::string help, FlagCheck check, FlagRules rules = {});
    Flag(std::string name, FlagTarget to, std::string help, FlagRules rules = {});

    bool positional() const { return name[0] != '-'; }
    bool takes_value() const { return rules.valued || !std::holds_alternative<bool*>(to); }
    bool takes_text() const;

    std::string name;  ///< "-o,--out"; without dashes a positional argument
    FlagTarget to;
    std::string help;
    FlagCheck check;
    FlagRules rules;
};

std::vector<Flag> operator+(std::vector<Flag> flags, const std::vector<Flag>& more);

struct Command {
    std::string name, help;
    std::vector<Flag> flags;
    std::string footer;
    std::function<int()> run;
    bool holds_signals = false;    ///< blocks stop signals, as the command must save or remove something before it ends
    bool may_lose_output = false;  ///< a failed write to standard output does not change the exit code
    std::vector<Command> commands = {};  ///< subcommands: one of them must be given and runs instead
};

/// Formats command lines as examples for a help footer, each after "orrery ". `before`: a sentence to introduce them.
std::string examples(const std::vector<std::string>& lines, const std::string& before = "");

struct CommandProgram {
    std::string name, help;
    std::function<std::string()> version, footer;
    std::vector<Command> commands;
};

struct ParsedCommand {
    const Command* command = nullptr;  ///< the chosen command; nullptr: the process exits with `code`
    int code = 0;
};

/// Parses the command line and sets what its flags set. Prints the help if it is requested; for a misused flag, the
/// error, with exit code 2. Throws Error for unknown commands and flags, naming the closest one.
ParsedCommand parse_command_line(const CommandProgram& program, int argc, char** argv);

}  // namespace orrery
