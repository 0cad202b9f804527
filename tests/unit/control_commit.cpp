// The commit of a save: worlds made from seeds, and its words one by one.
#include <catch2/catch.hpp>
#include <set>

#include "control_commit_world.h"

using namespace orrery;
using Catch::Matchers::Contains;
using test::CommitWorld;

namespace {

using Kind = CommitAction::Kind;

/// Rank 0 of two, driven up to the first action of this kind; what the other one says is `words`, by topic.
Commit at(Kind kind, const std::map<std::string, std::string>& words = {}) {
    Commit commit({.step = 8, .rank = 0, .ranks = 2});
    while (!commit.over() && commit.action().kind != kind) {
        const CommitAction action = commit.action();
        const auto word = words.find(std::string(action.topic));
        if (action.kind == Kind::to_first)
            commit.gathered({action.text, word == words.end() ? "+" : word->second});
        else if (action.kind == Kind::from_first)
            commit.told(action.text);
        else
            commit.done({});
    }
    return commit;
}

CommitVerdict end_of(Commit commit) {
    while (!commit.over()) {
        const CommitAction action = commit.action();
        if (action.kind == Kind::to_first)
            commit.gathered({action.text, "+"});
        else if (action.kind == Kind::from_first)
            commit.told(action.text);
        else
            commit.done({});
    }
    return commit.verdict();
}

}  // namespace

