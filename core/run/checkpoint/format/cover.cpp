#include "run/checkpoint/format/cover.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "run/checkpoint/format/rank_index.h"

namespace orrery {

namespace {

/// Reads a rank's index object from the store; "" if the rank wrote no index.
std::string text_of(CheckpointStore& store, int64_t step, const std::string& key) {
    const int64_t size = store.size(step, key);
    if (size > Manifest::longest)
        throw Damaged(fmt::format("step {}, {} has {} bytes, more than the maximum", step, key, size));
    std::string text(static_cast<size_t>(std::max<int64_t>(size, 0)), '\0');
    if (size > 0) store.get(step, key, 0, std::as_writable_bytes(std::span(text)));
    return text;
}

RankIndex parsed(const std::string& text, int64_t step, int64_t rank) {
    RankIndex index = RankIndex::parse(text);
    if (index.step != step || index.rank != rank)
        throw Error(fmt::format("{} is of step {} and rank {}", RankIndex::key(rank), index.step, index.rank));
    return index;
}

}  // namespace

void check_shared(CheckpointStore& store, int64_t step, std::span<const StateValue> state,
                  const std::vector<Share>& shares, const Mesh& mesh, int64_t rank, AxisId stage_axis) {
    Manifest manifest;
    std::vector<Wanted> wanted;
    std::set<std::string> seen;  // groups of ranks (Share::holders) that are in `ranks`, so that each is added once
    std::set<int64_t> ranks;
    for (size_t i = 0; i < state.size(); ++i) {
        if (!shares[i].first || shares[i].count == 1) continue;
        manifest.tensors.push_back({state[i].name, state[i].global});
        wanted.push_back({state[i].name, shares[i].local});
        if (!seen.insert(shares[i].holders).second) continue;
        const std::vector<int64_t> holders = holders_of(state[i], mesh, rank, stage_axis);
        ranks.insert(holders.begin(), holders.end());
    }
    if (wanted.empty()) return;
    std::vector<std::pair<int64_t, std::string>> texts;
    for (const int64_t one : ranks)
        if (std::string text = text_of(store, step, RankIndex::key(one)); !text.empty())
            texts.emplace_back(one, std::move(text));
    try {
        manifest.arrange();
        for (const auto& [one, text] : texts) {
            const RankIndex index = parsed(text, step, one);
            add_index(manifest, index, true);
        }
        manifest.check_cover(wanted);
    } catch (const Error& problem) {
        throw Damaged(fmt::format("step {}, indexes: {}", step, problem.what()));
    }
}

}  // namespace orrery
