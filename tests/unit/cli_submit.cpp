// [submit]: what is read, and how ranks are divided among nodes.
#include <catch2/catch.hpp>
#include <functional>

#include "cli/submit/submit_settings.h"
#include "config/load.h"
#include "run/settings.h"

using namespace orrery;

namespace {

std::string error_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

int64_t seconds(const std::string& time) {
    Config config = parse_config("[submit]\ntime = \"" + time + "\"\n", "a.toml");
    return read_submit(config).time_s;
}

SubmitSettings placed(const std::string& toml) {
    Config config = parse_config("[mesh]\ndp = 8\n" + toml, "a.toml");
    SubmitSettings submit = read_submit(config);
    place_ranks(submit, read_settings(config), config);
    return submit;
}

std::pair<int64_t, int64_t> places(const std::string& toml) {
    const SubmitSettings submit = placed(toml);
    return {submit.nodes, submit.ranks_per_node};
}

}  // namespace

TEST_CASE("submit.time is hours, minutes and seconds, perhaps after days") {
    CHECK(seconds("1:00:00") == 3600);
    CHECK(seconds("0:01:30") == 90);
    CHECK(seconds("120:00:00") == 432000);
    CHECK(seconds("2-12:30:05") == 217805);
    for (const char* wrong :
         {"0:00:00", "90", "90m", "1:00", "1:60:00", "1:00:60", "-1:00:00", "+1:00:00", " 1:00:00", "1:00:00 ",
          "1:00:00x", "1-1-1:00:00", "1-:00:00", "9999999:00:00", "1:-1:00", "1--1:00:00"}) {
        INFO(wrong);
        const std::string error = error_of([&] { seconds(wrong); });
        CHECK(error.find("a.toml:2:8: submit.time = \"" + std::string(wrong) + "\": expected hours") == 0);
    }
}

TEST_CASE("ranks are divided among nodes, or both numbers are named") {
    using Pair = std::pair<int64_t, int64_t>;
    CHECK(places("") == Pair{1, 8});
    CHECK(places("[submit]\nnodes = 2\n") == Pair{2, 4});
    CHECK(places("[submit]\nranks_per_node = 2\n") == Pair{4, 2});
    CHECK(places("[run]\nranks = 4\n") == Pair{2, 4});
    CHECK(places("[submit]\nnodes = 4\nranks_per_node = 2\n") == Pair{4, 2});
    const auto refused = [](const std::string& toml, const std::string& words) {
        const std::string error = error_of([&] { placed(toml); });
        INFO(error);
        CHECK(error.find(words) != std::string::npos);
    };
    refused("[submit]\nnodes = 3\n", "a.toml:4:9: mesh dp=8 has 8 ranks, which submit.nodes = 3 does not divide");
    refused("[submit]\nranks_per_node = 3\n", "mesh dp=8 has 8 ranks, which submit.ranks_per_node = 3 does not divide");
    refused("[submit]\nnodes = 2\nranks_per_node = 2\n", "are 4 ranks, but mesh dp=8 has 8 ranks");
    refused("[run]\nranks = 4\n[submit]\nranks_per_node = 2\n", "submit.ranks_per_node = 2, but run.ranks = 4");
}

TEST_CASE("variables of [submit.environment] have names of variables, and none that the launcher sets") {
    const auto error = [](const std::string& name) {
        return error_of([&] {
            Config config = parse_config("[submit.environment]\n" + name + " = \"x\"\n", "a.toml");
            read_submit(config);
        });
    };
    CHECK(error("NCCL_DEBUG") == "no error");
    CHECK(error("_a1") == "no error");
    for (const char* name : {"\"1A\"", "\"A B\"", "\"A=B\"", "\"\"", "\"A;B\""}) {
        INFO(name);
        CHECK(error(name).find("is not a name of a variable") != std::string::npos);
    }
    CHECK(error("ORRERY_TOKEN").find("variables ORRERY_* are set by") != std::string::npos);
}
