#include "cli/simulate/workers.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <new>
#include <set>
#include <vector>

#include "orrery/error.h"

using namespace orrery;

namespace {

std::string name(int64_t number) { return fmt::format("number {}", number); }

std::vector<std::string> all(int64_t count, int64_t processes, const std::function<std::string(int64_t)>& work) {
    std::vector<std::string> texts(static_cast<size_t>(count));
    in_processes(
        count, processes, work,
        [&](int64_t number, std::string text) { texts[static_cast<size_t>(number)] += text + "."; }, name);
    return texts;
}

}  // namespace

TEST_CASE("workers: each number once, whoever is asked, and nothing that a process leaves reaches another") {
    int64_t calls = 0;
    const auto work = [&](int64_t number) { return fmt::format("{} {}", number, ++calls); };
    CHECK(all(3, 1, work) == std::vector<std::string>{"0 1.", "1 2.", "2 3."});
    CHECK(all(5, 3, work) == std::vector<std::string>{"0 4.", "1 4.", "2 4.", "3 4.", "4 4."});
    CHECK(calls == 3);
    CHECK(all(0, 3, work).empty());
    const std::string large(1 << 20, 'x');  // more than a pipe holds
    CHECK(all(2, 2, [&](int64_t) { return large; }) == std::vector<std::string>{large + ".", large + "."});
    std::set<std::string> processes;
    for (const std::string& one : all(4, 2, [](int64_t) { return std::to_string(::getpid()); })) processes.insert(one);
    CHECK(processes.size() == 4);
    CHECK(processes.count(std::to_string(::getpid()) + ".") == 0);
}

TEST_CASE("workers: what is thrown or killed is named") {
    const auto fails = [](int64_t number) -> std::string {
        if (number == 2) throw Error("nothing here");
        return "";
    };
    CHECK_THROWS_WITH(all(4, 2, fails), Catch::Contains("number 2: nothing here"));
    CHECK_THROWS_WITH(all(4, 1, fails), Catch::Contains("number 2: nothing here"));
    const auto no_memory = [](int64_t) -> std::string { throw std::bad_alloc(); };
    for (const int64_t processes : {1, 2})
        CHECK_THROWS_WITH(all(1, processes, no_memory), Catch::StartsWith("number 0: ") && Catch::Contains("memory"));
    const auto dies = [](int64_t number) {
        if (number == 1) ::raise(SIGKILL);
        return std::string();
    };
    CHECK_THROWS_WITH(all(3, 2, dies), Catch::Contains("number 1 was killed by signal 9"));
}

TEST_CASE("workers: work that is to stop ends early, in the middle of a call that has its own process") {
    int64_t asked = 0;
    int64_t finished = 0;
    const auto stop = [&] { return ++asked > 3; };
    const auto sleeps = [](int64_t number) {
        if (number > 0) ::sleep(60);
        return std::string();
    };
    in_processes(
        4, 2, sleeps, [&](int64_t, const std::string&) { ++finished; }, name, stop);
    CHECK(finished <= 1);
    finished = 0;
    in_processes(
        9, 1, [](int64_t) { return ""; }, [&](int64_t, const std::string&) { ++finished; }, name,
        [&] { return finished == 3; });
    CHECK(finished == 3);
}
