// A process that is asked to end does, whatever hangs.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>

#include "base/json.h"
#include "base/signals.h"
#include "cli/run_record/run_record.h"
#include "cli/signals.h"
#include "folders.h"
#include "run/control/stop_request.h"

using namespace orrery;

namespace {

/// In a process of its own: writing to the run's folder hangs, as on a disk of a server that has gone.
[[noreturn]] void interrupted_twice(const std::string& folder) {
    ::alarm(60);  // where it would wait for good
    hold_stop_signals();
    RunRecord record(folder, Json::object());
    struct sigaction hang {};
    hang.sa_handler = [](int) {
        for (;;) ::pause();
    };
    ::sigaction(SIGXFSZ, &hang, nullptr);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    StopAnswer answer(nullptr);
    answer.keep();
    const SignalTaker taker;
    ::kill(::getpid(), SIGINT);
    while (stop_signal() == 0) ::usleep(1000);
    ::kill(::getpid(), SIGINT);
    for (;;) ::pause();
}

}  // namespace

TEST_CASE("a second interrupt ends a process whose folder hangs") {
    const std::string folder = in_build("tests/cli_signals");
    std::filesystem::create_directories(folder);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) interrupted_twice(folder);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 130);
    std::filesystem::remove_all(folder);
}
