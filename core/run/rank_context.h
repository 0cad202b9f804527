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

/// The arguments of RankContext's constructor. Device, rendezvous and the objects that `vote` refers to must outlive
/// the context.
struct RankSetting {
    int64_t rank = 0;
    Device& device;
    std::string device_kind = "cpu";  ///< device kind as contracts name it; transports that do not serve it are staged
    const Persistent& persistent;
    std::vector<const Plan*> plans;  ///< plans that are known from the start, of one mesh; at least one
    /// Makes the transport of a named axis that communicates. Axes may share a transport.
    std::function<std::shared_ptr<Transport>(const Axis&)> transport = {};
    Rendezvous* rendezvous = nullptr;  ///< required if an axis communicates
    std::chrono::milliseconds timeout{20'000};
    std::map<std::string, std::vector<ChunkTable>> collectives = {};  ///< by axis: proved algorithms to use instead
    std::set<std::string> background = {};  ///< axes whose collectives run on a CommunicationThread
    std::string prefix = {};                ///< distinguishes contexts of one rank in the same rendezvous
    /// Called when an axis cannot be connected, before communicators are aborted, so that peers know the reason before
    /// they see a closed connection.
    std::function<void(const std::string& why)> failed = {};
    TextExchange vote = {};  ///< decides whether all ranks keep captured steps; see capture_vote.h
};

/// The arenas and communicators of one rank, shared by any number of plans of one mesh. The destructor releases all
/// memory, threads and connections.
class RankContext {
public:
    /// Allocates the persistent arena, shared by all programs, and a scratch arena for the largest plan, both of the
    /// size that the rank's class needs. Then makes a communicator for each named axis, and for joined axes that the
    /// plans' messages use. Collective over all ranks of the mesh. On failure aborts the communicators that it made.
    explicit RankContext(const RankSetting& setting);
    /// Aborts collectives in progress.
    ~RankContext();
    RankContext(const RankContext&) = delete;
    RankContext& operator=(const RankContext&) = delete;

    /// Makes an executor for a plan, known from the start or compiled later; plan and context must outlive it. Throws
    /// Error with the bytes if the arenas are too small for the plan, on every rank or on none. Collective if the plan
    /// joins axes that no plan joined before: they are connected as in the constructor, with a CommunicationThread for
    /// `background`.
    std::unique_ptr<Executor> executor(const Plan& plan, const std::set<std::string>& background = {});
    /// The persistent and the scratch arena.
    std::span<const Memory> arenas() const { return arenas_.memory; }
    /// nullptr if an axis does not communicate.
    Communicator* along(AxisId axis) const { return along(mesh_, axis); }
    void abort(std::string_view reason);

private:
    struct Arenas {
        Device& device;
        std::vector<Memory> memory;
        ~Arenas();
    };
    /// Settings for communicators that are made later.
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
    const Mesh mesh_;  ///< mesh of the first plan; others may differ in the number of micro-batches
    const TextExchange vote_;
    const Connecting connecting_;
    const std::vector<ArenaBytes> of_class_;
    Arenas arenas_;
    std::vector<std::shared_ptr<Transport>> transports_;  ///< by named axis
    std::map<std::string, std::unique_ptr<Communicator>> communicators_;
    std::unique_ptr<CommunicationThread> thread_;
};

}  // namespace orrery
