// Threads inside one kernel.
#pragma once

#include <cstdint>

namespace orrery::kernels::cpu {

/// Calls run(arg, part) once for every part in [0, parts), on up to `parts` threads; returns when all are done.
void run_team(int parts, void (*run)(void* arg, int part), void* arg);

/// Calls f(part) for every part in [0, parts) like run_team.
template <class F>
[[gnu::always_inline]] inline void team(int parts, F f) {
    if (parts <= 1) return f(0);
    run_team(
        parts, [](void* arg, int part) { (*static_cast<F*>(arg))(part); }, &f);
}

/// Number of parts when each should have at least `grain` of n.
inline int parts_of(int threads, std::int64_t n, std::int64_t grain) {
    const std::int64_t most = (n + grain - 1) / grain;
    return most < threads ? (most < 1 ? 1 : static_cast<int>(most)) : threads;
}

/// Start of a part when n is cut evenly in multiples of `unit`; independent of timing.
inline std::int64_t cut(std::int64_t n, int parts, int part, std::int64_t unit) {
    const std::int64_t units = (n + unit - 1) / unit;
    const std::int64_t at = units * part / parts * unit;
    return at < n ? at : n;
}

/// Calls f(begin, end) for disjoint ranges that cover [0, n).
template <class F>
[[gnu::always_inline]] inline void parallel(int threads, std::int64_t n, std::int64_t grain, std::int64_t unit, F f) {
    if (n <= 0) return;
    const int parts = parts_of(threads, n, grain);
    team(parts, [&](int part) {
        const std::int64_t begin = cut(n, parts, part, unit), end = cut(n, parts, part + 1, unit);
        if (begin < end) f(begin, end);
    });
}

}  // namespace orrery::kernels::cpu
