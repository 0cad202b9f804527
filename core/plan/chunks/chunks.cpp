#include "plan/chunks/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "orrery/p2p.h"

namespace orrery {

bool ChunkMove::operator==(const ChunkMove& o) const {
    return kind == o.kind && step == o.step && chunk == o.chunk && from == o.from && to == o.to;
}

std::pair<int64_t, int64_t> ChunkTable::range(int64_t count, int chunk) const {
    if (collective == Opcode::all_reduce) {
        const Part block = part_of(count, chunks, chunk);
        return {block.begin, block.count};
    }
    const int parts = chunks / members;
    const int64_t block = count / members;
    const Part part = part_of(block, parts, chunk % parts);
    return {chunk / parts * block + part.begin, part.count};
}

std::string ChunkTable::text() const {
    std::string all = fmt::format("{} {} of {} members, {} chunks\n", name, name_of(collective), members, chunks);
    for (const ChunkMove& m : moves)
        all += fmt::format("{} {} chunk {}: {} -> {}\n", m.step, m.kind == ChunkMove::Kind::copy ? "copy" : "reduce",
                           m.chunk, m.from, m.to);
    return all;
}

namespace {

/// A message of a chunk table: adjacent chunks of one step from one member to another, all copied or all added.
struct Run {
    int step, from, to, first, count, wave;
    bool reduces;
    Origin origin;
};

std::vector<Run> runs_of(const ChunkTable& table, std::vector<int>* run_of_move = nullptr) {
    std::vector<Run> runs;
    std::map<std::tuple<int, int, bool>, size_t> last;
    std::map<std::pair<int, int>, int> waves;
    int step = -1;
    for (const ChunkMove& m : table.moves) {
        if (m.step != step) {
            last.clear();
            waves.clear();
            step = m.step;
        }
        const bool reduces = m.kind == ChunkMove::Kind::reduce;
        const auto found = last.find({m.from, m.to, reduces});
        if (found != last.end() && runs[found->second].first + runs[found->second].count == m.chunk) {
            ++runs[found->second].count;
            if (run_of_move) run_of_move->push_back(static_cast<int>(found->second));
            continue;
        }
        last[{m.from, m.to, reduces}] = runs.size();
        if (run_of_move) run_of_move->push_back(runs.size());
        runs.push_back({m.step, m.from, m.to, m.chunk, 1, waves[{m.from, m.to}]++, reduces, m.origin});
    }
    return runs;
}

}  // namespace

std::vector<int> orders_of(const ChunkTable& table) {
    std::vector<int> orders;
    orders.reserve(table.moves.size());
    runs_of(table, &orders);
    return orders;
}

std::vector<ChunkMessage> messages_of(const ChunkTable& table, int member) {
    std::vector<ChunkMessage> messages;
    std::map<std::pair<int, int>, int> busy;  // by (step, chunk): how often the member sends the chunk or adds to it
    int order = -1;
    for (const Run& r : runs_of(table)) {
        ++order;
        if (r.from != member && r.to != member) continue;
        const bool sends = r.from == member;
        messages.push_back({r.step, r.wave, sends ? r.to : r.from, sends, !sends && r.reduces, false, r.first, r.count,
                            order, r.origin});
        for (int c = 0; (sends || r.reduces) && c < r.count; ++c) ++busy[{r.step, r.first + c}];
    }
    for (ChunkMessage& m : messages)
        for (int c = 0; m.reduces && c < m.count; ++c) m.staged = m.staged || busy[{m.step, m.first + c}] > 1;
    std::stable_sort(messages.begin(), messages.end(), [](const ChunkMessage& a, const ChunkMessage& b) {
        return std::tuple(a.step, a.wave, !a.sends) < std::tuple(b.step, b.wave, !b.sends);
    });
    return messages;
}

ChunkCost cost(const ChunkTable& table) {
    std::vector<int64_t> messages(table.members), chunks(messages);
    ChunkCost cost;
    cost.of = table.chunks;
    int step = -1;
    for (const Run& r : runs_of(table)) {
        cost.steps += r.step != step;
        step = r.step;
        ++messages[r.from];
        chunks[r.from] += r.count;
    }
    cost.messages = *std::max_element(messages.begin(), messages.end());
    cost.chunks = *std::max_element(chunks.begin(), chunks.end());
    return cost;
}

std::string ChunkCost::text() const {
    return fmt::format("{} steps, at most {} messages and {:.4g} S a rank", steps, messages,
                       static_cast<double>(chunks) / of);
}

}  // namespace orrery
