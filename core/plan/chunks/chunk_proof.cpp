// Does every chunk end with each contributor exactly once, and does everybody get to the end?
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "plan/chunks/chunks.h"

namespace orrery {

namespace {

using Kind = ChunkMove::Kind;

class Contributions {
public:
    explicit Contributions(const ChunkTable& table)
        : table_(table),
          words_(static_cast<size_t>(table.members + 63) / 64),
          state_(static_cast<size_t>(table.members) * static_cast<size_t>(table.chunks) * words_),
          sum_(static_cast<size_t>(table.members) * static_cast<size_t>(table.chunks)),
          writer_(sum_.size(), nullptr),
          orders_(orders_of(table)) {
        for (int m = 0; m < table.members; ++m)
            for (int c = 0; c < table.chunks; ++c) {
                if (table.collective == Opcode::all_gather && owner(c) != m) continue;
                of(m, c)[static_cast<size_t>(m) / 64] |= uint64_t{1} << m % 64;
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
    size_t place(int member, int chunk) const {
        return static_cast<size_t>(member) * static_cast<size_t>(table_.chunks) + static_cast<size_t>(chunk);
    }
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
    /// A sum of two, whichever comes first: a + b has the bits of b + a, but (a + b) + c not those of a + (b + c).
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

    /// A copy lands as it comes: it must not fall on a chunk that is sent or written in the same step.
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
                throw Error(m.origin, fmt::format("{}: rank {} does not have that chunk yet", at(m), m.from));
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
        throw Error(m.origin, fmt::format("{}: counts rank {}'s part twice: both have it already", at(m),
                                          static_cast<int>(word) * 64 + bit));
    }

    void complete() {
        for (int m = 0; m < table_.members; ++m)
            for (int c = 0; c < table_.chunks; ++c) {
                if (table_.collective == Opcode::reduce_scatter && owner(c) != m) continue;
                for (int r = 0; r < table_.members; ++r) {
                    const bool has = of(m, c)[static_cast<size_t>(r) / 64] >> r % 64 & 1;
                    const bool wanted = table_.collective != Opcode::all_gather || owner(c) == r;
                    if (has != wanted) missing(m, c, r);
                }
                if (table_.collective == Opcode::all_reduce && sum_[place(m, c)] != sum_[place(0, c)]) differs(m, c);
            }
    }

    [[noreturn]] void differs(int member, int chunk) const {
        const ChunkMove* last = writer_[place(member, chunk)];
        throw Error(last ? last->origin : table_.origin,
                    fmt::format("{}: rank {} adds chunk {} in another order than rank 0, so that their bits differ",
                                title(), member, chunk));
    }

    [[noreturn]] void missing(int member, int chunk, int contributor) const {
        const ChunkMove* last = writer_[place(member, chunk)];
        const std::string found = last ? fmt::format("last written in step {} by the {} from rank {}", last->step,
                                                     last->kind == Kind::copy ? "copy" : "reduce", last->from)
                                       : "never written";
        throw Error(last ? last->origin : table_.origin,
                    fmt::format("{}: chunk {} of rank {} ends without rank {}'s part; it is {}", title(), chunk, member,
                                contributor, found));
    }

    const ChunkTable& table_;
    const size_t words_;
    std::vector<Word> state_;    ///< [member][chunk]: who contributed
    std::vector<uint64_t> sum_;  ///< [member][chunk]: names the order of its additions
    std::vector<const ChunkMove*> writer_;
    const std::vector<int> orders_;
    std::vector<Word> before_;  ///< of the step's moves: what they carry
    std::vector<uint64_t> sums_before_;
    std::vector<size_t> in_order_;
};

/// One greedy run of all members, as the runtime does it. Messages pair by (step, wave), so it decides.
class Progress {
public:
    Progress(const ChunkTable& table, const TransportContract& contract) : table_(table), contract_(contract) {
        for (int m = 0; m < table.members; ++m) members_.push_back({messages_of(table, m), 0, {}});
    }

    void run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (int m = 0; m < table_.members; ++m) moved |= advance(m);
        }
        for (int m = 0; m < table_.members; ++m)
            if (members_[static_cast<size_t>(m)].next < members_[static_cast<size_t>(m)].list.size()) explain();
    }

private:
    enum class Stand : uint8_t { waits, posted, done };
    struct Member {
        std::vector<ChunkMessage> list;
        size_t next;               ///< first message of the wave at hand
        std::vector<Stand> stand;  ///< of the wave's messages
    };
    using Key = std::tuple<int, int, int, int>;  // from, to, step, wave