TEST_CASE("saves in worlds where ranks, stores and generations fail keep what a save promises", "[commit][slow]") {
    CommitWorld::Ends ends{};
    int64_t kills = 0, superseded = 0, generations = 0;
    for (uint32_t seed = 0; seed < 6000; ++seed) {
        CommitWorld world(seed, seed % 10 == 0);
        world.run();
        if (!world.problems.empty()) FAIL_CHECK("seed " << seed << ": " << world.problems.front());
        for (size_t end = 0; end < ends.size(); ++end) ends[end] += world.ends[end];
        kills += world.kills;
        superseded += world.superseded;
        generations += world.generations;
        if (seed % 10 == 0)  // nothing goes wrong
            for (size_t end = 0; end < ends.size() - 1; ++end)
                if (world.ends[end] > 0) FAIL_CHECK("seed " << seed << ": end " << end << " in a calm world");
    }
    // The seeds reach what they are there for.
    CHECK(ends.front() == 0);
    for (size_t end = 1; end < ends.size(); ++end) {
        CAPTURE(end, ends[end]);
        CHECK(ends[end] > 100);
    }
    CHECK(kills > 500);
    CHECK(superseded > 500);
    CHECK(generations > 12'000);
}

TEST_CASE("a save is these actions, in this order", "[commit]") {
    for (const int64_t rank : {0, 1}) {
        Commit commit({.step = 8, .rank = rank, .ranks = 2, .checks = true});
        std::vector<Kind> kinds;
        while (!commit.over()) {
            const CommitAction action = commit.action();
            kinds.push_back(action.kind);
            if (action.kind == Kind::to_all || action.kind == Kind::to_first)
                commit.gathered({"+", "+"});
            else if (action.kind == Kind::from_first)
                commit.told("+");
            else
                commit.done({});
        }
        CHECK(commit.verdict() == CommitVerdict{.end = CommitEnd::good, .step = 8});
        CHECK(commit.verdict().text("a save") == "");
        if (rank == 0)
            CHECK(kinds == std::vector<Kind>{Kind::check, Kind::to_all, Kind::make_way, Kind::from_first, Kind::write,
                                             Kind::to_first, Kind::judge, Kind::publish, Kind::from_first,
                                             Kind::read_back, Kind::to_first, Kind::retire, Kind::from_first});
        else
            CHECK(kinds == std::vector<Kind>{Kind::check, Kind::to_all, Kind::from_first, Kind::write, Kind::to_first,
                                             Kind::from_first, Kind::read_back, Kind::to_first, Kind::from_first});
    }
}

TEST_CASE("a verdict has what went wrong, where and why in fields, and says it", "[commit]") {
    const auto failing = [](Kind kind, const CommitAnswer& answer, std::optional<CommitAnswer> next = {}) {
        Commit commit = at(kind);
        commit.done(answer);
        if (next) {
            while (commit.action().kind == Kind::to_first) commit.gathered({commit.action().text, "+"});
            commit.done(*next);
        }
        return end_of(commit);
    };
    const CommitAnswer full{.problem = "the disk is full"};
    const std::string earlier = "\n  earlier checkpoints are unchanged";
    CHECK(failing(Kind::make_way, full).text("a save") == "a save failed on rank 0: the disk is full");
    const CommitVerdict unwritten = failing(Kind::write, full);
    CHECK(unwritten == CommitVerdict{CommitEnd::unwritten, 8, 0, "", "the disk is full"});
    CHECK(unwritten.text("a save") == "a save failed: on rank 0: the disk is full" + earlier);
    CHECK(failing(Kind::judge, full).text("a save") == "a save failed: the disk is full" + earlier);
    CHECK(failing(Kind::publish, full).left == CommitVerdict::Left::nothing);
    CHECK(failing(Kind::publish, full, CommitAnswer{.there = true}).text("a save") ==
          "a save failed: on rank 0: the disk is full\n  the step is there all the same, and may not outlive a power "
          "cut" +
              earlier);
    CHECK_THAT(failing(Kind::publish, full, full).text("a save"),
               Contains("\n  whether the step is there cannot be seen: the disk is full\n"));
    CHECK(failing(Kind::read_back, {.problem = "damaged", .object = "rank-0"}).object == "rank-0");
    CHECK(failing(Kind::read_back, {.problem = "damaged"}).text("a save") ==
          "a save failed verification on rank 0: damaged\n  it was removed, earlier checkpoints are unchanged");
    CHECK(failing(Kind::read_back, {.problem = "damaged"}, full).text("a save") ==
          "a save failed verification on rank 0: damaged\n  it could not be removed (the disk is full), earlier "
          "checkpoints are unchanged");
    CHECK_THAT(failing(Kind::read_back, {.problem = "a hole", .uncovered = true}).text("a save"),
               Contains("on rank 0: the written files do not cover all values: a hole"));
    const CommitVerdict unretired = failing(Kind::retire, full);
    CHECK(unretired.kept());
    CHECK(unretired.text("a save") ==
          "a save is complete, but removing older checkpoints failed on rank 0: the disk is full");

    Commit disputed = at(Kind::judge);
    disputed.done({.text = "dp"});
    while (disputed.action().kind == Kind::from_first) disputed.told(disputed.action().text);
    CHECK(disputed.action().text == "dp");
    disputed.done({.text = "mine"});
    disputed.gathered({disputed.action().text, "+yours"});
    CHECK(disputed.action().texts == std::vector<std::string>{"mine", "yours"});
    disputed.done({.text = "replicas of w differ"});
    CHECK(end_of(disputed) == CommitVerdict{CommitEnd::disputed, 8, -1, "", "replicas of w differ"});
}

TEST_CASE("who cannot read its own part is at fault before who misses another's, whatever their ranks", "[commit]") {
    const std::string other =
        R"(-{"end":8,"left":0,"left_why":"","object":"rank-1","rank":1,"step":8,"why":"damaged"})";
    Commit commit = at(Kind::read_back, {});
    commit.done({.problem = "a hole", .uncovered = true});
    commit.gathered({commit.action().text, other});
    CHECK(commit.action().kind == Kind::take_back);
    CHECK(end_of(commit) == CommitVerdict{CommitEnd::unread, 8, 1, "rank-1", "damaged"});

    Commit both = at(Kind::read_back);  // of two alike the first
    both.done({.problem = "cut short", .object = "rank-0"});
    both.gathered({both.action().text, other});
    CHECK(end_of(both) == CommitVerdict{CommitEnd::unread, 8, 0, "rank-0", "cut short"});
}

TEST_CASE("a word that is none ends the save, and never well", "[commit]") {
    for (const std::string word : {"", "good", "-", "-{}", "-[]", "-{\"end\":\"good\"}", "-{\"end\":7}",
                                   R"(-{"end":12,"left":0,"left_why":"","object":"","rank":1,"step":8,"why":""})",
                                   R"(-{"end":11,"left":0,"left_why":"","object":"","rank":1,"step":8,"why":""})",
                                   R"(-{"end":8,"left":0,"left_why":"","object":"","rank":1,"step":9,"why":""})"}) {
        CAPTURE(word);
        for (const std::string topic : {"report", "read"}) {
            const CommitVerdict verdict = end_of(at(Kind::over, {{topic, word}}));
            CHECK(verdict.end == CommitEnd::refused);
            CHECK(verdict.rank == 1);
            CHECK_THAT(verdict.why, Contains("no word of a save"));
        }
        Commit other({.step = 8, .rank = 1, .ranks = 2});
        other.told(word);
        CHECK(other.verdict().end == CommitEnd::given_up);
        CHECK_THAT(other.verdict().text("a save"), Contains("a save was given up: what rank 0 says is no word"));
    }
}

TEST_CASE("a save that is given up does nothing more, and an answer that nobody asked for is refused", "[commit]") {
    Commit commit({.step = 8, .rank = 1, .ranks = 2});
    CHECK_THROWS_AS(commit.done({}), std::logic_error);
    CHECK_THROWS_AS(commit.gathered({}), std::logic_error);
    commit.told("+");
    CHECK_THROWS_AS(commit.told("+"), std::logic_error);
    commit.give_up("rank 0 is lost");
    CHECK(commit.over());
    CHECK_FALSE(commit.verdict().kept());
    CHECK_THROWS_AS(commit.done({}), std::logic_error);
    commit.give_up("something else");
    CHECK(commit.verdict().why == "rank 0 is lost");
}
