// The chunk tables of the built-in all_reduce algorithms.
#include <algorithm>
#include <map>

#include "plan/chunks/chunks.h"

namespace orrery {

namespace {

using Kind = ChunkMove::Kind;

class Writer {
public:
    Writer(std::string name, int members, int chunks) {
        table_.name = std::move(name);
        table_.members = members;
        table_.chunks = chunks;
    }
    void move(Kind kind, int chunk, int from, int to) {
        table_.moves.push_back({kind, step_, chunk, from, to, {}});
        used_ = true;
    }
    void range(Kind kind, int first, int count, int from, int to) {
        for (int c = first; c < first + count; ++c) move(kind, c, from, to);
    }
    void next() {
        step_ += used_;
        used_ = false;
    }
    ChunkTable done() { return std::move(table_); }

private:
    ChunkTable table_;
    int step_ = 0;
    bool used_ = false;
};

int power_below(int n) {
    int p = 1;
    while (2 * p <= n) p *= 2;
    return p;
}

}  // namespace

/// A ring: member r sends to r + 1. In step s of the first half it sends chunk r - s, which the receiver adds; in step
/// s of the second half it sends chunk r + 1 - s, which is complete.
ChunkTable ring_table(int members) {
    Writer w("ring", members, members);
    const auto wrap = [&](int i) { return ((i % members) + members) % members; };
    for (const Kind kind : {Kind::reduce, Kind::copy})
        for (int s = 0; s < members - 1; ++s, w.next())
            for (int r = 0; r < members; ++r)
                w.move(kind, wrap(kind == Kind::reduce ? r - s : r + 1 - s), r, wrap(r + 1));
    return w.done();
}

/// Recursive doubling: for each bit, members with indices that differ only in it exchange partial sums. Members beyond
/// the largest power of two first send theirs to a partner, which sends them the result at the end.
ChunkTable recursive_doubling_table(int members) {
    Writer w("recursive_doubling", members, 1);
    const int core = power_below(members);
    for (int r = core; r < members; ++r) w.move(Kind::reduce, 0, r, r - core);
    w.next();
    for (int bit = 1; bit < core; bit *= 2, w.next())
        for (int r = 0; r < core; ++r) w.move(Kind::reduce, 0, r, r ^ bit);
    for (int r = core; r < members; ++r) w.move(Kind::copy, 0, r - core, r);
    return w.done();
}

/// Halving: partners at distance d, d/2, ... 1 each reduce half of the chunks. Doubling: they exchange the results.
ChunkTable halving_doubling_table(int members) {
    const int core = power_below(members);
    Writer w("halving_doubling", members, core);
    for (int r = core; r < members; ++r) w.range(Kind::reduce, 0, core, r, r - core);
    w.next();
    for (int d = core / 2; d >= 1; d /= 2, w.next())
        for (int r = 0; r < core; ++r) w.range(Kind::reduce, (r ^ d) / d * d, d, r, r ^ d);
    for (int d = 1; d < core; d *= 2, w.next())
        for (int r = 0; r < core; ++r) w.range(Kind::copy, r / d * d, d, r, r ^ d);
    for (int r = core; r < members; ++r) w.range(Kind::copy, 0, core, r - core, r);
    return w.done();
}

/// A binomial tree: reduces along it to member 0, then broadcasts back.
ChunkTable tree_table(int members) {
    Writer w("tree", members, 1);
    int bit = 1;
    for (; bit < members; bit *= 2, w.next())
        for (int r = bit; r < members; r += 2 * bit) w.move(Kind::reduce, 0, r, r - bit);
    for (bit /= 2; bit >= 1; bit /= 2, w.next())
        for (int r = bit; r < members; r += 2 * bit) w.move(Kind::copy, 0, r - bit, r);
    return w.done();
}

namespace {

/// All-reduce over hosts of equal size: member j of each reduces part j in its host, then in a ring over the hosts.
ChunkTable even_hosts(const std::vector<std::vector<int>>& hosts, int members) {
    const int count = std::ssize(hosts), local = hosts[0].size();
    Writer w("hierarchical", members, local * count);
    const auto at = [&](int host, int j) { return hosts[host][j]; };
    const auto inside = [&](Kind kind) {
        for (int t = 1; t < local; ++t, w.next())
            for (int h = 0; h < count; ++h)
                for (int j = 0; j < local; ++j) {
                    const int other = (j + t) % local, part = kind == Kind::reduce ? other : j;
                    w.range(kind, part * count, count, at(h, j), at(h, other));
                }
    };
    inside(Kind::reduce);
    const ChunkTable ring = ring_table(count);
    for (int s = 0; s < 2 * (count - 1); ++s, w.next())
        for (int j = 0; j < local; ++j)
            for (const ChunkMove& m : ring.moves)
                if (m.step == s) w.move(m.kind, j * count + m.chunk, at(m.from, j), at(m.to, j));
    inside(Kind::copy);
    return w.done();
}

/// All-reduce over hosts of different sizes: each host reduces to one member; these all-reduce, and each broadcasts.
ChunkTable uneven_hosts(const std::vector<std::vector<int>>& hosts, int members) {
    Writer w("hierarchical", members, 1);
    size_t most = 0;
    for (const auto& host : hosts) most = std::max(most, host.size());
    const auto inside = [&](const std::vector<ChunkMove>& moves, Kind kind) {
        for (const ChunkMove& m : moves) {
            if (m.kind != kind) continue;
            for (const auto& host : hosts)
                if (std::max(m.from, m.to) < std::ssize(host)) w.move(kind, 0, host[m.from], host[m.to]);
        }
    };
    const ChunkTable tree = tree_table(most);
    const auto steps = [](const ChunkTable& t, int s) {
        std::vector<ChunkMove> moves;
        for (const ChunkMove& m : t.moves)
            if (m.step == s) moves.push_back(m);
        return moves;
    };
    const int up_and_down = tree.moves.empty() ? 0 : tree.moves.back().step + 1;
    for (int s = 0; s < up_and_down; ++s, w.next()) inside(steps(tree, s), Kind::reduce);
    const ChunkTable between = recursive_doubling_table(hosts.size());
    int step = 0;
    for (const ChunkMove& m : between.moves) {
        if (m.step != step) w.next();
        step = m.step;
        w.move(m.kind, 0, hosts[m.from][0], hosts[m.to][0]);
    }
    w.next();
    for (int s = 0; s < up_and_down; ++s, w.next()) inside(steps(tree, s), Kind::copy);
    return w.done();
}

}  // namespace

ChunkTable hierarchical_table(const std::vector<int>& host_of) {
    std::map<int, std::vector<int>> by_host;
    for (size_t member = 0; member < host_of.size(); ++member) by_host[host_of[member]].push_back(member);
    std::vector<std::vector<int>> hosts;
    for (auto& [host, members] : by_host) hosts.push_back(std::move(members));
    const bool even =
        std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host.size() == hosts[0].size(); });
    const int members = host_of.size();
    return even ? even_hosts(hosts, members) : uneven_hosts(hosts, members);
}

}  // namespace orrery
