#include "layout/token_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace orrery {

namespace {

using OrderKind = TokenOrder::Kind;
constexpr int64_t most_block = 128;  ///< tokens of a block of the balanced order

std::string_view name_of(OrderKind kind) {
    constexpr std::string_view names[] = {"natural", "zigzag", "balanced"};
    return names[static_cast<size_t>(kind)];
}

/// By place: pairs of a query with the keys up to it in its document. Tokens of one document are next to each other.
std::vector<int64_t> pairs_of(int64_t length, std::span<const int32_t> documents) {
    std::vector<int64_t> pairs(static_cast<size_t>(length), 1);
    for (size_t i = 0; i < pairs.size(); ++i) {
        if (!documents.empty() && documents[i] < 0)
            pairs[i] = 0;
        else if (i > 0 && (documents.empty() || documents[i] == documents[i - 1]))
            pairs[i] += pairs[i - 1];
    }
    return pairs;
}

void append(std::vector<TokenRun>& runs, TokenRun run) {
    if (!runs.empty() && runs.back().first + runs.back().count == run.first)
        runs.back().count += run.count;
    else
        runs.push_back(run);
}

int64_t zigzag_block(int64_t members, int64_t length) { return length / (2 * members); }

int64_t balanced_block(int64_t members, int64_t length) {
    const int64_t part = length / members;
    int64_t size = std::clamp<int64_t>(part / 4, 1, most_block);
    while (part % size != 0) --size;
    return size;
}

std::vector<TokenRun> zigzag(int64_t members, int64_t length) {
    std::vector<TokenRun> runs;
    const int64_t chunk = zigzag_block(members, length);
    for (int64_t member = 0; member < members; ++member)
        for (const int64_t at : {member, 2 * members - 1 - member}) append(runs, {at * chunk, chunk});
    return runs;
}

std::vector<TokenRun> balanced(int64_t members, int64_t length, std::span<const int32_t> documents) {
    const int64_t part = length / members, size = balanced_block(members, length);
    const std::vector<int64_t> pairs = pairs_of(length, documents);
    std::vector<int64_t> cost(static_cast<size_t>(length / size)), dearest(cost.size());
    for (size_t i = 0; i < pairs.size(); ++i) cost[i / static_cast<size_t>(size)] += pairs[i];
    std::iota(dearest.begin(), dearest.end(), 0);
    std::ranges::stable_sort(dearest, std::greater<>(),
                             [&](int64_t block) { return cost[static_cast<size_t>(block)]; });
    struct Member {
        int64_t pairs = 0;
        std::vector<int64_t> blocks;
    };
    std::vector<Member> dealt(static_cast<size_t>(members));
    for (const int64_t block : dearest) {
        Member* to = nullptr;
        for (Member& member : dealt)
            if (std::ssize(member.blocks) < part / size && (!to || member.pairs < to->pairs)) to = &member;
        to->pairs += cost[static_cast<size_t>(block)];
        to->blocks.push_back(block);
    }
    std::vector<TokenRun> runs;
    for (Member& member : dealt) {
        std::ranges::sort(member.blocks);
        for (const int64_t block : member.blocks) append(runs, {block * size, size});
    }
    return runs;
}

}  // namespace

std::string TokenOrder::text() const {
    return natural() ? std::string(name_of(kind)) : fmt::format("{} over {}={}", name_of(kind), axis, members);
}

TokenOrder token_order(const Program& program, const Mesh& mesh) {
    TokenOrder order;
    for (const EdgeMark& mark : program.edges()) {
        if (mark.option != "order" || mesh.size(mark.axis) == 1) continue;
        const auto& name = std::get<std::string>(mark.value);
        order = {name == name_of(OrderKind::zigzag) ? OrderKind::zigzag : OrderKind::balanced, mark.axis,
                 mesh.size(mark.axis)};
    }
    return order;
}

int64_t block_of_tokens(const TokenOrder& order, int64_t length) {
    switch (order.kind) {
        case OrderKind::zigzag: return zigzag_block(order.members, length);
        case OrderKind::balanced: return balanced_block(order.members, length);
        case OrderKind::natural: break;
    }
    return length;
}

std::vector<TokenRun> token_runs(const TokenOrder& order, int64_t length, std::span<const int32_t> documents) {
    switch (order.kind) {
        case OrderKind::natural: return {{0, length}};
        case OrderKind::zigzag: return zigzag(order.members, length);
        case OrderKind::balanced: return balanced(order.members, length, documents);
    }
    return {};
}

std::vector<int64_t> pairs_of_members(std::span<const TokenRun> runs, int64_t members,
                                      std::span<const int32_t> documents) {
    int64_t length = 0, at = 0;
    for (const TokenRun& run : runs) length += run.count;
    const std::vector<int64_t> pairs = pairs_of(length, documents);
    std::vector<int64_t> sums(static_cast<size_t>(members));
    for (const TokenRun& run : runs)
        for (int64_t i = run.first; i < run.first + run.count; ++i, ++at)
            sums[static_cast<size_t>(at / (length / members))] += pairs[static_cast<size_t>(i)];
    return sums;
}

double largest_share(std::span<const TokenRun> runs, int64_t members, std::span<const int32_t> documents) {
    const std::vector<int64_t> pairs = pairs_of_members(runs, members, documents);
    const int64_t all = std::accumulate(pairs.begin(), pairs.end(), int64_t{0});
    if (all == 0) return 1;
    return static_cast<double>(std::ranges::max(pairs)) * static_cast<double>(members) / static_cast<double>(all);
}

std::string work_text(const TokenOrder& order, int64_t length, std::span<const int32_t> documents) {
    const auto share = [&](const TokenOrder& of) {
        return largest_share(token_runs(of, length, documents), order.members, documents);
    };
    return fmt::format("the busiest rank has {:.3f} times the mean number of query-key pairs (natural: {:.3f})",
                       share(order), share({}));
}

}  // namespace orrery
