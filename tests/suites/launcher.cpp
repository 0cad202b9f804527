// The promises of every Launcher, in environments that are drawn and in those that its configuration gives.
#include "orrery/launcher.h"

#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "suites/chosen.h"

extern char** environ;

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

using Variables = std::map<std::string, std::string>;

/// All that a launcher says, as text.
struct Answer {
    bool detected = false, failed = false;
    LaunchedRank rank = {};
    std::string error, left_out;

    std::string text() const {
        const auto number = [](int64_t n) { return " " + std::to_string(n); };
        return (detected ? "detected " : "") + error + left_out + rank.job + number(rank.generation) +
               number(rank.rank) + number(rank.ranks) + number(rank.local_rank) + number(rank.local_ranks) +
               number(rank.counted) + number(rank.node) + number(rank.nodes) + number(rank.threads) +
               number(rank.meets_in_folder) + rank.first_host + number(rank.keeps_port) + rank.hint;
    }
};

class Suite {
public:
    std::string name = GENERATE(from_range(suites::usable("launcher")));
    std::vector<std::string> variables = Loader(suites::folders()).facts("launcher", name, {}).values("variables");

    Suite() {
        UNSCOPED_INFO(name);
        asked.insert(variables.begin(), variables.end());
        Config config = suites::settings("launcher", name);
        for (const std::string& key : config.keys()) examples.push_back(config.table(key));
        for (Config& example : examples) {
            Config& environment = example.table("environment");
            for (const std::string& key : environment.keys()) asked.insert(key);
        }
    }

    /// Notes which variables it looks up.
    Answer answer(const Variables& given) {
        const Environment environment([&](const char* variable) -> const char* {
            asked.insert(variable);
            const auto found = given.find(variable);
            return found == given.end() ? nullptr : found->second.c_str();
        });
        Answer all;
        try {
            all.left_out = launcher->left_out(environment);
            all.detected = launcher->detect(environment);
            if (all.detected) all.rank = launcher->read(environment);
        } catch (const Error& error) {
            all.failed = true;
            all.error = error.what();
        }
        return all;
    }

    /// A value of each variable that it has asked for until now, or none.
    Variables drawn(std::mt19937& random) const {
        static const char* const values[] = {"0", "1",  "1",   "2",       "4",        "8",
                                             "",  "-1", "two", "4(x2),3", "n[1-3],m", "9e99"};
        Variables all;
        for (const std::string& variable : asked)
            if (const size_t at = random() % (std::size(values) + 3); at < std::size(values))
                all[variable] = values[at];
        return all;
    }

    std::set<std::string> asked;  ///< variables that it knows of
    std::vector<Config> examples;

private:
    std::unique_ptr<Launcher> launcher = suites::loaded("launcher", name).launcher(name, {})();
};

Variables environment_of(Config& example) {
    Variables all;
    Config& environment = example.table("environment");
    for (const std::string& variable : environment.keys()) all[variable] = environment.text(variable, "");
    return all;
}

bool names_one_of(const std::string& text, const std::set<std::string>& variables) {
    return std::any_of(variables.begin(), variables.end(),
                       [&](const std::string& variable) { return text.find(variable) != std::string::npos; });
}

std::vector<std::string> of_process() {
    std::vector<std::string> all;
    for (char** variable = environ; *variable; ++variable) all.emplace_back(*variable);
    return all;
}

int64_t threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

constexpr int draws = 2000;

}  // namespace

TEST_CASE("a launcher has nothing to say where none of its variables is set") {
    Suite suite;
    CHECK_FALSE(suite.variables.empty());
    std::mt19937 random(7);
    for (int draw = 0; draw < draws; ++draw) {
        Variables given = draw == 0 ? Variables() : suite.drawn(random);
        suite.answer(given);  // which learns the variables that it asks for
        for (const std::string& variable : suite.variables) given.erase(variable);
        const Answer answer = suite.answer(given);
        if (!answer.detected && answer.left_out.empty() && !answer.failed) continue;
        FAIL("it says: " << answer.text());
    }
}

