// Proves that every chunk receives each contribution exactly once, and that every member finishes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "plan/chunks/chunks.h"
#include "plan/replay/replay.h"

namespace orrery {

namespace {

using Kind = ChunkMove::Kind;

class Contributions {
public:
    explicit Contributions(const ChunkTable& table)
        : table_(table),
          words_((table.members + 63) / 64),
          state_(static_cast<size_t>(table.members) * table.chunks * words_),
          sum_(static_cast<size_t>(table.members) * table.chunks),
          writer_(sum_.size(), nullptr),
          orders_(orders_of(table)) {
        for (int m = 0; m < table.members; ++m)
            for (int c = 0; c < table.chunks; ++c) {
                if (table.collective == Opcode::all_gather && owner(c) != m) continue;
                of(m, c)[m / 64] |= uint64_t{1} << m % 64;
                sum_[place(m, c)] = mixed(static_cast<uint64_t>(m) + 1);
            }
    }

    void run() {
        const auto& moves = table_.moves;
        for (size_t begin = 0, end; begin < moves.size(); begin = end) {
            for (end = begin; end < moves.size() && moves[end].step == moves[begin].step; ++end) legal(moves[end]);
            if (end < moves.size() && moves[end].step < moves[begin].step)
                throw Error(moves[end].origin, title() + ": its steps are out of order");
            races(begin, end);
            step(begin, end);
        }
        complete();
    }

private:
    using Word = uint64_t;
    std::string title() const { return fmt::format("collective {} ({})", table_.name, name_of(table_.collective)); }
    int owner(int chunk) const { return chunk / (table_.chunks / table_.members); }
    size_t place(int member, int chunk) const { return static_cast<size_t>(member) * table_.chunks + chunk; }
    Word* of(int member, int chunk) { return state_.data() + place(member, chunk) * words_; }
    std::string at(const ChunkMove& m) const {
        return fmt::format("{}, step {}: {} of chunk {} from rank {} to rank {}", title(), m.step,
                           m.kind == Kind::copy ? "copy" : "reduce", m.chunk, m.from, m.to);
    }

    static uint64_t mixed(uint64_t x) {
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ x >> 27) * 0x94d049bb133111ebull;
        return x ^ x >> 31;
    }
    /// The hash of a sum, given those of its terms. Symmetric, like addition of floats, but not associative.
    static uint64_t added(uint64_t a, uint64_t b) { return mixed(mixed(std::min(a, b)) * 3 + std::max(a, b)); }

    void legal(const ChunkMove& m) const {
        const auto inside = [&](int rank) { return rank >= 0 && rank < table_.members; };
        if (!inside(m.from) || !inside(m.to) || m.from == m.to)
            throw Error(m.origin,
                        fmt::format("{}: expected two different ranks from 0 to {}", at(m), table_.members - 1));
        if (m.chunk < 0 || m.chunk >= table_.chunks)
            throw Error(m.origin, fmt::format("{}: expected a chunk from 0 to {}", at(m), table_.chunks - 1));
        if (m.kind == Kind::reduce && table_.collective == Opcode::all_gather)
            throw Error(m.origin, at(m) + ": all_gather adds nothing; use copy");
    }

    /// Checks that no copy of a step hits a chunk that the step sends or writes, since copies take effect on arrival.
    void races(size_t begin, size_t end) const {
        std::map<std::pair<int, int>, const ChunkMove*> sent, copied, reduced;
        for (size_t i = begin; i < end; ++i) {
            const ChunkMove& m = table_.moves[i];
            sent.emplace(std::pair(m.from, m.chunk), &m);
            auto& written = m.kind == Kind::copy ? copied : reduced;
            const bool again = !written.emplace(std::pair(m.to, m.chunk), &m).second;
            if (again && m.kind == Kind::copy) race(m, *copied.at({m.to, m.chunk}), "both write it");
        }
        for (const auto& [place, copy] : copied) {
            if (const auto other = sent.find(place); other != sent.end())
                race(*copy, *other->second, fmt::format("rank {} sends it in the same step", place.first));
            if (const auto other = reduced.find(place); other != reduced.end())
                race(*copy, *other->second, "both write it");
        }
    }

