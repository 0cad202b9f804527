#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "sim/fair_share.h"

using namespace orrery;

namespace {

/// Ids and when each ended.
std::vector<std::pair<int, double>> run(FairShare& share) {
    std::vector<std::pair<int, double>> all;
    for (double at = share.next(); at < std::numeric_limits<double>::infinity(); at = share.next()) {
        std::vector<int> ids;
        share.end(at, ids);
        for (const int id : ids) all.emplace_back(id, at);
    }
    return all;
}

Demand loads(std::vector<Demand::Load> on, double fixed = 0) { return {fixed, std::move(on), 0, ""}; }

FairShare on(std::vector<double> capacities) {
    return FairShare([capacities](ResourceId r) { return capacities.at(static_cast<size_t>(r)); });
}

using Ended = std::vector<std::pair<int, double>>;

}  // namespace

TEST_CASE("fair share: alone, after a fixed time, and beside another") {
    FairShare share = on({10, 100});
    share.begin(loads({{0, 20}}, 1), 7, 0);
    CHECK(run(share) == Ended{{7, 3}});
    share.begin(loads({{0, 20}, {1, 20}}), 1, 3);
    share.begin(loads({{0, 10}}), 2, 3);
    CHECK(run(share) == Ended{{2, 5}, {1, 6}});  // halves until 2 has had its 10, then all of it
}

TEST_CASE("fair share: one that comes later slows the first from then on") {
    FairShare share = on({1});
    share.begin(loads({{0, 4}}), 1, 0);
    std::vector<int> ids;
    share.begin(loads({{0, 1}}), 2, 2);
    CHECK(run(share) == Ended{{2, 4}, {1, 5}});
}

TEST_CASE("fair share: what one cannot use is the others'") {
    // Link 0 carries a and b, link 1 carries b and c. On link 0 each gets 1/2; c takes what b leaves of link 1.
    FairShare share = on({1, 3});
    share.begin(loads({{0, 1}}), 0, 0);
    share.begin(loads({{0, 1}, {1, 1}}), 1, 0);
    share.begin(loads({{1, 5}}), 2, 0);
    CHECK(run(share) == Ended{{0, 2}, {1, 2}, {2, 2}});  // c: 2.5 a second of the 3
}

TEST_CASE("fair share: no thread is faster than one processor, and three threads share two") {
    FairShare share = on({2});
    Demand thread = loads({{0, 6}});
    thread.least_s = 6;
    share.begin(thread, 0, 0);
    CHECK(run(share) == Ended{{0, 6}});
    for (int i = 0; i < 3; ++i) share.begin(thread, i, 10);
    CHECK(run(share) == Ended{{0, 19}, {1, 19}, {2, 19}});
}

TEST_CASE("fair share: loads on one resource add up; nothing to draw ends at once") {
    FairShare share = on({2});
    share.begin(loads({{0, 1}, {0, 3}}), 0, 0);
    share.begin(loads({{0, 0}}, 0.5), 1, 0);
    share.begin(loads({}), 2, 0);
    CHECK(run(share) == Ended{{2, 0}, {1, 0.5}, {0, 2}});
}

TEST_CASE("fair share: max-min by its definition, on random demands") {
    uint64_t state = 1;
    const auto draw = [&](uint64_t below) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % below;
    };
    for (int round = 0; round < 500; ++round) {
        constexpr size_t resources = 6;
        std::vector<double> capacities;
        for (size_t r = 0; r < resources; ++r) capacities.push_back(1 + static_cast<double>(draw(9)));
        FairShare share = on(capacities);
        std::vector<std::vector<double>> parts;  // by demand and resource: of its capacity, at full speed
        std::vector<double> alone;
        for (int id = 0; id < 10; ++id) {
            Demand d;
            std::vector<double> part(resources, 0);
            for (uint64_t n = 1 + draw(3); n > 0; --n) {
                d.loads.push_back({static_cast<ResourceId>(draw(resources)), 1 + static_cast<double>(draw(20))});
                const auto r = static_cast<size_t>(d.loads.back().resource);
                part[r] += d.loads.back().amount / capacities[r];
            }
            alone.push_back(*std::max_element(part.begin(), part.end()));
            for (double& p : part) p /= alone.back();
            share.begin(d, id, 0);
            parts.push_back(part);
        }
        std::vector<double> speeds, used(resources, 0);
        for (int id = 0; id < 10; ++id) speeds.push_back(share.speed_of(id));
        for (size_t id = 0; id < 10; ++id)
            for (size_t r = 0; r < resources; ++r) used[r] += speeds[id] * parts[id][r];
        for (const double u : used) CHECK(u <= 1 + 1e-9);
        // Nobody could be faster but at the cost of one who is no faster: each is at full speed, or draws on something
        // that is used up and on which none is faster.
        for (size_t id = 0; id < 10; ++id) {
            bool bound = speeds[id] >= 1 - 1e-9;
            for (size_t r = 0; r < resources && !bound; ++r) {
                if (parts[id][r] == 0 || used[r] < 1 - 1e-9) continue;
                bound = true;
                for (size_t other = 0; other < 10; ++other)
                    bound = bound && (parts[other][r] == 0 || speeds[other] <= speeds[id] + 1e-9);
            }
            CHECK(bound);
        }
        const Ended ended = run(share);
        CHECK(ended.size() == 10);
        CHECK(ended.back().second >= *std::max_element(alone.begin(), alone.end()) * (1 - 1e-9));
    }
}
