#include "base/topology.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/processors.h"
#include "orrery/error.h"

namespace orrery {
namespace {

using Places = std::vector<std::vector<int>>;

using Tree = std::shared_ptr<hwloc_topology>;
using Set = std::shared_ptr<hwloc_bitmap_s>;

Tree owned(hwloc_topology_t tree) { return {tree, hwloc_topology_destroy}; }
Set owned(hwloc_bitmap_t set) { return {set, hwloc_bitmap_free}; }

/// A variable of this process that is set while this exists, unless the user has set it.
class Variable {
public:
    Variable(const char* name, const char* value) : name_(std::getenv(name) ? nullptr : name) {
        if (name_) ::setenv(name_, value, 0);
    }
    ~Variable() {
        if (name_) ::unsetenv(name_);
    }
    Variable(const Variable&) = delete;

private:
    const char* name_;
};

Set set_of(const std::vector<int>& processors) {
    Set set = owned(hwloc_bitmap_alloc());
    for (const int processor : processors) hwloc_bitmap_set(set.get(), static_cast<unsigned>(processor));
    return set;
}

Set both(hwloc_const_bitmap_t a, hwloc_const_bitmap_t b) {
    Set set = owned(hwloc_bitmap_alloc());
    hwloc_bitmap_and(set.get(), a, b);
    return set;
}

std::vector<int> processors_in(hwloc_const_bitmap_t set) {
    std::vector<int> processors;
    for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) processors.push_back(i);
    return processors;
}

/// Returns the tree cut down to a set; nullptr if hwloc cannot.
Tree cut_to(hwloc_topology_t tree, hwloc_const_bitmap_t set) {
    hwloc_topology_t copy = nullptr;
    if (hwloc_topology_dup(&copy, tree) != 0) return nullptr;
    Tree made = owned(copy);
    return hwloc_topology_restrict(copy, set, HWLOC_RESTRICT_FLAG_ADAPT_IO) == 0 ? made : nullptr;
}

/// Processors of a tree in its order: threads of a core next to each other, then cores of a cache, of a socket.
std::vector<int> in_order(hwloc_topology_t tree) {
    std::vector<int> processors;
    for (hwloc_obj_t unit = nullptr; (unit = hwloc_get_next_obj_by_type(tree, HWLOC_OBJ_PU, unit));)
        processors.push_back(static_cast<int>(unit->os_index));
    return processors;
}

/// Shares out whole objects, as high in the tree as there are enough of them.
Places distributed(hwloc_topology_t tree, int64_t ranks) {
    std::vector<hwloc_cpuset_t> sets(static_cast<size_t>(ranks));
    hwloc_obj_t root = hwloc_get_root_obj(tree);
    hwloc_distrib(tree, &root, 1, sets.data(), static_cast<unsigned>(ranks), std::numeric_limits<int>::max(), 0);
    Places places;
    for (const hwloc_cpuset_t set : sets) places.push_back(processors_in(owned(set).get()));
    return places;
}

bool enough(const Places& places, int64_t threads) {
    return std::ranges::all_of(places,
                               [&](const auto& place) { return std::ssize(place) >= std::max<int64_t>(1, threads); });
}

}  // namespace

struct Topology::Host {
    std::vector<int> allowed;
    Tree tree;  ///< nullptr: hwloc does not know all allowed processors

    /// Shares a set out to ranks; empty if one would get fewer than `threads`.
    Places share(hwloc_const_bitmap_t set, int64_t ranks, int64_t threads) const {
        const Tree here = cut_to(tree.get(), set);
        if (!here) return {};
        Places places(static_cast<size_t>(ranks));
        const int kinds = std::max(1, hwloc_cpukinds_get_nr(here.get(), 0));
        for (int kind = 0; kind < kinds; ++kind) {
            Set of_kind = owned(hwloc_bitmap_dup(hwloc_topology_get_topology_cpuset(here.get())));
            if (kinds > 1) {
                hwloc_cpukinds_get_info(here.get(), static_cast<unsigned>(kind), of_kind.get(), nullptr, nullptr,
                                        nullptr, 0);
                of_kind = both(of_kind.get(), hwloc_topology_get_topology_cpuset(here.get()));
            }
            if (hwloc_bitmap_weight(of_kind.get()) < ranks) continue;
            const Tree alone = cut_to(here.get(), of_kind.get());
            if (!alone) continue;
            const Places more = distributed(alone.get(), ranks);
            for (size_t rank = 0; rank < places.size(); ++rank)
                places[rank].insert(places[rank].end(), more[rank].begin(), more[rank].end());
        }
        if (!enough(places, threads)) places = shares(in_order(here.get()), ranks, threads);
        for (auto& place : places) std::ranges::sort(place);
        return places;
    }

    /// Processors near a PCI device or another object of I/O; nullptr if they are not known or are all.
    Set near(hwloc_obj_t device) const {
        const hwloc_obj_t parent = device ? hwloc_get_non_io_ancestor_obj(tree.get(), device) : nullptr;
        if (!parent || !parent->cpuset || hwloc_bitmap_iszero(parent->cpuset)) return nullptr;
        if (hwloc_bitmap_isequal(parent->cpuset, hwloc_topology_get_topology_cpuset(tree.get()))) return nullptr;
        return owned(hwloc_bitmap_dup(parent->cpuset));
    }

