#include "tokenizer/bpe/merge.h"

#include <algorithm>
#include <cstdint>
#include <functional>

namespace orrery::tokenizer {

void Merger::merge(const BpeModel& model, std::vector<int32_t>& ids) {
    constexpr size_t longest_short = 64;
    if (ids.size() < 2) return;
    if (ids.size() <= longest_short)
        merge_short(model, ids);
    else
        merge_long(model, ids);
}

void Merger::merge_short(const BpeModel& model, std::vector<int32_t>& ids) {
    constexpr int32_t none = INT32_MAX;
    ranks_.assign(ids.size(), none);
    joined_.resize(ids.size());
    const auto look = [&](size_t at) {
        const PairTable::Entry* entry = model.merge_of(ids[at], ids[at + 1]);
        ranks_[at] = entry ? entry->rank : none;
        joined_[at] = entry ? entry->id : 0;
    };
    size_t count = ids.size();
    for (size_t i = 0; i + 1 < count; ++i) look(i);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; ++i)
            if (ranks_[i] < ranks_[best]) best = i;
        if (ranks_[best] == none) break;
        ids[best] = joined_[best];
        for (size_t i = best + 1; i + 1 < count; ++i) {
            ids[i] = ids[i + 1];
            ranks_[i] = ranks_[i + 1];
            joined_[i] = joined_[i + 1];
        }
        --count;
        ranks_[count - 1] = none;
        if (best > 0) look(best - 1);
        if (best + 1 < count) look(best);
    }
    ids.resize(count);
}

void Merger::offer(const BpeModel& model, int32_t at) {
    const Symbol& left = symbols_[static_cast<size_t>(at)];
    if (left.after < 0) return;
    const PairTable::Entry* entry = model.merge_of(left.id, symbols_[static_cast<size_t>(left.after)].id);
    if (!entry) return;
    heap_.push_back({entry->rank, at, entry->id});
}

void Merger::merge_long(const BpeModel& model, std::vector<int32_t>& ids) {
    const auto count = static_cast<int32_t>(ids.size());
    const auto symbol = [&](int32_t at) -> Symbol& { return symbols_[static_cast<size_t>(at)]; };
    symbols_.resize(ids.size());
    heap_.clear();
    for (int32_t i = 0; i < count; ++i) symbol(i) = {ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
    for (int32_t i = 0; i < count; ++i) offer(model, i);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto push = [&](int32_t at) {
        const size_t before = heap_.size();
        offer(model, at);
        if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    };
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        const Candidate top = heap_.back();
        heap_.pop_back();
        Symbol& left = symbol(top.at);
        if (left.gone || left.after < 0) continue;
        // Skips an outdated candidate: the tokens of its pair have changed since.
        const PairTable::Entry* entry = model.merge_of(left.id, symbol(left.after).id);
        if (!entry || entry->id != top.id) continue;
        Symbol& right = symbol(left.after);
        left.id = top.id;
        left.after = right.after;
        right.gone = true;
        if (left.after >= 0) symbol(left.after).before = top.at;
        if (left.before >= 0) push(left.before);
        push(top.at);
    }
    size_t kept = 0;
    for (const Symbol& each : symbols_)
        if (!each.gone) ids[kept++] = each.id;
    ids.resize(kept);
}

}  // namespace orrery::tokenizer
