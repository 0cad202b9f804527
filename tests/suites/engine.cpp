// The promises of every Engine, for jobs that are drawn and for the answers of its programs that its configuration
// gives.
#include "orrery/engine.h"

#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "suites/chosen.h"

extern char** environ;

using namespace orrery;

namespace {

class Suite {
public:
    std::string name = GENERATE(from_range(suites::usable("engine")));
    const PluginFacts facts = Loader(suites::folders()).facts("engine", name, {});
    Config config = suites::settings("engine", name);

    Suite() { UNSCOPED_INFO(name); }

    /// Makes it from the table `settings` of its configuration, or from an empty one.
    std::unique_ptr<Engine> made(bool set = true) {
        Config none;
        Config& options = set ? config.table("settings") : none;
        auto engine = suites::loaded("engine", name).engine(name, {})(options);
        options.reject_unused();
        return engine;
    }

    /// The cases of its configuration: its tables but `settings`.
    std::vector<Config> cases() {
        std::vector<Config> all;
        for (const std::string& key : config.keys())
            if (key != "settings") all.push_back(config.table(key));
        return all;
    }
};

/// Words of which each is found in a text that has all parts of a job, and nowhere else.
class Words {
public:
    explicit Words(unsigned seed) : random_(seed) {}
    std::string next() { return all.emplace_back("word" + std::to_string(random_() % 90000000 + 10000000)); }
    int64_t number(int64_t most) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(most)); }
    std::vector<std::string> all;

private:
    std::mt19937 random_;
};

/// Draws a job of plain words.
EngineJob drawn(Words& words) {
    EngineJob job;
    job.name = "name" + std::to_string(words.number(1000));
    job.folder = "/" + words.next();
    job.work = "/" + words.next();
    job.command = {"/usr/bin/orrery", "run", words.next(), "--set", "data.path=" + words.next()};
    job.nodes = 1 + words.number(3);
    job.ranks_per_node = 1 + words.number(4);
    job.ranks = job.nodes * job.ranks_per_node;
    job.gpus_per_node = words.number(2) * job.ranks_per_node;
    job.threads = words.number(3);
    job.agents = words.number(2) == 1;
    job.spares = job.agents && job.nodes > 1 ? words.number(2) : 0;
    if (job.agents) job.command.insert(job.command.end(), {"--restarts", "3"});
    if (job.spares > 0) job.command.insert(job.command.end(), {"--spares", std::to_string(job.spares)});
    job.time_s = words.number(3) * 5000;
    job.grace_s = static_cast<double>(words.number(2) * 90);
    job.token_file = job.folder + "/token";
    job.before = {"module load " + words.next()};
    job.environment = {{"FIRST", words.next()}, {"SECOND", words.next()}};
    return job;
}

struct Written {
    std::string text, error;
    std::vector<EngineCall> calls;
};

/// What an engine makes of a job, or the Error by which it refuses it.
Written written(const Engine& engine, const EngineJob& job) {
    Written all;
    try {
        all.text = engine.text(job);
        all.calls.push_back(engine.submit(job, all.text));
    } catch (const Error& error) {
        all.error = error.what();
    }
    return all;
}

std::string joined(const Written& written) {
    std::string all = written.text;
    for (const EngineCall& call : written.calls) {
        for (const std::string& argument : call.arguments) all += "\n" + argument;
        all += "\n" + call.input;
    }
    return all;
}

/// The calls about a job that it has.
std::vector<EngineCall> calls_of(const Engine& engine, const std::string& job) {
    std::vector<EngineCall> all = {engine.status(job)};
    for (const bool now : {false, true}) {
        const std::vector<EngineCall> ends = engine.stop(job, now);
        CHECK_FALSE(ends.empty());
        all.insert(all.end(), ends.begin(), ends.end());
    }
    for (const bool follow : {false, true})
        for (const std::optional<int64_t> rank : {std::optional<int64_t>(), std::optional<int64_t>(3)})
            if (const auto call = engine.logs(job, rank, follow)) all.push_back(*call);
    return all;
}

std::vector<std::string> of_process() {
    std::vector<std::string> all;
    for (char** variable = environ; *variable; ++variable) all.emplace_back(*variable);
    return all;
}

size_t entries(const std::filesystem::path& folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

constexpr unsigned draws = 300;

}  // namespace

TEST_CASE("an engine without settings can be asked about a job, and names it") {
    Suite suite;
    const auto engine = suite.made(false);
    const std::vector<std::string> programs = suite.facts.values("programs");
    for (const EngineCall& call : calls_of(*engine, "4711")) {
        REQUIRE_FALSE(call.arguments.empty());
        const std::string& program = call.arguments[0];
        INFO(program);
        CHECK((program == "sh" || std::ranges::count(programs, program) > 0));
        std::string all = call.input;
        for (const std::string& argument : call.arguments) all += " " + argument;
        CHECK(all.find("4711") != std::string::npos);
    }
}