    size_t wave_end(const Member& m) const {
        size_t end = m.next;
        while (end < m.list.size() && m.list[end].step == m.list[m.next].step &&
               m.list[end].wave == m.list[m.next].wave)
            ++end;
        return end;
    }

    /// Is an earlier message of the wave in the lane's way?
    bool blocked(const Member& m, size_t i) const {
        if (contract_.send == TransportContract::Send::grouped) return false;
        for (size_t j = m.next; j < i; ++j) {
            if (m.stand[j - m.next] == Stand::done) continue;
            const bool peer = m.list[j].peer == m.list[i].peer, way = m.list[j].sends == m.list[i].sends;
            if (contract_.lanes == TransportContract::Lanes::communicator) return true;
            if (contract_.lanes == TransportContract::Lanes::peer && peer) return true;
            if (contract_.lanes == TransportContract::Lanes::peer_and_direction && peer && way) return true;
        }
        return false;
    }

    bool advance(int me) {
        Member& m = members_[static_cast<size_t>(me)];
        bool moved = false;
        while (m.next < m.list.size()) {
            const size_t end = wave_end(m);
            m.stand.resize(end - m.next, Stand::waits);
            bool all = true;
            for (size_t i = m.next; i < end; ++i) moved |= look(me, m, i, all);
            if (!all) return moved;
            m.next = end;
            m.stand.clear();
            moved = true;
        }
        return moved;
    }

    bool look(int me, Member& m, size_t i, bool& all) {
        Stand& stand = m.stand[i - m.next];
        const ChunkMessage& message = m.list[i];
        const Stand before = stand;
        const Key key = message.sends ? Key{me, message.peer, message.step, message.wave}
                                      : Key{message.peer, me, message.step, message.wave};
        if (stand == Stand::waits && !blocked(m, i)) {
            stand = Stand::posted;
            (message.sends ? sent_ : received_)[key] = true;
        }
        const auto& other = message.sends ? received_ : sent_;
        const bool buffered = message.sends && contract_.send == TransportContract::Send::buffered &&
                              contract_.slots > 0;  // one message per peer and direction is under way at most
        if (stand == Stand::posted && (buffered || other.contains(key))) stand = Stand::done;
        all = all && stand == Stand::done;
        return stand != before;
    }

    [[noreturn]] void explain() const {
        std::string text;
        Origin origin;
        int shown = 0;
        for (int me = 0; me < table_.members && shown < 8; ++me) {
            const Member& m = members_[static_cast<size_t>(me)];
            for (size_t i = m.next; i < m.list.size() && i - m.next < m.stand.size(); ++i) {
                if (m.stand[i - m.next] != Stand::posted) continue;
                const ChunkMessage& w = m.list[i];
                if (shown++ == 0) origin = w.origin;
                text += fmt::format("\n  rank {} in step {}: {} chunk {} {} rank {}", me, w.step,
                                    w.sends ? "sends" : "receives", w.first, w.sends ? "to" : "from", w.peer);
                break;
            }
        }
        throw Error(origin, fmt::format("collective {}: deadlock, it never ends under {}; these wait for each other:{}",
                                        table_.name, contract_.text(), text));
    }

    const ChunkTable& table_;
    const TransportContract& contract_;
    std::vector<Member> members_;
    std::map<Key, bool> sent_, received_;
};

}  // namespace

void prove(const ChunkTable& table) {
    const auto refuse = [&](const std::string& why) {
        throw Error(table.origin, fmt::format("collective {} ({}): {}", table.name, name_of(table.collective), why));
    };
    if (table.collective != Opcode::all_reduce && table.collective != Opcode::all_gather &&
        table.collective != Opcode::reduce_scatter)
        refuse("only all_reduce, all_gather and reduce_scatter are made of chunks");
    if (table.members < 1 || table.chunks < 1) refuse("expected at least one chunk");
    if (table.collective != Opcode::all_reduce && table.chunks % table.members != 0)
        refuse(fmt::format("{} chunks; expected a multiple of the {} ranks, whose blocks they are parts of",
                           table.chunks, table.members));
    const double bits = static_cast<double>(table.members) * table.members * table.chunks;
    if (bits > 8e9) refuse(fmt::format("{} chunks on {} ranks are too many to prove", table.chunks, table.members));
    Contributions(table).run();
}

void prove_progress(const ChunkTable& table, const TransportContract& contract) { Progress(table, contract).run(); }

}  // namespace orrery
