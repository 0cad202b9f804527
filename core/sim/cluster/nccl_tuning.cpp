// NCCL's choice of algorithm, protocol and chunks. Numbers and formulas are facts of NCCL 2.28 (BSD):
// src/graph/tuning.cc (latencies, limits, predicted time), src/graph/search.cc and topo.h (channels and their speeds),
// src/enqueue.cc (chunks), src/transport/nvls.cc (channels of NVLS).
#include "sim/cluster/nccl_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace orrery {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
constexpr size_t at(T value) {
    return static_cast<size_t>(value);
}

using PerProtocol = std::array<double, 3>;  // microseconds for protocols LL, LL128, Simple

constexpr PerProtocol base_us[] = {{6.6, 14, 8.4}, {6.8, 14, 8.4}, {0, 0, 0}, {0, 0, 0}};
constexpr PerProtocol nvlink_us[] = {{0.6, 1.9, 3.4}, {0.6, 1.25, 4}, {0, 0, 25}, {0, 0, 25}};
constexpr PerProtocol pcie_us[] = {{1, 2.5, 5.7}, {1, 1.9, 4}, {0, 0, 0}, {0, 0, 0}};
constexpr PerProtocol net_us[] = {{2.7, 4, 14}, {5, 8.5, 14}, {0, 0, 18}, {0, 0, 20.9}};

/// Limits of NCCL's bandwidth in GB/s, [GPU generation: Volta, Ampere, Hopper, Blackwell] [number of NVLink domains:
/// 1, 2, more].
using PerGeneration = std::array<std::array<double, 3>, 4>;
constexpr PerGeneration ll_limit = {{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
/// Limits of the bandwidth of one NCCL channel in GB/s, by [GPU generation] [number of NVLink domains] as above.
constexpr PerGeneration ring_ll128_limit = {{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}}};
constexpr PerGeneration tree_ll128_limit = {{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr PerGeneration tree_limit = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr PerGeneration nvls_tree_limit = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 80}}};

/// Factors on the predicted rate of a tree, by size of the collective: 64 bytes, 128 bytes and so on.
constexpr std::array<std::array<double, 24>, 3> tree_correction = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}};

size_t row(const NcclGroup& group) { return std::max<size_t>(at(group.generation), 1) - 1; }

double limit(const PerGeneration& table, const NcclGroup& group) {
    return table[row(group)][static_cast<size_t>(std::min<int64_t>(group.domains, 3) - 1)] * 1e9;
}

