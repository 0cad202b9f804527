// The text of a round, and the order of programs that it stands for.
#include <algorithm>
#include <catch2/catch.hpp>

#include "compile/round.h"

using namespace orrery;

namespace {

/// What the first steps of a round run, "A A+O": a step and the programs that belong to it. Capitals O, S, R, U and
/// actions take no batch.
std::string walked(Round round, int64_t steps) {
    std::vector<bool> takes_batch;
    for (const std::string& name : round.names())
        takes_batch.push_back(name != "O" && name != "U" && name != "S" && name != "R" && name != "save" &&
                              name != "evaluate");
    round.prove(takes_batch);
    std::string text;
    for (int64_t step = 1; step <= steps; ++step) {
        text += (step > 1 ? " " : "") + round.names()[round.program_of(step)];
        round.after(step, [&](size_t name) { text += "+" + round.names()[name]; });
        if (round.ends_with(step)) text += "|";
    }
    return text;
}

std::string refused(const std::string& text) {
    try {
        return walked(Round(text, {"", "a.lua", 7}), 1);
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("a round says what each step runs") {
    CHECK(walked(Round(), 3) == "step| step| step|");
    CHECK(walked(Round("G U"), 3) == "G+U| G+U| G+U|");
    CHECK(walked(Round("step*3 O"), 7) == "step step step+O| step step step+O| step");
    CHECK(walked(Round("A*2, then B"), 5) == "A A| B| B| B|");
    CHECK(walked(Round("A*2, then O B*2 O"), 7) == "A A+O| B B+O+O| B B+O+O| B");
    CHECK(walked(Round("step*2 S step R"), 4) == "step step+S step+R| step");
    CHECK(walked(Round("(A B*2)*2 O*2"), 7) == "A B B A B B+O+O| A");
    CHECK(walked(Round("((A)*2 (O)*3)*2"), 4) == "A A+O+O+O A A+O+O+O|");
    CHECK(walked(Round(" ( A*2\n\tO ) * 2 "), 4) == "A A+O A A+O|");
    CHECK(walked(Round("step*2 O evaluate save"), 3) == "step step+O+evaluate+save| step");
}

TEST_CASE("a step late in a long round is found without unrolling it") {
    Round round("A*1000000000, then (B*1000000000 O)*1000000000");
    round.prove({true, true, false});
    CHECK(round.names()[round.program_of(1'000'000'000)] == "A");
    CHECK(round.names()[round.program_of(1'000'000'001)] == "B");
    const auto after = [&](int64_t step) {
        std::string names;
        round.after(step, [&](size_t name) { names += round.names()[name]; });
        return names;
    };
    CHECK(after(1'000'000'000) == "");
    CHECK(after(5'000'000'000) == "O");
    CHECK(after(5'000'000'001) == "");
    CHECK(after(1'000'000'000'000'000'000) == "O");
    CHECK_THROWS_WITH(Round("(A*1000000000)*1000000000 (A*1000000000)*1000000000*2"), Catch::Contains("found \"*2\""));
    Round too_long("((A*1000000000)*1000000000)*1000000000");
    CHECK_THROWS_WITH(too_long.prove({true}), Catch::Contains("more than 2^63"));
}

TEST_CASE("the mean and max cost of a step follow from the costs of programs") {
    const auto proved = [](const std::string& text, const std::vector<bool>& takes_batch) {
        Round round(text);
        round.prove(takes_batch);
        return round;
    };
    Round round = proved("step*50 O", {true, false});
    CHECK(round.runs_per_step() == std::vector<double>{1, 0.02});
    CHECK(round.peak({3, 10}) == 13);
    CHECK(round.steps() == 50);
    CHECK(round.shortened(2).text() == "step*2 O");
    CHECK(proved(" A*2  ( O B)*3 (save evaluate)*2", {true, false, true, false, false}).order() == "A*2 (O B)*3");
    CHECK(round.shortened(2).steps() == 2);
    round = proved("A*300, then (B*4 O*3 (C)*2)*5", {true, true, false, true});
    CHECK(round.runs_per_step()[1] == Approx(4.0 / 6));
    CHECK(round.runs_per_step()[0] == 0);
    CHECK(round.peak({100, 1, 2, 3}) == 100);
    CHECK(round.peak({1, 1, 2, 3}) == 7);
    CHECK(round.steps() == 330);
    CHECK(round.shortened(3).text() == "A*3, then (B*3 O*3 (C)*2)*3");
    CHECK(proved("A, then O B", {true, false, true}).peak({5, 3, 1}) == 8);
    CHECK(proved("A O, then B O", {true, false, true}).peak({1, 3, 2}) == 5);
}

TEST_CASE("an invalid round is refused; the message has the position") {
    CHECK(refused("") ==
          "a.lua:7: round \"\": expected the name of a program at character 1, found its end\n"
          "  write names of programs that follow each other, \"step*50 outer\", \"(A B*2)*10, then A\"");
    CHECK_THAT(refused("step*0 O"), Catch::Contains("expected a number from 1 to 1000000000 at character 6, found"));
    CHECK_THAT(refused("step*2000000000"), Catch::Contains("expected a number from 1"));
    CHECK_THAT(refused("step*99999999999999999999"), Catch::Contains("expected a number from 1"));
    CHECK_THAT(refused("(step O"), Catch::Contains("expected \")\" at character 8, found its end"));
    CHECK_THAT(refused("step )"), Catch::Contains("character 6, found \")\""));
    CHECK_THAT(refused("()"), Catch::Contains("expected the name of a program at character 2"));
    CHECK_THAT(refused("step, O"), Catch::Contains("expected \"then\" at character 7"));
    CHECK_THAT(refused("step, then"), Catch::Contains("expected the name of a program at character 11"));
    CHECK_THAT(refused("step / O"), Catch::Contains("expected the name of a program at character 6"));
    CHECK_THAT(refused(std::string(40, '(') + "A"), Catch::Contains("at most 32 nested brackets"));
}

TEST_CASE("a round that cannot train is refused") {
    CHECK_THAT(refused("O step"), Catch::Contains("it begins with O, which takes no batch"));
    CHECK_THAT(refused("save step"), Catch::Contains("it begins with save"));
    CHECK_THAT(refused("A*3, then O*2"), Catch::Contains("it never trains after its last \", then\""));
    CHECK_THAT(refused("A save O"), Catch::Contains("a program that takes no batch follows save or evaluate"));
    CHECK_THAT(refused("A, then O A save"), Catch::Contains("a program that takes no batch follows save or evaluate"));
    CHECK_THAT(refused("(A O save evaluate)*2 (O)*2 A"),
               Catch::Contains("a program that takes no batch follows save or evaluate"));
    CHECK_THAT(refused("A evaluate O"), Catch::Contains("follows save or evaluate"));
    CHECK(refused("(A O save evaluate)*2 A O") == "A+O+save+evaluate");
}

namespace {

/// A round in which R waits for S, and U for O.
Round crossed(const std::string& text) {
    Round round(text, {"", "a.lua", 7});
    std::vector<bool> takes_batch;
    std::vector<int> senders;
    const auto index = [&](const char* name) {
        return static_cast<int>(std::ranges::find(round.names(), name) - round.names().begin());
    };
    for (const std::string& name : round.names()) {
        takes_batch.push_back(name == "step");
        senders.push_back(name == "R" ? index("S") : name == "U" ? index("O") : -1);
    }
    round.prove(takes_batch);
    round.prove_messages(senders);
    return round;
}

std::string crossing(const std::string& text) {
    try {
        crossed(text);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("each wait has one send before it, in the whole run") {
    for (const char* fine : {"step*45 S step*5 R", "(step S step R)*3", "step S R", "step S, then step R S",
                             "(step S step*2 R)*2, then step S O step*9 (step R S)*1000000000 step R U",
                             "step*2 S step*2 O step R step U", "step S, then (step*2 R S)*3 step"})
        CHECK(crossing(fine) == "");
    const char* const early = "R waits for messages that S has not sent";
    const char* const again = "S sends again while its last messages are in flight";
    for (const char* text : {"step R S", "step S R*2", "step S step (R step)*2", "step S, then step R",
                             "step S R, then step R S", "(step S step R R)*3"})
        CHECK(crossing(text).find(early) != std::string::npos);
    for (const char* text : {"step S step S R", "(step S)*2 R", "step S R step S", "step S R, then step*2 S step*2",
                             "step S (step S)*2 R", "step S step R, then (step S)*5 step R"})
        CHECK(crossing(text).find(again) != std::string::npos);
    CHECK(crossing("step R S step S R").find(early) != std::string::npos);
    CHECK(crossing("step S R S, then step").find("S sends, but R never runs after it") != std::string::npos);
    CHECK(crossing("step S, then step R").find("a.lua:7") != std::string::npos);
}

TEST_CASE("a round knows what is on its way after a step") {
    const auto awaited = [](const Round& round, int64_t step) {
        std::string names;
        for (const size_t name : round.awaited(step)) names += round.names()[name];
        return names;
    };
    const Round round = crossed("step*2 S step*3 R O step, then step S step*2 R U step O");
    std::string all;
    for (int64_t step = 1; step <= 14; ++step) all += awaited(round, step) + ".";
    //             1 2  3  4  5  6  7   8   9 10 11  12  13 14
    CHECK(all == ".R.R.R.U.U.RU.RU..U.RU.RU..U.");
    CHECK(awaited(round, 0).empty());
    const Round late = crossed("(step*1000000000 S step*1000000000 R)*1000");
    CHECK(awaited(late, 999'999'999).empty());
    CHECK(awaited(late, 1'000'000'000) == "R");
    CHECK(awaited(late, 2'000'000'000).empty());
    CHECK(awaited(late, 3'500'000'000) == "R");
    CHECK(awaited(Round(), 5).empty());
}