    /// Gives each rank processors of its home; empty if a home has too few or is not known.
    Places at_homes(std::vector<Set> homes, int64_t threads) const {
        if (homes.empty() || !std::ranges::all_of(homes, [](const Set& home) { return home != nullptr; })) return {};
        for (bool merged = true; std::exchange(merged, false);)  // homes that share processors become one
            for (const Set& a : homes)
                for (const Set& b : homes)
                    if (hwloc_bitmap_intersects(a.get(), b.get()) && !hwloc_bitmap_isequal(a.get(), b.get())) {
                        hwloc_bitmap_or(a.get(), a.get(), b.get());
                        merged = true;
                    }
        Places places(homes.size());
        for (size_t first = 0; first < homes.size(); ++first) {
            if (!places[first].empty()) continue;
            std::vector<size_t> here;
            for (size_t rank = first; rank < homes.size(); ++rank)
                if (hwloc_bitmap_isequal(homes[rank].get(), homes[first].get())) here.push_back(rank);
            Places shared = share(homes[first].get(), std::ssize(here), threads);
            if (shared.empty()) return {};
            for (size_t i = 0; i < here.size(); ++i) places[here[i]] = std::move(shared[i]);
        }
        return places;
    }

    /// Network cards, those of InfiniBand and the like if there are any, in the order of the bus.
    std::vector<hwloc_obj_t> cards() const {
        std::vector<hwloc_obj_t> fast, all;
        for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(tree.get(), device));) {
            const auto type = device->attr->osdev.type;
            const bool of_card = device->parent && device->parent->type == HWLOC_OBJ_PCI_DEVICE;
            if (of_card && type == HWLOC_OBJ_OSDEV_OPENFABRICS) fast.push_back(device);
            if (of_card && type == HWLOC_OBJ_OSDEV_NETWORK) all.push_back(device);
        }
        return fast.empty() ? all : fast;
    }
};

Topology::Topology(const std::vector<int>& allowed) : host_(std::make_unique<Host>()) {
    host_->allowed = allowed;
    // Its plugins would load OpenCL, X11 and drivers; the user cannot fix what firmware reports.
    const Variable no_plugins("HWLOC_PLUGINS_PATH", "/dev/null"), no_messages("HWLOC_HIDE_ERRORS", "2");
    hwloc_topology_t tree = nullptr;
    if (hwloc_topology_init(&tree) != 0) return;
    const Tree made = owned(tree);
    // It would run on each processor in turn; the kernel's files have what is needed.
    hwloc_topology_set_components(tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    hwloc_topology_set_flags(tree, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(tree) != 0) return;
    const Set mine = set_of(allowed);
    if (!hwloc_bitmap_isincluded(mine.get(), hwloc_topology_get_topology_cpuset(tree))) return;
    host_->tree = cut_to(tree, mine.get());
}

Topology::Topology(const std::string& text, const std::vector<int>& allowed) : host_(std::make_unique<Host>()) {
    hwloc_topology_t tree = nullptr;
    if (hwloc_topology_init(&tree) != 0) throw Error("hwloc cannot start", Fault::failed);
    const Tree made = owned(tree);
    hwloc_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    const int status = text.starts_with("<")
                           ? hwloc_topology_set_xmlbuffer(tree, text.c_str(), static_cast<int>(text.size() + 1))
                           : hwloc_topology_set_synthetic(tree, text.c_str());
    if (status != 0 || hwloc_topology_load(tree) != 0) throw Error(fmt::format("hwloc refuses \"{}\"", text));
    const Set mine =
        allowed.empty() ? owned(hwloc_bitmap_dup(hwloc_topology_get_topology_cpuset(tree))) : set_of(allowed);
    host_->allowed = processors_in(mine.get());
    host_->tree = cut_to(tree, mine.get());
}

Topology::~Topology() = default;

int64_t Topology::sockets() const {
    return host_->tree ? std::max(1, hwloc_get_nbobjs_by_type(host_->tree.get(), HWLOC_OBJ_PACKAGE)) : 1;
}

int64_t Topology::cores() const {
    const int cores = host_->tree ? hwloc_get_nbobjs_by_type(host_->tree.get(), HWLOC_OBJ_CORE) : 0;
    return cores > 0 ? cores : std::ssize(host_->allowed);
}

Places Topology::places(int64_t ranks, int64_t threads, const std::vector<std::string>& devices) const {
    const auto all = std::ssize(host_->allowed);
    if (ranks < 1 || ranks * std::max<int64_t>(1, threads) > all) return {};
    if (!host_->tree) return shares(host_->allowed, ranks, threads);
    std::vector<Set> homes;
    for (const std::string& device : devices)
        homes.push_back(host_->near(hwloc_get_pcidev_by_busidstring(host_->tree.get(), device.c_str())));
    if (std::ssize(homes) == ranks)
        if (Places near = host_->at_homes(std::move(homes), threads); !near.empty()) return near;
    homes.clear();
    const std::vector<hwloc_obj_t> cards = devices.empty() ? host_->cards() : std::vector<hwloc_obj_t>{};
    for (int64_t rank = 0; rank < ranks && !cards.empty(); ++rank)
        homes.push_back(host_->near(cards[static_cast<size_t>(rank * std::ssize(cards) / ranks)]));
    if (Places near = host_->at_homes(std::move(homes), std::max(threads, all / ranks)); !near.empty()) return near;
    return host_->share(hwloc_topology_get_topology_cpuset(host_->tree.get()), ranks, threads);
}

}  // namespace orrery