TEST_CASE("each answer is a rank, or an error that names a variable") {
    Suite suite;
    std::mt19937 random(8);
    for (int draw = 0; draw < draws; ++draw) {
        const Answer answer = suite.answer(suite.drawn(random));
        INFO(answer.text());
        if (answer.failed && !names_one_of(answer.error, suite.asked) &&
            answer.error.find("environment: ") == std::string::npos)
            FAIL("it names no variable");
        if (answer.failed || !answer.detected) continue;
        const LaunchedRank& rank = answer.rank;
        if (rank.job.empty() || rank.first_host.empty()) FAIL("there is no job or no host");
        if (std::min({rank.generation, rank.rank, rank.ranks, rank.local_ranks, rank.nodes, rank.threads}) < 0)
            FAIL("a count is negative");
        if (rank.local_rank < -1 || rank.node < -1) FAIL("a place is negative, and not -1, unknown");
    }
}

TEST_CASE("it reads the environment that it is given and nothing else, and changes nothing") {
    Suite suite;
    std::mt19937 random(9);
    std::vector<std::pair<Variables, std::string>> known;
    for (int draw = 0; draw < draws / 10; ++draw) {
        const Variables given = suite.drawn(random);
        known.emplace_back(given, suite.answer(given).text());
    }
    const std::set<std::string> asked = suite.asked;
    for (const char* value : {"1", "3"}) {
        for (const std::string& variable : asked) ::setenv(variable.c_str(), value, 1);
        const std::vector<std::string> before = of_process();
        const int64_t started = threads();
        for (const auto& [given, expected] : known)
            if (const std::string text = suite.answer(given).text(); text != expected)
                FAIL("it said " << expected << ", and now " << text);
        CHECK(of_process() == before);
        CHECK(threads() == started);
    }
    for (const std::string& variable : asked) ::unsetenv(variable.c_str());
}

TEST_CASE("the ranks of its configuration are those that it reads, and a damaged variable is named") {
    Suite suite;
    if (suite.examples.empty())
        WARN("no rank is given: [launcher." << suite.name << ".RANK] of ORRERY_CONFORMANCE_CONFIG");
    for (Config& example : suite.examples) {
        INFO(example.path());
        const Variables given = environment_of(example);
        const Answer answer = suite.answer(given);
        INFO(answer.text());
        CHECK(answer.left_out == example.text("left_out", answer.left_out));
        CHECK(answer.detected == example.flag("detected", true));
        if (!answer.detected) {
            CHECK_FALSE(answer.failed);
            continue;
        }
        REQUIRE_FALSE(answer.failed);
        const LaunchedRank& rank = answer.rank;
        CHECK(rank.job == example.text("job", rank.job));
        CHECK(rank.first_host == example.text("first_host", rank.first_host));
        CHECK(rank.generation == example.integer("generation", rank.generation));
        CHECK(rank.rank == example.integer("rank", rank.rank));
        CHECK(rank.ranks == example.integer("ranks", rank.ranks));
        CHECK(rank.local_rank == example.integer("local_rank", rank.local_rank));
        CHECK(rank.local_ranks == example.integer("local_ranks", rank.local_ranks));
        CHECK(rank.node == example.integer("node", rank.node));
        CHECK(rank.nodes == example.integer("nodes", rank.nodes));
        CHECK(rank.meets_in_folder == example.flag("meets_in_folder", rank.meets_in_folder));
        CHECK(rank.threads == example.integer("threads", rank.threads));
        CHECK(rank.counted == example.flag("counted", rank.counted));
        CHECK(rank.keeps_port == example.flag("keeps_port", rank.keeps_port));
        example.reject_unused();
        for (const auto& [variable, value] : given)
            for (const char* damaged : {"", "no number"}) {
                INFO(variable << " = \"" << damaged << "\" in place of \"" << value << "\"");
                Variables other = given;
                other[variable] = damaged;
                if (const Answer found = suite.answer(other); found.failed) CHECK_THAT(found.error, Contains(variable));
            }
    }
}