TEST_CASE("it has a job only where one of its variables is set") {
    Suite suite;
    const auto engine = suite.made(false);
    const std::vector<std::string> variables = suite.facts.values("variables");
    CHECK_FALSE(variables.empty());
    std::set<std::string> asked(variables.begin(), variables.end());
    std::mt19937 random(3);
    for (unsigned draw = 0; draw < draws; ++draw) {
        std::map<std::string, std::string> given;
        for (const std::string& variable : asked)
            if (random() % 2 == 0) given[variable] = std::to_string(random() % 100);
        const auto own = [&] {
            return engine->own_name(Environment([&](const char* variable) -> const char* {
                asked.insert(variable);
                const auto found = given.find(variable);
                return found == given.end() ? nullptr : found->second.c_str();
            }));
        };
        CHECK_NOTHROW(own());
        for (const std::string& variable : variables) given.erase(variable);
        CHECK(own().empty());
    }
}

TEST_CASE("what it writes has every part of a job") {
    Suite suite;
    const auto engine = suite.made();
    unsigned taken = 0;
    for (unsigned draw = 0; draw < draws; ++draw) {
        Words words(draw);
        const EngineJob job = drawn(words);
        const Written made = written(*engine, job);
        if (!made.error.empty()) continue;
        ++taken;
        const std::string all = joined(made);
        for (const std::string& word : words.all)
            if (all.find(word) == std::string::npos) FAIL(word << " is missing in\n" << made.text);
        REQUIRE_FALSE(made.calls[0].arguments.empty());
    }
    CHECK(taken > 0);
}

TEST_CASE("a job with hostile texts is written for a shell, or refused") {
    Suite suite;
    const auto engine = suite.made();
    const std::vector<std::string> hostile = {
        "it's",      "a b", "$(touch stray)", "`touch stray`", "\"; touch stray; \"", "\\", "#", "&", "%j", "*",
        "new\nline", "-n"};
    for (const std::string& text : hostile) {
        INFO(text);
        Words words(1);
        EngineJob job = drawn(words);
        job.nodes = 1;
        job.spares = 0;
        job.ranks = job.ranks_per_node;
        job.command.push_back(text);
        job.environment.emplace_back("THIRD", text);
        job.folder = job.work = "/" + text;
        const Written made = written(*engine, job);
        if (!made.error.empty() || !made.text.starts_with("#!/bin/")) continue;
        const suites::Scratch scratch;
        std::filesystem::create_directories(scratch.path);
        const std::string file = (scratch.path / "text").string();
        std::ofstream(file) << made.text;
        CHECK(std::system(("bash -n " + file).c_str()) == 0);
    }
}

TEST_CASE("it repeats its texts, starts nothing and changes nothing") {
    Suite suite;
    const auto engine = suite.made();
    const std::vector<std::string> before = of_process();
    const size_t threads = entries("/proc/self/task"), files = entries(".");
    std::vector<std::string> first;
    for (const int round : {0, 1})
        for (unsigned draw = 0; draw < draws / 10; ++draw) {
            Words words(draw);
            const Written made = written(*engine, drawn(words));
            if (round == 0) first.push_back(made.error + joined(made));
            CHECK(made.error + joined(made) == first[draw]);
            calls_of(*engine, "4711");
        }
    CHECK(of_process() == before);
    CHECK(entries("/proc/self/task") == threads);
    CHECK(entries(".") == files);
}

TEST_CASE("a job has a name in what its program prints, or there is an error") {
    Suite suite;
    if (suite.facts.has("foreground")) return;
    const auto engine = suite.made();
    Words words(1);
    const EngineJob job = drawn(words);
    for (const char* output : {"", "\n", "no such host", "-1", "error: 7"}) {
        INFO(output);
        bool named = false;
        try {
            named = !engine->name_in(job, output).empty();
        } catch (const Error&) {
            named = true;
        }
        CHECK(named);
    }
    const std::vector<Config> cases = suite.cases();
    if (cases.empty()) WARN("no answer is given: [engine." << suite.name << ".CASE] of ORRERY_CONFORMANCE_CONFIG");
    for (Config example : cases) {
        INFO(example.path());
        const std::string expected = example.require_text("name");
        if (example.has("output")) CHECK(engine->name_in(job, example.text("output", "")) == expected);
        Config& environment = example.table("environment");
        std::map<std::string, std::string> given;
        for (const std::string& variable : environment.keys()) given[variable] = environment.text(variable, "");
        const Environment lookup([&](const char* variable) -> const char* {
            const auto found = given.find(variable);
            return found == given.end() ? nullptr : found->second.c_str();
        });
        if (!given.empty()) CHECK(engine->own_name(lookup) == expected);
        example.reject_unused();
    }
}
