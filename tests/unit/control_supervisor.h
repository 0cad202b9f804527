#pragma once
#include <algorithm>
#include <catch2/catch.hpp>

#include "control/loss.h"
#include "control/supervisor.h"

/// What tests of the supervisor share.
namespace orrery::test {

using Kind = Order::Kind;

inline Loss of_rank(int64_t rank, Cause cause, int code, const char* text, int64_t step) {
    return {.cause = cause, .rank = rank, .code = code, .step = step, .text = text};
}

inline Loss killed(int64_t rank, int64_t step, Cause cause = Cause::process) {
    return of_rank(rank, cause, 1, "was killed by signal 9 (Killed)", step);
}

/// Of one node, started: generation 1 runs.
inline Supervisor started(Supervisor::Options options) {
    Supervisor s(options, 0);
    for (int64_t node = 0; node < options.nodes; ++node) s.came(node, 0);
    for (int64_t node = 0; node < options.nodes; ++node) s.checked(node, Fitness::fit, "", 0);
    REQUIRE(s.generation() == options.generation + 1);
    return s;
}

inline const Order* find(const Supervisor::Orders& orders, Kind kind) {
    const auto at = std::find_if(orders.begin(), orders.end(), [&](const Order& o) { return o.kind == kind; });
    return at == orders.end() ? nullptr : &*at;
}

/// Its ranks have ended so; the nodes that are looked at for that are well.
inline Supervisor::Orders ended(Supervisor& s, int64_t node, const Loss& how, double now) {
    Supervisor::Orders orders = s.ended(node, how, now);
    for (size_t i = 0; i < orders.size(); ++i)
        if (orders[i].kind == Kind::check)
            for (const Order& order : s.checked(orders[i].node, Fitness::fit, "", now)) orders.push_back(order);
    return orders;
}

}  // namespace orrery::test
