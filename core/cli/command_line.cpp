#include "cli/command_line.h"

#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/limits.h"
#include "base/signals.h"
#include "cli/command_table.h"
#include "cli/describe/describe.h"
#include "cli/installed.h"
#include "cli/launch.h"
#include "cli/output/output.h"
#include "cli/signals.h"
#include "run/control/job.h"
#include "run/control/stop_request.h"

namespace orrery {
namespace {

/// Flushes stdout. A full disk is then an error, since the output is the purpose of the command.
int written(int code) {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    throw Error(
        fmt::format("cannot write standard output{}{}", errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno)),
        Fault::failed);
}

constexpr std::string_view exit_codes =
    "Exit codes: 0 done, 1 failed, 2 the command or the script is wrong,\n"
    "75 stopped by a signal and to be started again, 128 + signal.";

std::string closing_words() {
    std::filesystem::path manual;
    try {
        manual = manual_folder();
    } catch (const Error&) {  // the Lua library may be missing: help does not need it
    }
    return fmt::format("orrery COMMAND --help says more. {}\n{}", exit_codes,
                       manual.empty() ? "The manual was not found: it is share/orrery/manual of an installed prefix."
                                      : "The manual: " + manual.string());
}

/// Runs a command. `before`: the signal mask of the process before hold_stop_signals().
int dispatch(int argc, char** argv, const sigset_t& before) {
    Asked asked;
    asked.script.arguments.assign(argv, argv + argc);
    asked.bench.arguments = asked.preflight.arguments = asked.script.arguments;
    const CommandProgram program{"orrery", "Orrery trains foundation models: one script, any mesh, any backend.",
                                 version_text, closing_words, command_table(asked)};
    const std::string_view first = argc > 1 ? argv[1] : "";
    if (first == "--complete") return written(print_completions(program, {argv + 2, argv + argc}));
    if (first == "--man-page") return written(print_man_page(program, exit_codes));
    const auto [command, code] = parse_command_line(program, argc, argv);
    if (!command) return code;
    if (asked.script.script_help && asked.script.script.empty()) return 0;
    if (!command->holds_signals) ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return command->may_lose_output ? command->run() : written(command->run());
}

}  // namespace

int exit_code(Fault fault) {
    switch (fault) {
        case Fault::usage: return 2;
        case Fault::requeue: return stopped_code(stop_signal());
        case Fault::failed:
        case Fault::peer: break;
    }
    return 1;
}

void end_process(const std::string& text) {
    std::fprintf(stderr, "orrery: %s\n", text.c_str());
    std::fflush(stdout);
    finish_output(1);
    ::_exit(1);
}

namespace {

/// Prints to stderr, after flushing stdout, since both may go to one file.
int tell(const std::string& text, int code) {
    std::fflush(stdout);
    std::fprintf(stderr, "orrery: %s\n", text.c_str());
    return code;
}

/// Lets threads of OpenMP that wait for each other sleep after some microseconds, unless the user has decided. By
/// default they spin for milliseconds, in which a busy host runs none of the threads that they wait for. libgomp reads
/// the variable when a plugin loads it.
void wait_passively() {
    if (!std::getenv("OMP_WAIT_POLICY")) ::setenv("GOMP_SPINCOUNT", "1000", 0);
}

int run_dispatched(int argc, char** argv, const sigset_t& before) {
    try {
        return dispatch(argc, argv, before);
    } catch (const SaidElsewhere& error) {
        return exit_code(error.fault());
    } catch (const Error& error) {
        return tell(error.what(), exit_code(error.fault()));
    } catch (const std::filesystem::filesystem_error& error) {
        return tell(fmt::format("{}: {}", error.path1().string(), error.code().message()), 1);
    } catch (const std::bad_alloc& error) {
        return tell(explain(error), 1);
    } catch (const std::system_error& error) {
        return tell(explain(error), 1);
    } catch (const std::exception& error) {
        return tell(fmt::format("internal error: {}\n  this is a bug in Orrery; please report it", error.what()), 1);
    } catch (...) {  // not from a plugin: exceptions of plugins have become Errors by now
        return tell(
            "internal error: something other than a std::exception was thrown\n  this is a bug in Orrery; "
            "please report it",
            1);
    }
}

}  // namespace

int command_line(int argc, char** argv) {
    const sigset_t before = hold_stop_signals();  // must come first: threads of libraries inherit the mask, too
    wait_passively();
    take_up_output();
    watch_lifeline();
    const int code = run_dispatched(argc, argv, before);
    finish_output(code);
    return code;
}

}  // namespace orrery
