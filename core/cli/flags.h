#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace orrery {

/// Checks the value that the user gives to a flag.
struct FlagCheck {
    std::string shown;                                          ///< valid values, shown in the help
    std::function<std::string(const std::string&)> problem_of;  ///< returns what is wrong with a value; "": valid
};

/// Accepts a number within bounds, but not NaN.
FlagCheck number(double least, double most);
/// Accepts a whole number within bounds, in decimal.
FlagCheck whole_number(int64_t least, int64_t most);
/// Accepts a whole number within bounds, in decimal, hexadecimal (0x) or octal (0).
FlagCheck in_range(int64_t least, int64_t most);
/// Accepts any file name except "", which means that the flag was not given.
FlagCheck file_name();
FlagCheck one_of(std::vector<std::string> names);
FlagCheck one_number_of(std::vector<int64_t> numbers);

/// Target of a flag: a variable, which keeps its value if the flag is not given, or a function that gets the text.
using FlagTarget =
    std::variant<bool*, int*, int64_t*, double*, std::string*, std::optional<int64_t>*, std::optional<uint64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*, std::vector<int64_t>*,
                 std::function<void(const std::string&)>>;

/// How a flag may be used on a command line.
struct FlagRules {
    const char* needs = nullptr;     ///< requires another flag
    const char* excludes = nullptr;  ///< excludes another flag
    const char* type = nullptr;      ///< name of the value's type, shown in the help instead of TEXT or INT
    bool required = false;
    bool one_each = false;  ///< lists: the flag is repeated for each value
    bool commas = false;    ///< lists: a value may be a comma-separated list
    bool valued = false;    ///< bool flags: followed by true or false
    bool hidden = false;    ///< not in the help: for processes that a command starts
    bool is_help = false;   ///< the command's own -h: no flag is required, and the command runs after its help
};

/// A flag of a command.
struct Flag {
    Flag(std::string name, FlagTarget to, std::string help, FlagCheck check, FlagRules rules = {});
    Flag(std::string name, FlagTarget to, std::string help, FlagRules rules = {});

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
    std::string footer;                  ///< text after the command's help
    std::function<int()> run;            ///< returns the exit code
    bool holds_signals = false;          ///< blocks stop signals, since it has something to save or remove
    bool may_lose_output = false;        ///< exits with its own code even if standard output cannot be written
    std::vector<Command> commands = {};  ///< subcommands: one of them must be given and runs instead
};

/// Formats command lines as examples for a help footer, each after "orrery "; `before`: an introductory sentence.
std::string examples(const std::vector<std::string>& lines, const std::string& before = "");

struct CommandProgram {
    std::string name, help;
    std::function<std::string()> version, footer;
    std::vector<Command> commands;  ///< commands in the order of the help
};

struct ParsedCommand {
    const Command* command = nullptr;  ///< the chosen command; nullptr: the process exits with `code`
    int code = 0;
};

/// Parses the command line and sets the targets of its flags. Prints the requested help, or how flags are misused (code
/// 2). Throws Error for unknown commands and flags, naming the closest one.
ParsedCommand parse_command_line(const CommandProgram& program, int argc, char** argv);

}  // namespace orrery
