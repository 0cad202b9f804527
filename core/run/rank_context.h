#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "collective/communication_thread.h"
#include "plan/chunks/chunks.h"
#include "plan/lower/lower.h"
#include "run/executor.h"

namespace orrery {

/// What a rank runs plans with. Read while the context is made; device, rendezvous and what `vote` refers to must
/// outlive the context.
struct RankSetting {
    int64_t rank = 0;
    Device& device;
    std::string device_kind = "cpu";  ///< as contracts name it: a transport that does not serve it is staged
    const Persistent& persistent;
    std::vector<const Plan*> plans;  ///< known from the start, of one mesh; at least one
    /// Of a named axis that communicates; axes may share one. Every context that uses it keeps it.
    std::function<std::shared_ptr<Transport>(const Axis&)> transport = {};
    Rendezvous* rendezvous = nullptr;  ///< needed where an axis communicates
    std::chrono::milliseconds timeout{20'000};
    std::map<std::string, std::vector<ChunkTable>> collectives = {};  ///< by axis, proved: not the transport's own
    std::set<std::string> background = {};  ///< axes whose collectives run on a CommunicationThread
    std::string prefix = {};                ///< tells contexts of one rank apart that meet in one rendezvous
    /// Called when an axis cannot be connected, before communicators are aborted: peers that see a closed connection
    /// know why by then.
    std::function<void(const std::string& why)> failed = {};
    TextExchange vote = {};  ///< whether all ranks keep captured steps; see capture_vote.h
};

/// The arenas and communicators of one rank, over which any number of plans of one mesh take turns. Destroyed, it
/// leaves nothing behind: no thread, no memory, no connection.
class RankContext {
public:
    /// Allocates the persistent arena, shared by all programs, and a scratch arena for the largest of the plans: what
    /// its own class needs. Then makes a communicator for each named axis, and for those made of several that the
    /// plans' messages go over. Collective: every rank of the mesh must come. On failure aborts the communicators that
    /// it has made.
    explicit RankContext(const RankSetting& setting);
    /// Aborts collectives that are under way.
    ~RankContext();
    RankContext(const RankContext&) = delete;
    RankContext& operator=(const RankContext&) = delete;

    /// Of a plan known from the start or compiled later; plan and context must outlive it. Throws Error with the bytes
    /// when the arenas are too small for the plan, on every rank or on none. Collective where the plan is a later one
    /// whose messages go over axes together as none did before: these are connected as in the constructor, those of
    /// `background` for a CommunicationThread.
    std::unique_ptr<Executor> executor(const Plan& plan, const std::set<std::string>& background = {});
    /// Persistent, scratch.
    std::span<const Memory> arenas() const { return arenas_.memory; }
    /// nullptr where an axis does not communicate.
    Communicator* along(AxisId axis) const { return along(mesh_, axis); }
    /// Of every communicator.
    void abort(std::string_view reason);

private:
    struct Arenas {
        Device& device;
        std::vector<Memory> memory;
        ~Arenas();
    };
    /// What of the setting communicators that are made later need.
    struct Connecting {
        std::string device_kind;
        Rendezvous* rendezvous;
        std::chrono::milliseconds timeout;
        std::map<std::string, std::vector<ChunkTable>> collectives;
        std::string prefix;
        std::function<void(const std::string& why)> failed;
    };
    template <class Connects>
    void or_abort(Connects connects);
    void connect(const Mesh& mesh, AxisId axis, const std::set<std::string>& background);
    void connect_joined(const Plan& plan, const std::set<std::string>& background);
    Communicator* along(const Mesh& mesh, AxisId axis) const;

    void require(const Plan& plan, size_t k) const;

    const int64_t rank_;
    const Mesh mesh_;  ///< of the first plan; another's may have other micro-batches
    const TextExchange vote_;
    const Connecting connecting_;
    const std::vector<ArenaBytes> of_class_;
    Arenas arenas_;
    std::vector<std::shared_ptr<Transport>> transports_;  ///< by named axis
    std::map<std::string, std::unique_ptr<Communicator>> communicators_;
    std::unique_ptr<CommunicationThread> thread_;
};

}  // namespace orrery
