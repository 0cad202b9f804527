// A program that is started, waited for and read.
#include "base/process.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/signals.h"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("a program that was started ends on the signals of who started it", "[child]") {
    const auto begin = std::chrono::steady_clock::now();
    {
        HeldSignals held;
        const auto run = [&](const std::string& script) {
            return run_child({"/bin/sh", "-c", script}, std::chrono::seconds(100), &held);
        };
        CHECK(run("echo out").output == "out\n");
        ::raise(SIGTERM);  // waits for its owner
        const ChildEnd asked = run("trap 'kill $!; exit' TERM; sleep 50 & wait");
        CHECK(asked.stopped == SIGTERM);
        CHECK(asked.why_not() == "was stopped by signal 15 (Terminated)");
        CHECK(held.take() == 0);
        ::raise(SIGINT);
        ::raise(SIGTERM);
        const ChildEnd deaf = run("trap '' TERM; exec sleep 50");
        CHECK(deaf.stopped == SIGINT);
        ::raise(SIGUSR1);
        CHECK(held.take() == SIGUSR1);
        CHECK(held.take() == 0);
    }
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(50));
}

TEST_CASE("how a program that was started has ended", "[child][slow]") {
    const auto run = [](const std::string& script, int64_t limit_ms = 20'000) {
        return run_child({"/bin/sh", "-c", script}, std::chrono::milliseconds(limit_ms));
    };
    CHECK(run("kill -ILL $$").why_not() == "was ended by signal 4 (Illegal instruction)");
    CHECK(run("kill -SEGV $$").why_not() == "was ended by signal 11 (Segmentation fault)");
    CHECK(run("sleep 60", 100).why_not() == "did not end within 0.1 s");
    CHECK(run("exec > /dev/null 2>&1; sleep 60", 100).why_not() == "did not end within 0.1 s");
    CHECK(run("echo first >&2; echo the reason >&2; exit 3").why_not() == "ended with exit code 3: the reason");
    CHECK(run("exit 3").why_not() == "ended with exit code 3");
    CHECK(run_child({"/no/such/program"}, std::chrono::seconds(20)).why_not() ==
          "could not be run: /no/such/program cannot be executed");
    const auto before = ::signal(SIGCHLD, SIG_IGN);
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THAT(run("exit 0").why_not(), Contains("could not be run: No child"));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
    ::signal(SIGCHLD, before);
    CHECK(run("ulimit -c").output == "0\n");
    const ChildEnd good = run("cat; echo out; echo err >&2");  // there is no input
    CHECK(good.why_not().empty());
    CHECK(good.output == "out\n");
    CHECK(good.errors == "err\n");
    CHECK(run("head -c 1000000 /dev/zero").output.size() == 1 << 16);
}

TEST_CASE("[.lifeline] of the case below", "[.lifeline]") {
    const char* text = std::getenv("ORRERY_LIFELINE");
    REQUIRE(text);
    pollfd watched{std::atoi(text), POLLIN, 0};
    CHECK(::poll(&watched, 1, 0) == 0);  // the other end is open
    const auto pipe = std::filesystem::read_symlink(std::string("/proc/self/fd/") + text);
    int64_t ends = 0;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        ends += std::filesystem::read_symlink(file.path(), gone) == pipe;
    }
    CHECK(ends == 1);  // and is not its own
}

TEST_CASE("a program gets variables and an open lifeline, a copy nothing but its work", "[child]") {
    Pipe lifeline;
    const auto starts = [&](const std::string& program, std::vector<std::string> arguments) {
        const pid_t pid = start_process({.program = program,
                                         .arguments = std::move(arguments),
                                         .variables = {"HOME=/in place of"},
                                         .lifeline = lifeline.read});
        REQUIRE(pid > 0);
        return ends_within(pid, std::chrono::seconds(60));
    };
    CHECK(starts("/proc/self/exe", {"unit_tests", "[.lifeline]"}) == 0);
    CHECK(starts("/bin/sh", {"sh", "-c", "test \"$HOME\" = '/in place of' && test $(env | grep -c ^HOME=) = 1"}) == 0);
    CHECK(WEXITSTATUS(*starts("/no/such/program", {"x"})) == 127);

    CHECK(WEXITSTATUS(*ends_within(start_copy([] { return 7; }), std::chrono::seconds(60))) == 7);
    const pid_t sleeps = start_copy([] { return ::pause(); });
    CHECK_FALSE(ends_within(sleeps, std::chrono::milliseconds(20)));
    ::kill(sleeps, SIGKILL);
    CHECK(WTERMSIG(*ends_within(sleeps, std::chrono::seconds(60))) == SIGKILL);
}
