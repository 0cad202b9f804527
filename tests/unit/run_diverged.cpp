#include "run/checkpoint/save/nonfinite.h"

#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace orrery;

namespace {

template <class T>
int64_t diverged(DType dtype, std::vector<T> values, bool usable) {
    const Tensor tensor{values.data(), dtype, {static_cast<int64_t>(values.size())}};
    return count_diverged(tensor, usable);
}

}  // namespace

TEST_CASE("elements from which no model can go on are counted", "[diverged]") {
    constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> values{0.0f, -1.0f, 1e19f, 1e-45f, -3e38f, inf, -inf, nan, -nan};
    CHECK(diverged(DType::f32, values, false) == 4);
    CHECK(diverged(DType::f32, values, true) == 5);
    const std::vector<double> doubles{1e19, 1e20, -1e300, inf, nan};
    CHECK(diverged(DType::f64, doubles, false) == 2);
    CHECK(diverged(DType::f64, doubles, true) == 4);
    // 1, the largest, infinity, NaN; their negatives
    CHECK(diverged(DType::bf16, std::vector<uint16_t>{0x3f80, 0x7f7f, 0x7f80, 0xffc0}, false) == 2);
    CHECK(diverged(DType::bf16, std::vector<uint16_t>{0x3f80, 0x7f7f, 0x7f80, 0xffc0}, true) == 3);
    CHECK(diverged(DType::f16, std::vector<uint16_t>{0x3c00, 0x7bff, 0x7c00, 0xfe00}, true) == 2);
    // behind and in whole blocks
    std::vector<float> many(1000, 1.0f);
    for (const size_t at : {0u, 255u, 256u, 700u, 768u, 999u}) many[at] = -inf;
    CHECK(diverged(DType::f32, many, true) == 6);
    CHECK(diverged(DType::bf16, std::vector<uint16_t>(513, 0xff80), true) == 513);
    CHECK(diverged(DType::u32, std::vector<uint32_t>{0xffffffff, 0x7f800000}, true) == 0);
}

namespace {

constexpr double inf = std::numeric_limits<double>::infinity(), no_number = std::numeric_limits<double>::quiet_NaN();

/// A run that saves every step; the steps that are marked.
struct Run {
    LossJudge judge;
    int64_t step = 0;
    std::vector<int64_t> marked = {};
    std::string why = {};  ///< of the last mark

    explicit Run(double factor = 1000) : judge(factor) {}
    void loss(double loss) {
        if (const std::string said = judge.judge(++step, loss); !said.empty()) {
            marked.push_back(step - 1);
            why = said;
        }
        judge.saved(step);
    }
    void losses(int64_t count, double value) {
        for (int64_t i = 0; i < count; ++i) loss(value);
    }
};

/// Losses of two kinds of batches, of which `high` of 100 are the higher ones.
std::vector<double> mixture(int64_t count, unsigned high, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<double> losses;
    for (int64_t i = 0; i < count; ++i)
        losses.push_back((random() % 100 < high ? 5 : 0.001) * (1 + static_cast<double>(random() % 100) / 100));
    return losses;
}

}  // namespace

TEST_CASE("a saved step is judged by the next one's loss and the median of those before it", "[diverged]") {
    Run run;
    SECTION("with fewer than eight losses only one that is not finite marks") {
        run.losses(4, 3), run.losses(3, 1e9);
        CHECK(run.marked.empty());
        run.loss(no_number);
        CHECK(run.marked == std::vector<int64_t>{7});
        CHECK(run.why == "the loss of step 8 is nan");
        run.loss(-inf);
        CHECK(run.why == "the loss of step 9 is -inf");
    }
    SECTION("a run that has diverged stays suspect, however long") {
        run.losses(40, 3), run.loss(1.2e11);
        CHECK(run.marked == std::vector<int64_t>{40});
        CHECK(run.why == "the loss of step 41 is 1.2e+11, above 1000 times 3, the median of the last 40 losses");
        run.losses(300, 6.6e13);
        CHECK(run.marked.size() == 301);
        CHECK(run.marked.back() == 340);
    }
    SECTION("also one that has come back from a loss as high before") {
        for (const double high : {2e4, 1e5, 9e5, 1e6})
            for (const int64_t length : {300, 3000}) {
                Run spiked;
                spiked.losses(40, 3), spiked.loss(1e5), spiked.losses(20, 3), spiked.losses(length, high);
                INFO(length << " losses of " << high);
                CHECK(spiked.marked.front() == 40);
                CHECK(spiked.marked.size() >= 1 + static_cast<size_t>(length) - 20);
                CHECK(spiked.marked.back() == 60 + length);
            }
    }
    SECTION("also one whose losses had become small, up to where a model begins") {
        run.losses(60, 5), run.losses(100, 0.002), run.losses(20, 5.5);
        CHECK(run.marked.front() == 160);
        CHECK(run.marked.size() == 20);
    }
    SECTION("one very low loss, or one very high one, is no level") {
        run.losses(20, 2), run.losses(1, 1e-5), run.losses(20, 2);
        CHECK(run.marked.empty());
        run.losses(1, 1e5), run.losses(20, 2);
        CHECK(run.marked == std::vector<int64_t>{41});
    }
    SECTION("a loss that rises is followed") {
        for (double loss = 5; loss < 1e9; loss *= 1.05) run.loss(loss);
        CHECK(run.marked.empty());
    }
    SECTION("another kind of data, for good, is a new level") {
        run.losses(64, 5), run.losses(64, 0.001), run.losses(200, 5);
        CHECK(run.marked.size() <= 32);
    }
    SECTION("losses of 0 and below judge nothing and are none of the median") {
        run.losses(100, 0), run.losses(100, -3), run.losses(7, 2), run.loss(1e7);
        CHECK(run.marked.empty());
        run.losses(1, 1e12);
        CHECK(run.marked == std::vector<int64_t>{208});
    }
    SECTION("a step that is not the next one is not compared") {
        run.losses(20, 1);
        CHECK(run.judge.judge(22, 1e9).empty());
    }
}

