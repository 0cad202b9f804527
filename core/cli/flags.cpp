#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/suggest.h"
#include "base/text.h"
#include "orrery/error.h"

namespace orrery {
namespace {

// Replaces CLI11's checks, which accept NaN and print the bounds of a double with 309 digits.
template <class T>
FlagCheck within(T least, T most, const char* what) {
    const std::string bounds = fmt::format("from {} to {}", least, most);
    return {bounds, [=](const std::string& text) -> std::string {
                T value{};
                const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
                const bool valid = problem == std::errc() && end == text.data() + text.size();
                if (valid && value >= least && value <= most) return "";
                return fmt::format("{}: expected {} {}", text.empty() ? "''" : text, what, bounds);
            }};
}

FlagCheck as_check(const CLI::Validator& validator) { return {validator.get_description(), validator}; }

CLI::Option* bind(CLI::App& app, const Flag& flag) {
    const auto add = [&](const auto& to) -> CLI::Option* {
        using To = std::decay_t<decltype(to)>;
        if constexpr (std::is_same_v<To, std::function<void(const std::string&)>>) {
            return app.add_option_function<std::string>(flag.name, to, flag.help);
        } else {
            if constexpr (std::is_same_v<To, bool*>)
                if (!flag.rules.valued) return app.add_flag(flag.name, *to, flag.help);
            return app.add_option(flag.name, *to, flag.help);
        }
    };
    return std::visit(add, flag.to);
}

void add(CLI::App& app, const Flag& flag) {
    const FlagRules& rules = flag.rules;
    if (rules.is_help) app.set_help_flag();
    CLI::Option* const option = bind(app, flag)->required(rules.required);
    if (flag.check.problem_of) option->check(CLI::Validator(flag.check.problem_of, flag.check.shown));
    if (rules.needs) option->needs(app.get_option(rules.needs));
    if (rules.excludes) option->excludes(app.get_option(rules.excludes));
    if (rules.type) option->type_name(rules.type);
    if (rules.one_each) option->allow_extra_args(false);
    if (rules.commas) option->delimiter(',');
    if (rules.hidden) option->group("");
}

void add(CLI::App& parent, const Command& command) {
    CLI::App& app = *parent.add_subcommand(command.name, command.help);
    if (!command.commands.empty()) app.require_subcommand(1);
    for (const Flag& flag : command.flags) add(app, flag);
    for (const Command& part : command.commands) add(app, part);
    app.footer(command.footer);  // must be set last, since subcommands inherit the footer
}

const Command* named_in(const CLI::App& app, const std::vector<Command>& commands) {
    for (const Command& command : commands)
        if (const CLI::App& one = *app.get_subcommand(command.name); one.parsed())
            return command.commands.empty() ? &command : named_in(one, command.commands);
    return nullptr;
}

bool asks_help(const Command& command) {
    return std::any_of(command.flags.begin(), command.flags.end(),
                       [](const Flag& flag) { return flag.rules.is_help && *std::get<bool*>(flag.to); });
}

void refuse_unknown_command(const CommandProgram& program, int argc, char** argv) {
    if (argc < 2 || argv[1][0] == '-') return;
    std::vector<std::string> names;
    for (const Command& command : program.commands) names.push_back(command.name);
    if (std::find(names.begin(), names.end(), argv[1]) == names.end())
        throw Error(fmt::format("no command {}{}", quote(argv[1]), choices("there are", argv[1], names)));
}

[[noreturn]] void refuse_extras(const CLI::App& app, const CLI::ExtrasError& error) {
    const std::string text = error.what();  // "The following argument was not expected: --confg"
    const auto commands = app.get_subcommands();
    const CLI::App& command = commands.empty() ? app : *commands.front();
    const std::string given = text.substr(std::min(text.size(), text.rfind(": ") + 2));
    const size_t dashes = given.starts_with("--") ? 0 : given.find(" --") + 1;  // CLI11 lists arguments reversed
    const std::string first = given.substr(dashes, given.find_first_of(" =", dashes) - dashes);
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options())
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::string guess = did_you_mean(first, names);
    throw Error(fmt::format("{}: unknown option or argument {}\n  {}{}orrery {} --help lists all options",
                            command.get_name(), given, guess, guess.empty() ? "" : " ", command.get_name()));
}

}  // namespace

FlagCheck number(double least, double most) { return within(least, most, "a number"); }

FlagCheck whole_number(int64_t least, int64_t most) { return within(least, most, "a whole number"); }

FlagCheck in_range(int64_t least, int64_t most) { return as_check(CLI::Range(least, most)); }

FlagCheck file_name() {
    return {"FILE",
            [](const std::string& text) { return std::string(text.empty() ? "'': expected the name of a file" : ""); }};
}

FlagCheck one_of(std::vector<std::string> names) {
    FlagCheck check = as_check(CLI::IsMember(names));
    check.values = std::move(names);
    return check;
}

FlagCheck one_number_of(std::vector<int64_t> numbers) { return as_check(CLI::IsMember(std::move(numbers))); }

Flag::Flag(std::string name, FlagTarget to, std::string help, FlagCheck check, FlagRules rules)
    : name(std::move(name)), to(std::move(to)), help(std::move(help)), check(std::move(check)), rules(rules) {}

Flag::Flag(std::string name, FlagTarget to, std::string help, FlagRules rules)
    : Flag(std::move(name), std::move(to), std::move(help), {}, rules) {}

bool Flag::takes_text() const {
    return std::holds_alternative<std::string*>(to) || std::holds_alternative<std::vector<std::string>*>(to) ||
           std::holds_alternative<std::optional<std::string>*>(to) ||
           std::holds_alternative<std::function<void(const std::string&)>>(to);
}

std::vector<Flag> operator+(std::vector<Flag> flags, const std::vector<Flag>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

std::string examples(const std::vector<std::string>& lines, const std::string& before) {
    std::string text = before + (before.empty() ? "" : "\n") + "Examples:";
    for (const std::string& line : lines) text += "\n  orrery " + line;
    return text;
}

ParsedCommand parse_command_line(const CommandProgram& program, int argc, char** argv) {
    CLI::App app(program.help, program.name);
    app.require_subcommand(1);
    app.footer(program.footer);
    app.set_version_flag("--version", program.version,
                         "version, and digests of the code of liborrery and of each plugin");
    for (const Command& command : program.commands) add(app, command);
    refuse_unknown_command(program, argc, argv);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ExtrasError& error) {
        refuse_extras(app, error);
    } catch (const CLI::RequiredError& error) {
        const Command* const command = named_in(app, program.commands);
        if (!command || !asks_help(*command)) return {nullptr, (app.exit(error), 2)};
    } catch (const CLI::ParseError& error) {
        // CLI11 prints help (0) or the error; every command-line error exits with 2.
        return {nullptr, app.exit(error) == 0 ? 0 : 2};
    }
    const Command* const command = named_in(app, program.commands);
    if (asks_help(*command)) std::printf("%s\n", app.get_subcommands().at(0)->help().c_str());
    return {command};
}

}  // namespace orrery
