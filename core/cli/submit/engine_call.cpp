#include "cli/submit/engine_call.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {
namespace {

std::string program_of(const std::string& engine, const EngineCall& call) {
    const std::string path = in_path(call.arguments.at(0));
    if (!path.empty()) return path;
    throw Error(
        fmt::format("engine {} needs the program {}, which is not in PATH\n  install it, or start the command "
                    "where it is installed",
                    engine, call.arguments[0]));
}

}  // namespace

std::string in_path(const std::string& program) {
    const auto runs = [](const std::string& path) {
        std::error_code ignored;
        return ::access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path, ignored);
    };
    if (program.find('/') != std::string::npos) return runs(program) ? program : "";
    const char* path = std::getenv("PATH");
    for (const std::string& folder : split(path ? path : "/usr/bin:/bin", ':'))
        if (const std::string file = (folder.empty() ? "." : folder) + "/" + program; runs(file)) return file;
    return "";
}

ChildEnd run_call(const std::string& engine, const EngineCall& call, std::chrono::milliseconds limit) {
    std::vector<std::string> arguments = call.arguments;
    arguments.at(0) = program_of(engine, call);
    return run_child(arguments, limit, nullptr, call.input);
}

int show_call(const std::string& engine, const EngineCall& call) {
    const std::string program = program_of(engine, call);
    std::fflush(stdout);
    if (const int input = input_of(call.input); input >= 0) ::dup2(input, STDIN_FILENO);
    const pid_t child = start_process({.program = program, .arguments = call.arguments});
    int status = 0;
    if (child < 0) throw Error(fmt::format("cannot start {}: {}", program, std::strerror(errno)), Fault::failed);
    while (::waitpid(child, &status, 0) < 0)
        if (errno != EINTR) throw Error(fmt::format("{}: {}", program, std::strerror(errno)), Fault::failed);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void become_call(const std::string& engine, const EngineCall& call) {
    const std::string program = program_of(engine, call);
    if (const int input = input_of(call.input); input >= 0) ::dup2(input, STDIN_FILENO);
    std::vector<char*> arguments;
    for (const std::string& argument : call.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    std::fflush(stdout);
    ::execv(program.c_str(), arguments.data());
    throw Error(fmt::format("cannot start {}: {}", program, std::strerror(errno)), Fault::failed);
}

}  // namespace orrery
