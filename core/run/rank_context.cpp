#include "run/rank_context.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "collective/chunk_communicator.h"
#include "collective/staged_communicator.h"
#include "plan/access.h"
#include "plan/opening.h"
#include "run/settings.h"

namespace orrery {
namespace {

Group group_along(const Mesh& mesh, int64_t rank, AxisId axis, std::string_view prefix) {
    Group group;
    group.axis = mesh.axis(axis).name;
    group.ranks = mesh.group(rank, axis);
    group.me = static_cast<int>(mesh.member(rank, axis));
    group.name = fmt::format("{}{}/{}", prefix, group.axis, group.ranks.front());
    return group;
}

/// The kind of memory that is required by the first transport that can send only from arenas; else device memory.
MemoryKind wanted_memory(const std::vector<std::shared_ptr<Transport>>& transports) {
    for (const auto& transport : transports) {
        if (!transport) continue;
        const TransportContract contract = transport->contract();
        if (contract.needs_arena && !contract.memory.empty()) return contract.memory.front();
    }
    return MemoryKind::device;
}

}  // namespace

RankContext::Arenas::~Arenas() {
    for (auto arena = memory.rbegin(); arena != memory.rend(); ++arena) device.release(*arena);
}

RankContext::RankContext(const RankSetting& setting)
    : rank_(setting.rank),
      mesh_(setting.plans.front()->mesh),
      vote_(setting.vote),
      connecting_{setting.device_kind, setting.rendezvous, setting.timeout,
                  setting.collectives, setting.prefix,     setting.failed},
      of_class_(arena_bytes(setting.persistent, setting.plans)),
      arenas_{setting.device, {}} {
    transports_.resize(mesh_.axes().size());
    for (size_t id = 0; id < transports_.size(); ++id)
        if (const Axis& axis = mesh_.axes()[id]; !axis.sequential && axis.size > 1)
            transports_[id] = setting.transport(axis);
    const MemoryKind kind = wanted_memory(transports_);
    const auto own =
        static_cast<size_t>(&setting.plans.front()->class_of(rank_) - setting.plans.front()->classes.data());
    for (const int64_t bytes : {of_class_[own].persistent, of_class_[own].scratch})
        arenas_.memory.push_back(setting.device.allocate(bytes, kind));
    or_abort([&] {
        for (size_t id = 0; id < transports_.size(); ++id)
            if (transports_[id]) connect(mesh_, static_cast<AxisId>(id), setting.background);
        for (const Plan* plan : setting.plans) connect_joined(*plan, setting.background);
        connect_openings(setting);
    });
}

/// Calls `connects`. Reports its failure to the other ranks before they see a closed connection, and rethrows it.
template <class Connects>
void RankContext::or_abort(Connects connects) {
    try {
        connects();
    } catch (const std::exception& error) {
        if (connecting_.failed) connecting_.failed(explain(error));
        abort(explain(error));
        throw;
    }
}

RankContext::~RankContext() {
    for (const auto* thread : {&thread_, &opening_thread_})
        if (*thread && !(*thread)->idle()) abort("this rank ends in the middle of a step");
}

/// Makes the communicator of an axis in two wrappers: the inner one runs the script's collective algorithms, the outer
/// one makes the calls on a thread, which is made with `slots` if there is none.
std::unique_ptr<Communicator> RankContext::made(const Mesh& mesh, AxisId axis, Transport& transport,
                                                const std::string& prefix, std::unique_ptr<CommunicationThread>* thread,
                                                size_t slots) {
    const bool staged = !serves(transport.contract(), connecting_.device_kind);
    auto made = transport.make(group_along(mesh, rank_, axis, prefix), *connecting_.rendezvous,
                               staged ? std::span<const Memory>() : arenas(), connecting_.timeout);
    const auto tables = connecting_.collectives.find(mesh.axis(axis).name);
    if (tables != connecting_.collectives.end())
        made = std::make_unique<ChunkCommunicator>(std::move(made), tables->second);
    if (staged) made = std::make_unique<StagedCommunicator>(std::move(made), arenas_.device);
    if (!thread) return made;
    if (!*thread) *thread = std::make_unique<CommunicationThread>(slots);
    return std::make_unique<BackgroundCommunicator>(std::move(made), **thread);
}

void RankContext::connect(const Mesh& mesh, AxisId axis, const std::set<std::string>& background) {
    const std::string& name = mesh.axis(axis).name;
    constexpr size_t slots = 64;
    communicators_[name] = made(mesh, axis, *transports_[static_cast<size_t>(mesh.parts(axis).front())],
                                connecting_.prefix, background.count(name) ? &thread_ : nullptr, slots);
}

/// Connects, on all ranks, the axes over which plans send in their openings, and gives these plans their scratch
/// memory.
void RankContext::connect_openings(const RankSetting& setting) {
    const auto own =
        static_cast<size_t>(&setting.plans.front()->class_of(rank_) - setting.plans.front()->classes.data());
    const std::vector<int64_t> places = scratch_places(setting.plans, own);
    std::set<AxisId> axes;
    size_t messages = 0;  // of all openings: so many may be in flight
    for (size_t i = 0; i < setting.plans.size(); ++i)
        for (const RankClass& c : setting.plans[i]->classes) {
            const int end = opening(setting.plans[i]->program, c);
            if (end > 0) scratch_[setting.plans[i]] = places[i];
            for (int at = 0; at < end; ++at)
                if (c.stream[at].axis != none) ++messages, axes.insert(c.stream[at].axis);
        }
    of_openings_.resize(static_cast<size_t>(mesh_.ids()));
    own_transports_.resize(of_openings_.size());
    for (const AxisId axis : axes) {
        const Axis& named = mesh_.axis(axis);
        std::shared_ptr<Transport>& transport = own_transports_[static_cast<size_t>(axis)];
        transport = (setting.own_transport ? setting.own_transport : setting.transport)(named);
        const TransportContract contract = transport->contract();
        if (!serves(contract, connecting_.device_kind))
            throw Error(
                fmt::format("messages over {} cannot be sent while steps run: its transport stages them through "
                            "host memory\n  choose one for memory of device {} in [transport.axis]",
                            named.name, connecting_.device_kind));
        of_openings_[static_cast<size_t>(axis)] = made(mesh_, axis, *transport, connecting_.prefix + "opening/",
                                                       contract.queued ? nullptr : &opening_thread_, messages);
    }
}

/// Connects, on all ranks, the joined axes ("dp+tp") over which any rank communicates in this plan.
void RankContext::connect_joined(const Plan& plan, const std::set<std::string>& background) {
    for (const AxisId axis : joined_axes(plan))
        if (!along(plan.mesh, axis)) connect(plan.mesh, axis, background);
}

Communicator* RankContext::along(const Mesh& mesh, AxisId axis) const {
    const auto found = communicators_.find(mesh.axis(axis).name);
    return found == communicators_.end() ? nullptr : found->second.get();
}

/// Throws Error if the arenas of rank class number `k` (ranks with the same instructions) are too small for the plan.
void RankContext::require(const Plan& plan, size_t k) const {
    const RankClass& ranks = plan.classes[k];
    ArenaBytes needs{0, ranks.scratch_bytes};
    for (const Operand& place : ranks.places) {
        const Buffer& buffer = ranks.buffers[static_cast<size_t>(place.buffer)];
        needs.persistent = std::max(needs.persistent, buffer.offset + buffer.bytes);
    }
    const auto judge = [&](int64_t asked, int64_t has, std::string_view arena) {
        if (asked <= has) return;
        throw Error(
            fmt::format("out of memory: program {} needs {} of the {} arena{}, which has {}: {} too much\n"
                        "  arenas are sized for the programs at the start of a session: compile this program with them",
                        plan.program.name, bytes_text(asked), arena,
                        plan.classes.size() == 1 ? "" : fmt::format(" of pipeline rank {}", ranks.stage),
                        bytes_text(has), bytes_text(asked - has)));
    };
    judge(needs.persistent, of_class_[k].persistent, "persistent");
    judge(needs.scratch, of_class_[k].scratch, "scratch");
}

std::unique_ptr<Executor> RankContext::executor(const Plan& plan, const std::set<std::string>& background) {
    // checks every rank class, not only this rank's, so that all ranks throw the same error
    for (size_t k = 0; k < plan.classes.size(); ++k) require(plan, k);
    or_abort([&] { connect_joined(plan, background); });
    std::vector<Communicator*> by_axis;
    for (AxisId axis = 0; axis < plan.mesh.ids(); ++axis) by_axis.push_back(along(plan.mesh, axis));
    std::vector<Communicator*> of_opening;
    for (const auto& communicator : of_openings_) of_opening.push_back(communicator.get());
    const auto own = scratch_.find(&plan);
    auto* const scratch = static_cast<char*>(arenas()[1].data) + (own == scratch_.end() ? 0 : own->second);
    auto made = std::make_unique<Executor>(plan, rank_, arenas_.device, std::move(by_axis), arenas()[0].data, scratch,
                                           std::move(of_opening));
    if (vote_) made->capture_together(vote_);
    if (thread_) made->collectives_by(*thread_);
    if (opening_thread_) made->opening_by(*opening_thread_);
    return made;
}

void RankContext::abort(std::string_view reason) {
    for (const auto& [axis, communicator] : communicators_) communicator->abort(reason);
    for (const auto& communicator : of_openings_)
        if (communicator) communicator->abort(reason);
}

}  // namespace orrery
