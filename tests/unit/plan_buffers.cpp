#include "plan/lower/buffers.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <random>

#include "plan/lower/lower.h"

using namespace orrery;

namespace {

/// Places must be aligned, inside the arena and apart from those that live at the same time.
void check_placed(const std::vector<Lifetime>& lifetimes, const Placed& placed) {
    REQUIRE(placed.offsets.size() == lifetimes.size());
    int64_t clashes = 0;
    for (size_t i = 0; i < lifetimes.size(); ++i) {
        REQUIRE(placed.offsets[i] % arena_alignment == 0);
        REQUIRE(placed.offsets[i] + lifetimes[i].bytes <= placed.bytes);
        for (size_t j = 0; j < i; ++j) {
            const bool together = lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
            const bool overlap = placed.offsets[i] < placed.offsets[j] + lifetimes[j].bytes &&
                                 placed.offsets[j] < placed.offsets[i] + lifetimes[i].bytes;
            clashes += together && overlap;
        }
    }
    CHECK(clashes == 0);
    CHECK(placed.floor <= placed.bytes);
}

/// Activations of a forward and backward pass: made one after the other, read again in reverse order, with short-lived
/// temporaries beside them.
std::vector<Lifetime> training_step(int layers, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Lifetime> lifetimes;
    const int end = 8 * layers;
    for (int layer = 0; layer < layers; ++layer) {
        const int at = 4 * layer;
        lifetimes.push_back({1 << 20, at, end - at});
        lifetimes.push_back({4 << 20, at + 1, end - at - 1});
        lifetimes.push_back({static_cast<int64_t>(random() % 100'000) + 1, at, at + 2});
        lifetimes.push_back({static_cast<int64_t>(random() % 3'000'000) + 1, end - at - 2, end - at});
    }
    return lifetimes;
}

}  // namespace

TEST_CASE("no lifetimes need no arena") {
    const Placed placed = place_buffers({});
    CHECK(placed.bytes == 0);
    CHECK(placed.floor == 0);
}

TEST_CASE("what never lives together shares a place") {
    const std::vector<Lifetime> lifetimes{{100, 0, 1}, {128, 2, 3}, {60, 4, 9}};
    const Placed placed = place_buffers(lifetimes);
    check_placed(lifetimes, placed);
    CHECK(placed.bytes == 128);
    CHECK(placed.floor == 128);
}

TEST_CASE("neighbours in time that touch one instruction live together") {
    const std::vector<Lifetime> lifetimes{{64, 0, 1}, {64, 1, 2}};
    CHECK(place_buffers(lifetimes).bytes == 128);
}

TEST_CASE("random lifetimes never overlap, and the arena stays near the floor") {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        std::vector<Lifetime> lifetimes;
        for (int i = 0; i < 400; ++i) {
            const int first = static_cast<int>(random() % 500);
            lifetimes.push_back(
                {static_cast<int64_t>(random() % 10'000) + 1, first, first + static_cast<int>(random() % 60)});
        }
        const Placed placed = place_buffers(lifetimes);
        check_placed(lifetimes, placed);
        CHECK(static_cast<double>(placed.bytes) < 1.15 * static_cast<double>(placed.floor));
    }
}

TEST_CASE("a training step's activations fit within two percent of the floor") {
    for (int layers : {12, 80}) {
        const auto lifetimes = training_step(layers, 7);
        const Placed placed = place_buffers(lifetimes);
        check_placed(lifetimes, placed);
        CHECK(static_cast<double>(placed.bytes) <= 1.02 * static_cast<double>(placed.floor));
    }
}

TEST_CASE("a hundred thousand lifetimes are placed in under a second") {
    const auto lifetimes = training_step(25'000, 3);
    const auto start = std::chrono::steady_clock::now();
    const Placed placed = place_buffers(lifetimes);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK_NOFAIL(seconds < 1.0);  // reported, not failed: a busy machine is no bug
    CHECK(static_cast<double>(placed.bytes) <= 1.02 * static_cast<double>(placed.floor));
}

TEST_CASE("a block of several sizes has the place of the largest that came before") {
    Persistent persistent;
    const int64_t large = persistent.place_block("inputs", 1000);
    const int64_t whole = persistent.bytes();
    CHECK(persistent.place_block("inputs", 500) == large);
    CHECK(persistent.place_block("results", 1000) != large);
    CHECK(persistent.bytes() == 2 * whole);
    const int64_t larger = persistent.place_block("inputs", 2000);
    CHECK(larger >= 2 * whole);
    CHECK(persistent.place_block("inputs", 2000) == larger);
    CHECK(persistent.place_block("inputs", 700) == large);
}
