// Orders of a row's tokens: which places each member of an axis gets, and the pairs of query and key that these see.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

#include "ir/build.h"
#include "layout/token_order.h"

using namespace orrery;

namespace {

using Kind = TokenOrder::Kind;
using Runs = std::vector<TokenRun>;

TokenOrder order_of(Kind kind, int64_t members) { return {kind, "cp", members}; }

/// Rows of documents laid end to end, whose numbers begin at 0 in each row.
std::vector<std::vector<int32_t>> rows_of(const std::vector<int64_t>& lengths, int64_t length) {
    std::vector<std::vector<int32_t>> rows(1);
    for (int64_t left : lengths)
        while (left > 0) {
            if (std::ssize(rows.back()) == length) rows.emplace_back();
            const int32_t number = rows.back().empty() ? 0 : rows.back().back() + 1;
            const int64_t taken = std::min(left, length - std::ssize(rows.back()));
            rows.back().insert(rows.back().end(), static_cast<size_t>(taken), number);
            left -= taken;
        }
    if (std::ssize(rows.back()) < length) rows.pop_back();
    return rows;
}

/// 1,189 lengths from 191 to 14,823, as chapters of a long book have them: their logarithms are normal.
std::vector<int64_t> chapters(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(std::log(3500.0) - 0.18, 0.6);
    std::vector<int64_t> all;
    for (int i = 0; i < 1189; ++i)
        all.push_back(std::clamp<int64_t>(std::llround(std::exp(normal(random))), 191, 14823));
    return all;
}

}  // namespace

TEST_CASE("zigzag gives member p the chunks p and 2P - 1 - p") {
    CHECK(token_runs(order_of(Kind::zigzag, 2), 8, {}) == Runs{{0, 2}, {6, 2}, {2, 4}});
    CHECK(token_runs(order_of(Kind::zigzag, 3), 12, {}) == Runs{{0, 2}, {10, 2}, {2, 2}, {8, 2}, {4, 4}});
    CHECK(token_runs({}, 12, {}) == Runs{{0, 12}});
}

TEST_CASE("every order has each token once, and a member's balanced blocks are in the order of their places") {
    std::mt19937 random(5);
    for (const int64_t members : {2, 3, 4, 8})
        for (const int64_t length : {24, 48, 240, 1200, 3072}) {
            std::vector<int64_t> lengths;
            for (int i = 0; i < 500; ++i) lengths.push_back(1 + random() % 40);
            const std::vector<int32_t> documents = rows_of(lengths, length).at(0);
            for (const Kind kind : {Kind::zigzag, Kind::balanced}) {
                if (kind == Kind::zigzag && length % (2 * members) != 0) continue;
                const Runs runs = token_runs(order_of(kind, members), length, documents);
                std::vector<int> times(static_cast<size_t>(length));
                for (const TokenRun& run : runs)
                    for (int64_t i = run.first; i < run.first + run.count; ++i) ++times.at(static_cast<size_t>(i));
                CHECK(std::ranges::count(times, 1) == length);
                for (int64_t member = 0; member < members; ++member) {
                    std::vector<int64_t> places;
                    each_run(runs, member * length / members, length / members,
                             [&](int64_t place, int64_t n, int64_t at) {
                                 CHECK(at == std::ssize(places));
                                 for (int64_t i = 0; i < n; ++i) places.push_back(place + i);
                             });
                    CHECK(std::ssize(places) == length / members);
                    CHECK(std::ranges::is_sorted(places));
                }
            }
        }
}

TEST_CASE("pairs of one document: natural (2P-1)/P - (P-1)/(P(T+1)) of the mean, zigzag 1, both exactly") {
    for (const int64_t members : {2, 3, 4, 8, 64})
        for (const int64_t length : {384, 4992, 32'768 / 384 * 384}) {
            const int64_t total = length * (length + 1) / 2;
            const std::vector<int64_t> natural = pairs_of_members(token_runs({}, length, {}), members, {});
            CHECK(std::accumulate(natural.begin(), natural.end(), int64_t{0}) == total);
            CHECK(std::ranges::max(natural) * members * members * (length + 1) ==
                  ((2 * members - 1) * (length + 1) - (members - 1)) * total);
            const Runs zigzag = token_runs(order_of(Kind::zigzag, members), length, {});
            CHECK(std::ranges::max(pairs_of_members(zigzag, members, {})) * members == total);
            CHECK(largest_share(zigzag, members, {}) == 1);
            if (length / members < 512) continue;  // where blocks have many tokens
            CHECK(largest_share(token_runs(order_of(Kind::balanced, members), length, {}), members, {}) < 1.01);
        }
}

TEST_CASE("chapters packed in rows of 32,768 over 8 ranks: balanced has at most 1.01 of the mean pairs in every row") {
    for (const unsigned seed : {1, 2, 3}) {
        double worst[3] = {}, sum[3] = {};
        const auto rows = rows_of(chapters(seed), 32'768);
        REQUIRE(rows.size() > 100);
        for (const std::vector<int32_t>& documents : rows)
            for (const Kind kind : {Kind::natural, Kind::zigzag, Kind::balanced}) {
                const auto k = static_cast<size_t>(kind);
                const double share = largest_share(token_runs(order_of(kind, 8), 32'768, documents), 8, documents);
                worst[k] = std::max(worst[k], share);
                sum[k] += share / static_cast<double>(rows.size());
            }
        INFO("largest over mean pairs, in the mean and the worst of "
             << rows.size() << " rows: natural " << sum[0] << ", " << worst[0] << "; zigzag " << sum[1] << ", "
             << worst[1] << "; balanced " << sum[2] << ", " << worst[2]);
        CHECK(worst[2] <= 1.01);
        for (const int k : {0, 1}) {
            CHECK(sum[k] > 1.5);
            CHECK(sum[k] < 2.1);
            CHECK(worst[k] > 2);
        }
    }
}

TEST_CASE("an order is for one axis, and for none of one rank") {
    Program program;
    CHECK(token_order(program, Mesh({{"cp", 2}})).text() == "natural");
    program.edge("cp", std::nullopt, "order", std::string("balanced"), {});
    CHECK(token_order(program, Mesh({{"cp", 2}})).text() == "balanced over cp=2");
    CHECK(token_order(program, Mesh({{"dp", 2}})).natural());
    CHECK_THROWS_WITH(program.edge("co", std::nullopt, "order", std::string("zigzag"), {}),
                      Catch::Contains("order over co: cp has one already"));
    CHECK_THROWS_WITH(program.edge("cp", std::nullopt, "order", std::string("striped"), {}),
                      Catch::Contains("tokens cannot be in the order \"striped\" over cp"));
}

TEST_CASE("rows that an order cannot deal to all members are refused") {
    const auto checked = [](const char* order, int64_t length) {
        Program program;
        Builder(program).input("tokens", {DType::i32, {2, length}}, {"batch", "seq"}, {});
        program.edge("cp", std::nullopt, "order", std::string(order), {});
        check_token_order(program, Mesh({{"cp", 4}}));
    };
    CHECK_NOTHROW(checked("zigzag", 16));
    CHECK_THROWS_WITH(checked("zigzag", 12), Catch::Contains("12 is not a multiple of 8\n  use rows of 16 tokens"));
    CHECK_NOTHROW(checked("balanced", 12));
    CHECK_THROWS_WITH(checked("balanced", 14), Catch::Contains("14 is not a multiple of 4"));
}
