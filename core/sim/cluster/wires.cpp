#include "sim/cluster/wires.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace orrery {

namespace {

/// Max number of links of a collective or message to simulate; of more links, the first ones and the busiest are.
constexpr size_t most_links = 64;

uint64_t hash_of(std::span<const int64_t> first, std::span<const int64_t> second) {
    uint64_t hash = 0xcbf29ce484222325;
    const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
    add(first.size());
    for (const int64_t rank : first) add(static_cast<uint64_t>(rank));
    for (const int64_t rank : second) add(static_cast<uint64_t>(rank));
    return hash;
}

}  // namespace

ClusterWires::ClusterWires(const Cluster& cluster, const Mesh& mesh, const Mapping& mapping, const Constants& constants,
                           const NcclSettings& settings)
    : cluster_(cluster),
      mesh_(mesh),
      mapping_(mapping),
      constants_(constants),
      settings_(settings),
      links_(cluster, constants) {
    for (const NodeKind& kind : cluster.kinds) {
        if (kind.scale_up.kind == ScaleUp::Kind::host)
            throw Error(
                fmt::format("node {} is a host: the speed of its transports is only known from measurements\n"
                            "  give a table of measured costs, or set a scale_up.kind with links",
                            kind.name));
    }
}

Demand ClusterWires::collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                                const std::vector<int64_t>& alike) {
    const Question question{static_cast<int>(opcode), axis, bytes, hash_of(group, alike)};
    const auto found = answers_.find(question);
    if (found != answers_.end()) return found->second;
    return answers_[question] = ask(opcode, axis, bytes, group, alike);
}

Demand ClusterWires::message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) {
    const int64_t ends[] = {from, to};
    const Question question{static_cast<int>(Opcode::send), axis, bytes, hash_of(ends, alike)};
    const auto found = answers_.find(question);
    if (found != answers_.end()) return found->second;
    return answers_[question] = ask_message(axis, bytes, from, to, alike);
}

GroupPlace ClusterWires::place(const std::vector<int64_t>& ranks) {
    std::vector<int64_t> slots;
    for (const int64_t rank : ranks) slots.push_back(mapping_.slot(rank));
    work_ += static_cast<int64_t>(ranks.size());
    return place_group(cluster_, slots);
}

void ClusterWires::load(Opcode opcode, int64_t bytes, const GroupPlace& group, const NcclChoice& choice,
                        LinkLoads& loads) {
    if (opcode == Opcode::all_to_all) return load_all_to_all(bytes, group, constants_, loads);
    load_links(opcode, bytes, group, choice, constants_, loads);
}

double ClusterWires::switches_s(const GroupPlace& group) const {
    if (group.domains.size() == 1) return 0;
    return links_.switches_s(group.domains.front().front(), group.domains.back().front());
}

Demand ClusterWires::ask(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                         const std::vector<int64_t>& alike) {
    Demand out;
    if (group.size() < 2 || bytes == 0) return out;
    const GroupPlace own = place(group);
    const bool messages = opcode == Opcode::all_to_all;
    const auto choice_of = [&](const GroupPlace& of) {
        return messages ? NcclChoice{} : choose(opcode, bytes, of.facts, settings_);
    };
    const NcclChoice choice = choice_of(own);
    LinkLoads alone(links_);
    load(opcode, bytes, own, choice, alone);
    out.how = messages ? "messages" : name_of(choice.algorithm, choice.protocol);
    const double switches = switches_s(own);
    out.fixed_s = messages ? fixed_all_to_all(own, switches)
                           : fixed_seconds(opcode, bytes, own, choice, constants_, alone.seconds(), switches);
    if (alike.size() <= group.size()) {
        answer(alone, alone, out);
        return out;
    }
    LinkLoads all = alone;
    std::vector<char> seen(static_cast<size_t>(mapping_.ranks()), 0);
    for (const int64_t rank : group) seen[static_cast<size_t>(rank)] = 1;
    for (const int64_t rank : alike) {
        if (seen[static_cast<size_t>(rank)]) continue;
        const std::vector<int64_t> other = mesh_.group(rank, axis);
        for (const int64_t member : other) seen[static_cast<size_t>(member)] = 1;
        const GroupPlace beside = place(other);
        load(opcode, bytes, beside, choice_of(beside), all);
    }
    answer(alone, all, out);
    return out;
}

Demand ClusterWires::ask_message(AxisId axis, int64_t bytes, int64_t from, int64_t to,
                                 const std::vector<int64_t>& alike) {
    Demand out;
    if (from == to || bytes == 0) return out;
    const auto send = [&](int64_t source, int64_t target, LinkLoads& loads) {
        const int64_t a = mapping_.slot(source), b = mapping_.slot(target);
        const bool same = cluster_.place(a).domain == cluster_.place(b).domain;
        const GroupPlace pair = place({source, target});
        load_message(bytes, a, b, same, link_reached(pair.facts, constants_), loads);
        if (source != from || target != to) return;
        out.how = same ? "scale-up" : "NIC";
        out.fixed_s = fixed_message(pair.facts, same, links_.switches_s(a, b));
    };
    LinkLoads alone(links_);
    send(from, to, alone);
    LinkLoads all = alone;
    const int64_t size = mesh_.size(axis);
    const int64_t step = (mesh_.member(to, axis) - mesh_.member(from, axis) + size) % size;
    for (const int64_t rank : alike) {
        if (rank == from) continue;
        const std::vector<int64_t> line = mesh_.group(rank, axis);
        const int64_t partner = line[static_cast<size_t>((mesh_.member(rank, axis) + step) % size)];
        if (partner != rank) send(rank, partner, all);
    }
    answer(alone, all, out);
    return out;
}

void ClusterWires::answer(const LinkLoads& own, const LinkLoads& all, Demand& demand) const {
    std::vector<ResourceId> ids = own.touched();
    if (ids.size() > most_links) {
        // Retains the first members' links, which other traffic may share, and the busiest, which sets the time.
        const auto busier = [&](ResourceId a, ResourceId b) { return all.seconds(a) < all.seconds(b); };
        const ResourceId busiest = *std::ranges::max_element(ids, busier);
        ids.resize(most_links);
        if (std::ranges::find(ids, busiest) == ids.end()) ids.push_back(busiest);
    }
    for (const ResourceId id : ids) demand.loads.push_back({id, all.amount(id)});
}

}  // namespace orrery
