#include "collective/p2p_algorithms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery {

P2pCommunicator::Algorithms::Algorithms(P2pCommunicator& owner, P2pOptions options)
    : owner_(owner), options_(std::move(options)), wire_(owner) {
    const auto members = static_cast<size_t>(owner.group_.size());
    if (options_.hosts.size() != members) options_.hosts.assign(members, 0);
    std::map<int, size_t> on;
    for (const int host : options_.hosts) ++on[host];
    const size_t first = on.begin()->second;
    several_hosts_ = on.size() > 1 && first > 1 &&
                     std::all_of(on.begin(), on.end(), [&](const auto& host) { return host.second == first; });
}

std::string_view P2pCommunicator::Algorithms::by_size(int64_t bytes) const {
    const int members = owner_.group_.size();
    if (members == 2) return "ring";
    if (bytes <= doubling_bytes) return "recursive_doubling";
    if (several_hosts_) return "hierarchical";
    const bool power = (members & (members - 1)) == 0;
    return power && bytes <= halving_bytes ? "halving_doubling" : "ring";
}

ChunkRunner* P2pCommunicator::Algorithms::all_reduce(int64_t bytes) {
    const std::string_view name =
        options_.all_reduce == "auto" ? by_size(bytes) : std::string_view(options_.all_reduce);
    if (name == "ring") return nullptr;
    if (const auto found = runners_.find(name); found != runners_.end()) return &found->second;
    const int members = owner_.group_.size();
    ChunkTable table = name == "recursive_doubling" ? recursive_doubling_table(members)
                       : name == "halving_doubling" ? halving_doubling_table(members)
                       : name == "tree"             ? tree_table(members)
                                                    : hierarchical_table(options_.hosts);
    ChunkRunner runner(std::move(table), owner_.group_.me, owner_.segment_bytes_, false);
    return &runners_.emplace(std::string(name), std::move(runner)).first->second;
}

bool P2pCommunicator::Algorithms::whole(int64_t bytes) const {
    return options_.all_reduce == "auto" && bytes <= whole_bytes;
}

bool P2pCommunicator::Algorithms::tree_broadcast(int64_t bytes) const {
    return options_.broadcast == "auto" ? bytes <= tree_bytes : options_.broadcast == "tree";
}

P2pOptions P2pOptions::read(Config& config, P2pOptions options) {
    const auto one_of = [&](const char* key, const std::string& usual, const std::vector<std::string>& names) {
        const std::string name = config.text(key, usual);
        if (std::find(names.begin(), names.end(), name) != names.end()) return name;
        throw Error(config.where(key),
                    fmt::format("{}.{} = \"{}\": expected {}", config.path(), key, name, fmt::join(names, ", ")));
    };
    const int64_t kib = config.integer("segment_kib", options.segment_bytes >> 10);
    if (kib < whole_bytes >> 10 || kib > 1 << 20)
        throw Error(config.where("segment_kib"),
                    fmt::format("{}.segment_kib is {}; expected {} to 1048576", config.path(), kib, whole_bytes >> 10));
    options.segment_bytes = kib << 10;
    options.all_reduce = one_of("all_reduce", options.all_reduce,
                                {"auto", "ring", "recursive_doubling", "halving_doubling", "tree", "hierarchical"});
    options.broadcast = one_of("broadcast", options.broadcast, {"auto", "tree", "chain"});
    return options;
}

void P2pOptions::require_alike(const Group& group, Rendezvous& rendezvous, std::string_view what,
                               std::chrono::milliseconds timeout) const {
    const std::string mine =
        fmt::format("segment_kib = {}, all_reduce = {}, broadcast = {}", segment_bytes >> 10, all_reduce, broadcast);
    const std::vector<std::string> all = exchange(group, rendezvous, what, mine, timeout);
    const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& text) { return text != mine; });
    if (other != all.end())
        throw Error(fmt::format("group {}: transport options differ between ranks: rank {} has {}; this rank has {}\n"
                                "  give all ranks the same table of the transport",
                                group.name, group.ranks[static_cast<size_t>(other - all.begin())], *other, mine),
                    Fault::peer);
}

TransportContract P2pOptions::contract() const {
    TransportContract c;
    c.send = TransportContract::Send::rendezvous;
    c.lanes = TransportContract::Lanes::peer_and_direction;
    c.matching = TransportContract::Matching::tag;
    c.reduction = TransportContract::Reduction::by_algorithm;
    c.small_bytes = all_reduce == "auto" ? doubling_bytes : all_reduce == "ring" ? 0 : INT64_MAX;
    c.memory = {MemoryKind::device, MemoryKind::pinned, MemoryKind::shared};
    c.dtypes = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32,
                DType::i64, DType::u32,  DType::u16, DType::u8};
    return c;
}

}  // namespace orrery