TEST_CASE("the factor of a suspect loss is the user's, 0 leaves finite losses alone", "[diverged]") {
    Run off(0), strict(10);
    for (Run* run : {&off, &strict}) run->losses(20, 2), run->loss(30);
    CHECK(off.marked.empty());
    CHECK(strict.marked == std::vector<int64_t>{20});
    off.losses(20, 1e30), off.loss(inf);
    CHECK(off.marked == std::vector<int64_t>{41});
}

TEST_CASE("steps of a run whose batches differ by more than the factor are not suspect", "[diverged]") {
    Run strict;
    for (int i = 0; i < 600; ++i) strict.loss(i % 2 == 0 ? 0.001 : 5);
    CHECK(strict.marked.empty());
    for (const unsigned high : {90u, 70u, 50u, 30u, 10u})
        for (unsigned seed = 0; seed < 50; ++seed) {
            Run run;
            for (const double loss : mixture(600, high, seed)) run.loss(loss);
            INFO(high << " of 100 are high, " << seed);
            // The first of a kind that the last 64 losses had none of.
            CHECK(run.marked.size() <= (high == 10 ? 2 : 1));
            // It is still found when such a run diverges.
            run.losses(100, 3e6);
            CHECK(run.marked.size() >= 100);
        }
}

TEST_CASE("a run that resumes judges as one that was not stopped", "[diverged]") {
    for (unsigned seed = 0; seed < 20; ++seed) {
        std::vector<double> losses = mixture(300, seed * 5, seed);
        for (size_t i = 200; i < 260; ++i)
            if (i % 3 != 0) losses[i] = seed % 2 == 0 ? 1e9 : no_number;
        Run whole;
        for (const double loss : losses) whole.loss(loss);
        for (const int64_t at : {1, 7, 8, 64, 65, 201, 203, 250, 299}) {
            Run first, second;
            for (int64_t i = 0; i < at; ++i) first.loss(losses[static_cast<size_t>(i)]);
            second.judge.resume(at, first.judge.kept());
            second.step = at;
            second.marked = first.marked;
            for (auto i = static_cast<size_t>(at); i < losses.size(); ++i) second.loss(losses[i]);
            CHECK(second.marked == whole.marked);
        }
    }
    // One that diverges after a spike that it had come back from, stopped at any step.
    std::vector<double> losses(141, 3.0);
    losses[40] = 1e5;
    std::fill(losses.begin() + 61, losses.end(), 1e5);
    Run whole;
    for (const double loss : losses) whole.loss(loss);
    CHECK(whole.marked.size() >= 61);
    for (size_t at = 1; at < losses.size(); ++at) {
        Run first, second;
        for (size_t i = 0; i < at; ++i) first.loss(losses[i]);
        second.judge.resume(static_cast<int64_t>(at), first.judge.kept());
        second.step = static_cast<int64_t>(at);
        second.marked = first.marked;
        for (size_t i = at; i < losses.size(); ++i) second.loss(losses[i]);
        INFO("stopped after " << at);
        CHECK(second.marked == whole.marked);
    }
    LossJudge odd;  // what no run leaves there
    odd.resume(9, {{no_number, -1, 0, 3, inf}, no_number, -inf});
    CHECK(odd.kept().losses == std::vector<double>{3});
    CHECK(odd.kept().highest == 0);
    CHECK(odd.kept().pending == 0);
    odd.resume(9, {std::vector<double>(1000, 2.0), 2, 0});
    CHECK(odd.kept().losses.size() == LossJudge::window);
}