/// Bandwidths that NCCL's search tries for a channel, in GB/s, highest first.
std::span<const double> speeds(const NcclGroup& group, bool between) {
    static constexpr double old_in[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
    static constexpr double old_out[] = {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12};
    static constexpr double hopper_in[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
    static constexpr double hopper_out[] = {48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12};
    static constexpr double blackwell_in[] = {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
    static constexpr double blackwell_out[] = {96, 86,   80, 48, 45.1, 42, 40,  30,  24,   22,
                                               20, 17.5, 15, 12, 6,    3,  2.4, 1.2, 0.24, 0.12};
    if (group.generation == Generation::blackwell)
        return between ? std::span<const double>(blackwell_out) : blackwell_in;
    if (group.generation == Generation::hopper) return between ? std::span<const double>(hopper_out) : hopper_in;
    return between ? std::span<const double>(old_out) : old_in;
}

double fastest(std::span<const double> tried, double most) {
    for (const double speed : tried) {
        if (speed * 1e9 <= most) return speed * 1e9;
    }
    return most;
}

/// Bandwidth that NCCL assumes for an accelerator's links, below the data sheet's: 20 of 25 GB/s for NVLink 3, 20.6 of
/// 25 for NVLink 4, 40.1 of 50 for NVLink 5.
double counted_link(const NcclGroup& group) {
    if (!group.nvlink) return group.link_bytes_s;
    if (group.generation == Generation::hopper) return group.link_bytes_s * 20.6 / 25;
    return group.link_bytes_s * (group.generation == Generation::blackwell ? 40.1 / 50 : 20.0 / 25);
}

struct Channels {
    int64_t count = 0;
    double bytes_s = 0;
};

/// Doubles the number of NCCL channels at half the bandwidth each, as NCCL does if they are few and fast.
Channels doubled(Channels found, const NcclGroup& group) {
    const bool recent = group.generation > Generation::ampere;
    if (found.bytes_s < 25e9 || (recent && found.bytes_s < 50e9 && found.count > 4)) return found;
    return {found.count * 2, found.bytes_s / 2};
}

Channels search_ring(const NcclGroup& group) {
    const double link = counted_link(group);
    if (group.domains > 1) {
        const double speed = fastest(speeds(group, true), group.nic_bytes_s);
        const double across = group.heads > 1 ? std::min(speed, link / static_cast<double>(group.nics)) : speed;
        return doubled({group.nics, across}, group);
    }
    Channels best;
    for (const double speed : speeds(group, false)) {
        const Channels tried{std::min<int64_t>(static_cast<int64_t>(link / (speed * 1e9)), 16), speed * 1e9};
        if (static_cast<double>(tried.count) * tried.bytes_s > static_cast<double>(best.count) * best.bytes_s)
            best = tried;
    }
    if (best.count == 0) best = {1, link};
    return doubled(best, group);
}

/// Number of NVLS channels: one for each rank of a domain or, between domains, for each NIC.
Channels search_nvls(const NcclGroup& group) {
    if (group.domains > 1) return {group.nics, fastest(speeds(group, true), group.nic_bytes_s)};
    const double ranks = static_cast<double>(group.ranks);
    const double shared = counted_link(group) * ranks / (ranks - 1) / ranks;
    return {group.ranks, fastest(speeds(group, false), shared)};
}

bool possible(Opcode opcode, NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group) {
    const bool simple = protocol == NcclProtocol::simple;
    if (!simple && group.domains > 1 && !group.ordered) return false;
    if (protocol == NcclProtocol::ll128 && (!group.nvlink || group.generation == Generation::other)) return false;
    switch (algorithm) {
        case NcclAlgorithm::ring: return true;
        case NcclAlgorithm::tree: return opcode == Opcode::all_reduce;
        case NcclAlgorithm::nvls: return simple && group.nvls && group.domains == 1 && group.ranks > 2;
        case NcclAlgorithm::nvls_tree:
            return simple && group.nvls && group.domains > 1 && opcode == Opcode::all_reduce &&
                   search_nvls(group).count >= 2 && group.heads >= 2;
    }
    return false;
}

/// Returns the rate that NCCL's formula predicts for a collective, in bytes of its tensor per second.
double predicted_rate(Opcode opcode, NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group) {
    const bool reduce = opcode == Opcode::all_reduce;
    const double ranks = static_cast<double>(group.ranks), heads = static_cast<double>(group.heads);
    const double ring_ratio = ranks / (reduce ? 2 * (ranks - 1) : ranks - 1);
    if (algorithm == NcclAlgorithm::nvls || algorithm == NcclAlgorithm::nvls_tree) {
        const Channels found = search_nvls(group);
        const double count = static_cast<double>(found.count);
        const double kept = group.generation == Generation::blackwell ? 0.74 : 0.85;
        double each = found.bytes_s * kept * (count - 1) / count * (reduce ? 2 : (heads - 1) / heads);
        if (algorithm == NcclAlgorithm::nvls_tree)
            each = std::min({each, found.bytes_s * (group.domains == 2 ? 2 : 1), limit(nvls_tree_limit, group)});
        return each * count * (reduce ? ring_ratio : 1);
    }
    const Channels found = search_ring(group);
    const double count = static_cast<double>(found.count);
    double bus = count * found.bytes_s;
    if (algorithm == NcclAlgorithm::ring) {
        if (protocol == NcclProtocol::ll) bus = std::min(bus / 2, limit(ll_limit, group));
        if (protocol == NcclProtocol::ll128) bus = std::min(bus * 0.92, count * limit(ring_ll128_limit, group));
        return bus * ring_ratio;
    }
    if (group.domains == 2) bus = std::min(bus * 2, counted_link(group));
    bus = std::min(bus * 0.92, count * limit(tree_limit, group));
    if (protocol == NcclProtocol::ll) bus = std::min(bus / 3.8, limit(ll_limit, group));
    if (protocol == NcclProtocol::ll128)
        bus = std::min(bus * (group.domains == 1 ? 7.0 / 9 : 120.0 / 128), count * limit(tree_ll128_limit, group));
    return bus / 2;
}

int log2_floor(int64_t value) {
    return value < 1 ? -1 : static_cast<int>(std::bit_width(static_cast<uint64_t>(value))) - 1;
}

double predicted_latency(Opcode opcode, NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group) {
    const bool simple = protocol == NcclProtocol::simple;
    const double base = base_latency(algorithm, protocol);
    const double inside = step_latency(algorithm, protocol, group, false);
    const NcclAlgorithm net = group.heads == 1 ? NcclAlgorithm::tree : algorithm;
    const double between = step_latency(net, protocol, group, true) + group.nic_latency_s * (simple ? 2 : 1);
    const double levels = log2_floor(group.domains);
    switch (algorithm) {
        case NcclAlgorithm::ring: {
            const int rounds = opcode == Opcode::all_reduce ? 2 : 1;
            const double steps = static_cast<double>(rounds * (group.ranks - 1));
            const double out = group.domains == 1 ? 0 : static_cast<double>(rounds * (group.domains - 1));
            const double overhead = group.domains == 1 ? 0 : simple ? 3e-6 : 1e-6;
            return base + (steps - out) * std::max(inside, overhead) + out * between;
        }
        case NcclAlgorithm::tree:
            return base + 2 * (static_cast<double>(group.ranks / group.domains - 1) * inside + levels * between);
        case NcclAlgorithm::nvls: return inside;
        case NcclAlgorithm::nvls_tree: return inside + 2 * levels * between;
    }
    return base;
}

double predicted(Opcode opcode, int64_t bytes, NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group) {
    double rate = predicted_rate(opcode, algorithm, protocol, group);
    double latency = predicted_latency(opcode, algorithm, protocol, group);
    const int size = log2_floor(bytes >> 6);
    const bool corrected = algorithm == NcclAlgorithm::tree ||
                           (algorithm == NcclAlgorithm::nvls_tree && group.generation == Generation::blackwell);
    if (corrected && size >= 0 && size < 23) rate *= tree_correction[at(protocol)][static_cast<size_t>(size)];
    if (algorithm == NcclAlgorithm::ring && protocol == NcclProtocol::simple && group.domains > 1 &&
        opcode == Opcode::all_reduce && bytes / (channels(algorithm, group) * group.ranks) >= 64)
        latency *= group.generation < Generation::ampere ? 1.9 : 1.4;
    return latency + static_cast<double>(bytes) / rate;
}

constexpr NcclAlgorithm algorithms[] = {NcclAlgorithm::ring, NcclAlgorithm::tree, NcclAlgorithm::nvls,
                                        NcclAlgorithm::nvls_tree};
constexpr std::string_view algorithm_names[] = {"ring", "tree", "NVLS", "NVLS tree"};

}  // namespace

std::string name_of(NcclAlgorithm algorithm, NcclProtocol protocol) {
    static constexpr std::string_view protocols[] = {"LL", "LL128", "Simple"};
    if (algorithm == NcclAlgorithm::nvls || algorithm == NcclAlgorithm::nvls_tree)
        return std::string(algorithm_names[at(algorithm)]);
    return fmt::format("{}, {}", algorithm_names[at(algorithm)], protocols[at(protocol)]);
}

NcclChoice choose(Opcode opcode, int64_t bytes, const NcclGroup& group, const NcclSettings& settings) {
    NcclChoice best{.predicted_s = infinity};
    for (const NcclAlgorithm algorithm : algorithms) {
        if (settings.algorithm && *settings.algorithm != algorithm) continue;
        const bool in_switch = algorithm == NcclAlgorithm::nvls || algorithm == NcclAlgorithm::nvls_tree;
        if (in_switch && !settings.nvls) continue;
        for (const NcclProtocol protocol : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple}) {
            if (!possible(opcode, algorithm, protocol, group)) continue;
            const double seconds = predicted(opcode, bytes, algorithm, protocol, group);
            if (seconds < best.predicted_s) best = {algorithm, protocol, seconds};
        }
    }
    if (best.predicted_s == infinity)
        throw Error(fmt::format(
            "unsupported algorithm: NCCL has no {} by {} for {} ranks in {} domain{}\n  leave the algorithm "
            "to NCCL's choice",
            name_of(opcode), settings.algorithm ? algorithm_names[at(*settings.algorithm)] : "no algorithm",
            group.ranks, group.domains, group.domains == 1 ? "" : "s"));
    return best;
}

int64_t channels(NcclAlgorithm algorithm, const NcclGroup& group) {
    if (algorithm == NcclAlgorithm::nvls) return group.generation == Generation::blackwell ? 24 : 16;
    if (algorithm == NcclAlgorithm::nvls_tree)
        return group.generation != Generation::blackwell         ? 16
               : group.domains == 2 && group.nic_bytes_s >= 48e9 ? 32
                                                                 : 24;
    const Channels found = search_ring(group);
    return std::min<int64_t>(found.count * 2, 32);
}

int64_t chunk_bytes(NcclAlgorithm algorithm, NcclProtocol protocol, int64_t bytes, const NcclGroup& group) {
    constexpr int64_t kib = 1024;
    const int64_t at_once = channels(algorithm, group) * group.heads;
    if (algorithm == NcclAlgorithm::nvls) {
        int64_t chunk = 128 * kib;
        if (bytes < 64 * at_once * chunk) chunk = 64 * kib;
        if (bytes < 8 * at_once * chunk) chunk = 32 * kib;
        if (bytes < 2 * at_once * chunk) chunk = 16 * kib;
        return chunk;
    }
    if (algorithm == NcclAlgorithm::nvls_tree) {
        const bool blackwell = group.generation == Generation::blackwell;
        int64_t chunk = blackwell && group.nic_bytes_s >= 96e9 ? 256 * kib
                        : group.domains >= 4 || blackwell      ? 64 * kib
                                                               : 128 * kib;
        if (bytes < 16 * at_once * chunk) chunk = std::min(chunk, 128 * kib);
        if (bytes < 4 * at_once * chunk) chunk = std::min(chunk, 64 * kib);
        if (bytes < at_once * chunk) chunk = std::min(chunk, 32 * kib);
        return chunk;
    }
    // The buffer of an NCCL channel has eight steps: 4 MiB for Simple, 512 KiB for LL with a flag for each word, 640
    // KiB for LL128.
    if (protocol == NcclProtocol::ll) return 32 * kib;
    if (protocol == NcclProtocol::ll128) return 75 * kib;
    return algorithm == NcclAlgorithm::ring ? 2048 * kib : 512 * kib;
}

double base_latency(NcclAlgorithm algorithm, NcclProtocol protocol) {
    return base_us[at(algorithm)][at(protocol)] * 1e-6;
}

double step_latency(NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group, bool between) {
    const auto& table = between ? net_us : group.nvlink ? nvlink_us : pcie_us;
    return table[at(algorithm)][at(protocol)] * 1e-6;
}

double copy_limit(NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGroup& group) {
    const double count = static_cast<double>(channels(algorithm, group)) / 2;
    if (algorithm == NcclAlgorithm::nvls || algorithm == NcclAlgorithm::nvls_tree) return infinity;
    if (protocol == NcclProtocol::ll) return limit(ll_limit, group);
    if (algorithm == NcclAlgorithm::tree)
        return count * limit(protocol == NcclProtocol::ll128 ? tree_ll128_limit : tree_limit, group);
    return protocol == NcclProtocol::ll128 ? count * limit(ring_ll128_limit, group) : infinity;
}

double payload(NcclProtocol protocol) {
    if (protocol == NcclProtocol::ll) return 0.5;
    return protocol == NcclProtocol::ll128 ? 120.0 / 128 : 1;
}

}  // namespace orrery