    [[noreturn]] void race(const ChunkMove& m, const ChunkMove& other, const std::string& why) const {
        throw Error(m.origin, fmt::format("{}: a race with the {} from rank {} to rank {}{}: {}\n  put one of them in "
                                          "another step",
                                          at(m), other.kind == Kind::copy ? "copy" : "reduce", other.from, other.to,
                                          other.origin.line ? " of " + other.origin.text() : "", why));
    }

    void step(size_t begin, size_t end) {
        before_.clear();
        sums_before_.clear();
        in_order_.clear();
        for (size_t i = begin; i < end; ++i) {
            const ChunkMove& m = table_.moves[i];
            const Word* from = of(m.from, m.chunk);
            if (std::all_of(from, from + words_, [](Word w) { return w == 0; }))
                throw Error(m.origin, fmt::format("{}: rank {} does not have the chunk yet", at(m), m.from));
            before_.insert(before_.end(), from, from + words_);
            sums_before_.push_back(sum_[place(m.from, m.chunk)]);
            in_order_.push_back(i);
        }
        std::stable_sort(in_order_.begin(), in_order_.end(),
                         [&](size_t a, size_t b) { return orders_[a] < orders_[b]; });
        for (const size_t i : in_order_)
            land(table_.moves[i], before_.data() + (i - begin) * words_, sums_before_[i - begin]);
    }

    void land(const ChunkMove& m, const Word* from, uint64_t sum) {
        Word* to = of(m.to, m.chunk);
        const bool reduces = m.kind == Kind::reduce;
        for (size_t w = 0; w < words_; ++w) {
            if (reduces && (to[w] & from[w]) != 0) twice(m, w, to[w] & from[w]);
            to[w] = reduces ? to[w] | from[w] : from[w];
        }
        uint64_t& mine = sum_[place(m.to, m.chunk)];
        mine = reduces ? added(mine, sum) : sum;
        writer_[place(m.to, m.chunk)] = &m;
    }

    [[noreturn]] void twice(const ChunkMove& m, size_t word, Word both) const {
        int bit = 0;
        while (!(both >> bit & 1)) ++bit;
        throw Error(m.origin, fmt::format("{}: adds the part of rank {} twice: both ranks have it already", at(m),
                                          static_cast<int>(word) * 64 + bit));
    }

    void complete() {
        for (int m = 0; m < table_.members; ++m)
            for (int c = 0; c < table_.chunks; ++c) {
                if (table_.collective == Opcode::reduce_scatter && owner(c) != m) continue;
                for (int r = 0; r < table_.members; ++r) {
                    const bool has = of(m, c)[r / 64] >> r % 64 & 1;
                    const bool wanted = table_.collective != Opcode::all_gather || owner(c) == r;
                    if (has != wanted) missing(m, c, r);
                }
                if (table_.collective == Opcode::all_reduce && sum_[place(m, c)] != sum_[place(0, c)]) differs(m, c);
            }
    }

    [[noreturn]] void differs(int member, int chunk) const {
        const ChunkMove* last = writer_[place(member, chunk)];
        throw Error(last ? last->origin : table_.origin,
                    fmt::format("{}: rank {} adds chunk {} in another order than rank 0, so that the bits differ",
                                title(), member, chunk));
    }

    [[noreturn]] void missing(int member, int chunk, int contributor) const {
        const ChunkMove* last = writer_[place(member, chunk)];
        const std::string found = last ? fmt::format("last written in step {} by the {} from rank {}", last->step,
                                                     last->kind == Kind::copy ? "copy" : "reduce", last->from)
                                       : "never written";
        throw Error(
            last ? last->origin : table_.origin,
            fmt::format("{}: chunk {} of rank {} is incomplete: the part of rank {} is missing; the chunk is {}",
                        title(), chunk, member, contributor, found));
    }

    const ChunkTable& table_;
    const size_t words_;
    std::vector<Word> state_;    ///< [member][chunk]: contributors, one bit each
    std::vector<uint64_t> sum_;  ///< [member][chunk]: hash of the contributors and the order in which they were added
    std::vector<const ChunkMove*> writer_;
    const std::vector<int> orders_;
    std::vector<Word> before_;  ///< by move of the step: contributors of its chunk at the sender before the step
    std::vector<uint64_t> sums_before_;
    std::vector<size_t> in_order_;
};

/// Replays all messages as the runtime sends them, to find deadlocks: a wave starts when the previous one is complete.
class Progress final : public ReplayPolicy {
public:
    Progress(const ChunkTable& table, const TransportContract& contract) : table_(table), contract_(contract) {
        for (int m = 0; m < table.members; ++m) add_member(m);
    }

