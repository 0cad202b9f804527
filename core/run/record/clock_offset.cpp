#include "run/record/clock_offset.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <map>

#include "base/env.h"
#include "base/text.h"

namespace orrery {
namespace {

constexpr int rounds = 12;

int64_t number(const std::string& text) {
    int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

/// Ranks that ask rank 0 for the time: the first rank with each clock other than rank 0's, and all ranks with unknown
/// clocks. `asker_of`: by rank, the rank that asks for it.
std::vector<int64_t> askers(const std::vector<std::string>& clocks, std::vector<int64_t>& asker_of) {
    std::vector<int64_t> all;
    std::map<std::string, int64_t> first;
    asker_of.assign(clocks.size(), 0);
    for (size_t rank = 0; rank < clocks.size(); ++rank) {
        const auto own = static_cast<int64_t>(rank);
        const bool known = !clocks[rank].empty();
        asker_of[rank] = known ? first.try_emplace(clocks[rank], own).first->second : own;
        if (asker_of[rank] == own && own != 0) all.push_back(own);
    }
    return all;
}

ClockOffset ask(Rendezvous& rendezvous, const std::string& prefix, std::chrono::milliseconds timeout,
                const std::function<int64_t()>& now) {
    ClockOffset best{0, std::numeric_limits<int64_t>::max()};
    for (int round = 0; round < rounds; ++round) {
        const int64_t asked = now();
        rendezvous.set(fmt::format("{}/asks/{}", prefix, round), "");
        const int64_t there = number(rendezvous.get(fmt::format("{}/told/{}", prefix, round), timeout));
        const int64_t told = now(), error = (told - asked) / 2;
        if (error < best.error_ns) best = {there - (asked + error), error};
    }
    return best;
}

void answer(Rendezvous& rendezvous, const std::string& prefix, std::chrono::milliseconds timeout,
            const std::function<int64_t()>& now) {
    for (int round = 0; round < rounds; ++round) {
        rendezvous.get(fmt::format("{}/asks/{}", prefix, round), timeout);
        rendezvous.set(fmt::format("{}/told/{}", prefix, round), std::to_string(now()));
    }
}

}  // namespace

std::string clock_name() {
    try {
        const auto env = system_env();
        return std::string(trim(env->read_file("/proc/sys/kernel/random/boot_id")));
    } catch (const Error&) {
        return "";
    }
}

ClockOffset clock_offset(Rendezvous& rendezvous, const std::string& name, int64_t rank,
                         const std::vector<std::string>& clocks, std::chrono::milliseconds timeout,
                         const std::function<int64_t()>& now) {
    std::vector<int64_t> asker_of;
    const std::vector<int64_t> all = askers(clocks, asker_of);
    const int64_t mine = asker_of[static_cast<size_t>(rank)];
    const auto prefix = [&](int64_t asker) { return fmt::format("{}/{}", name, asker); };
    if (rank == 0)
        for (const int64_t asker : all) answer(rendezvous, prefix(asker), timeout, now);
    if (mine == 0) return {};
    const std::string key = prefix(mine) + "/offset";
    if (mine == rank) {
        const ClockOffset found = ask(rendezvous, prefix(mine), timeout, now);
        rendezvous.set(key, fmt::format("{} {}", found.ns, found.error_ns));
        return found;
    }
    const std::vector<std::string> parts = split(rendezvous.get(key, timeout), ' ');
    return {number(parts.at(0)), number(parts.at(1))};
}

}  // namespace orrery
