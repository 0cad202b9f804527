#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace orrery {

/// What the text of a value has to be.
struct FlagCheck {
    std::string shown;                                          ///< in the help, after the type
    std::function<std::string(const std::string&)> problem_of;  ///< "" where the text is right
};

/// A number within bounds, not nan.
FlagCheck number(double least, double most);
/// A whole number within bounds.
FlagCheck whole_number(int64_t least, int64_t most);
/// The same, with a prefix 0x or 0 for other bases.
FlagCheck in_range(int64_t least, int64_t most);
/// A name of a file; "" would read as if the flag were not there.
FlagCheck file_name();
FlagCheck one_of(std::vector<std::string> names);
FlagCheck one_number_of(std::vector<int64_t> numbers);

/// The variable that a flag sets, which keeps its value where the flag is not given; or a function of the text.
using FlagTarget =
    std::variant<bool*, int*, int64_t*, double*, std::string*, std::optional<int64_t>*, std::optional<uint64_t>*,
                 std::optional<double>*, std::optional<std::string>*, std::vector<std::string>*, std::vector<int64_t>*,
                 std::function<void(const std::string&)>>;

/// How a flag may be given.
struct FlagRules {
    const char* needs = nullptr;     ///< another flag
    const char* excludes = nullptr;  ///< another flag
    const char* type = nullptr;      ///< in the help, instead of TEXT or INT
    bool required = false;
    bool one_each = false;  ///< lists: the flag is repeated for each value
    bool commas = false;    ///< lists: a value may be several, with commas between
    bool valued = false;    ///< bool: true or false follows
    bool hidden = false;    ///< not in the help: for processes that a command starts
    bool is_help = false;   ///< the command's own -h: nothing is required, and the command runs after its help
};

/// A row of a command's table.
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
    std::string footer;                  ///< of its help
    std::function<int()> run;            ///< returns the exit code
    bool holds_signals = false;          ///< has something to save or to remove before a signal ends it
    bool may_lose_output = false;        ///< exits with its own code although standard output cannot be written
    std::vector<Command> commands = {};  ///< one of these must follow, and runs instead
};

/// Examples for a footer, each after "orrery "; `before` them a word of what the command does.
std::string examples(const std::vector<std::string>& lines, const std::string& before = "");

struct CommandProgram {
    std::string name, help;
    std::function<std::string()> version, footer;
    std::vector<Command> commands;  ///< as its help lists them
};

struct ParsedCommand {
    const Command* command = nullptr;  ///< nullptr: the process exits with `code`
    int code = 0;
};

/// Sets the targets of the given flags and prints the help that is asked for, or how the flags are misused (code 2).
/// Throws Error for unknown commands and flags, naming the closest one.
ParsedCommand parse_command_line(const CommandProgram& program, int argc, char** argv);

}  // namespace orrery