    void run() {
        Replay replay(view_, *this);
        replay.run();
        for (int m = 0; m < table_.members; ++m)
            for (int i = view_.begin(m); i < view_.end(m); ++i)
                if (!replay.done(i)) explain(replay);
    }

private:
    void add_member(int me) {
        view_.add_actor();
        lists_.push_back(messages_of(table_, me));
        const std::vector<ChunkMessage>& list = lists_.back();
        std::map<std::pair<int, int>, int> lanes;
        std::vector<int> before, wave;
        for (size_t i = 0; i < list.size(); ++i) {
            const ChunkMessage& m = list[i];
            if (i > 0 && (m.step != list[i - 1].step || m.wave != list[i - 1].wave)) before = std::exchange(wave, {});
            ReplayItem item;
            item.kind = m.sends ? ReplayItem::Kind::send : ReplayItem::Kind::receive;
            item.lane = lane_of(m, lanes);
            item.channel = m.sends ? channel(me, m.peer) : channel(m.peer, me);
            item.source = i;
            wave.push_back(view_.add(item, {}, wave.empty() ? before : std::vector<int>{}));
        }
    }

    int lane_of(const ChunkMessage& m, std::map<std::pair<int, int>, int>& lanes) const {
        if (contract_.groups_messages()) return none;
        const bool by_peer = contract_.lanes != TransportContract::Lanes::communicator;
        const bool by_direction = contract_.lanes == TransportContract::Lanes::peer_and_direction;
        const std::pair key{by_peer ? m.peer : none, by_direction ? static_cast<int>(m.sends) : none};
        return lanes.try_emplace(key, lanes.size()).first->second;
    }

    /// The channel from one member to another. A slot is always free, as a wave sends at most once per peer.
    int channel(int from, int to) {
        const auto [place, fresh] = channels_.try_emplace({from, to}, view_.channels.size());
        if (fresh) view_.add_channel(contract_.sends_done_unmet() > 0 ? std::numeric_limits<int>::max() : 0);
        return place->second;
    }

    const ChunkMessage& message(int item) const {
        const ReplayItem& i = view_.at(item);
        return lists_[i.actor][i.source];
    }

    [[noreturn]] void explain(const Replay& replay) const {
        std::string text;
        Origin origin;
        int shown = 0;
        for (int me = 0; me < table_.members && shown < 8; ++me)
            for (int i = view_.begin(me); i < view_.end(me); ++i) {
                if (!replay.started(i) || replay.done(i)) continue;
                const ChunkMessage& w = message(i);
                if (shown++ == 0) origin = w.origin;
                text += fmt::format("\n  rank {} in step {}: {} chunk {} {} rank {}", me, w.step,
                                    w.sends ? "sends" : "receives", w.first, w.sends ? "to" : "from", w.peer);
                break;
            }
        throw Error(origin,
                    fmt::format("collective {}: deadlock, it never ends under {}; these ranks wait for each other:{}",
                                table_.name, contract_.text(), text));
    }

    const ChunkTable& table_;
    const TransportContract& contract_;
    std::vector<std::vector<ChunkMessage>> lists_;
    std::map<std::pair<int, int>, int> channels_;
    ReplayView view_;
};

}  // namespace

void prove(const ChunkTable& table) {
    const auto refuse = [&](const std::string& why) {
        throw Error(table.origin, fmt::format("collective {} ({}): {}", table.name, name_of(table.collective), why));
    };
    if (table.collective != Opcode::all_reduce && table.collective != Opcode::all_gather &&
        table.collective != Opcode::reduce_scatter)
        refuse("unsupported; only all_reduce, all_gather and reduce_scatter can be made of chunks");
    if (table.members < 1 || table.chunks < 1) refuse("expected at least one chunk");
    if (table.collective != Opcode::all_reduce && table.chunks % table.members != 0)
        refuse(fmt::format("{} chunks are not divisible by {} ranks", table.chunks, table.members));
    const double bits = static_cast<double>(table.members) * table.members * table.chunks;
    if (bits > 8e9)
        refuse(
            fmt::format("{} chunks on {} ranks are too many to verify; use fewer chunks", table.chunks, table.members));
    Contributions(table).run();
}

void prove_progress(const ChunkTable& table, const TransportContract& contract) { Progress(table, contract).run(); }

}  // namespace orrery
