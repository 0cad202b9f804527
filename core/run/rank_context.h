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
    std::string device_kind = "cpu";  ///< name of the device's memory in the contracts of transports
    const Persistent& persistent;
    std::vector<const Plan*> plans;  ///< plans known from the start: at least one, all of one mesh
    /// Makes the transport of a mesh axis over which ranks communicate. Axes may share a transport.
    std::function<std::shared_ptr<Transport>(const Axis&)> transport = {};
    /// Makes another one of the axis for messages of openings (plan/opening.h), which another thread uses. Empty: the
    /// same one.
    std::function<std::shared_ptr<Transport>(const Axis&)> own_transport = {};
    Rendezvous* rendezvous = nullptr;  ///< required if ranks communicate over an axis
    std::chrono::milliseconds timeout{20'000};
    std::map<std::string, std::vector<ChunkTable>> collectives = {};  ///< proved algorithm of each axis's collectives
    std::set<std::string> background = {};  ///< axes whose collectives run on a CommunicationThread
    std::string prefix = {};                ///< in group names: lets a rank's contexts share a rendezvous
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
    /// size that this rank needs. Then makes a communicator for each named axis, for each joined axis ("dp+tp") of the
    /// plans' messages, and for each axis of their openings another one, with a thread for all of these. Collective
    /// over all ranks of the mesh. On failure aborts the communicators that it made.
    explicit RankContext(const RankSetting& setting);
    /// Aborts collectives in progress.
    ~RankContext();
    RankContext(const RankContext&) = delete;
    RankContext& operator=(const RankContext&) = delete;

    /// Makes an executor for a plan; plan and context must outlive it. Throws Error with the bytes needed, on every
    /// rank or on none, if the arenas are too small for the plan. Collective if the plan communicates over joined axes
    /// ("dp+tp") that are not connected yet: connects them, those in `background` with a communication thread.
    std::unique_ptr<Executor> executor(const Plan& plan, const std::set<std::string>& background = {});
    /// The memory of the persistent arena and of the scratch arena, in this order.
    std::span<const Memory> arenas() const { return arenas_.memory; }
    /// The communicator of an axis; nullptr if ranks do not communicate over it.
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
    std::unique_ptr<Communicator> made(const Mesh& mesh, AxisId axis, Transport& transport, const std::string& prefix,
                                       std::unique_ptr<CommunicationThread>* thread, size_t slots);
    void connect(const Mesh& mesh, AxisId axis, const std::set<std::string>& background);
    void connect_openings(const RankSetting& setting);
    void connect_joined(const Plan& plan, const std::set<std::string>& background);
    Communicator* along(const Mesh& mesh, AxisId axis) const;

    void require(const Plan& plan, size_t k) const;

    const int64_t rank_;
    const Mesh mesh_;  ///< mesh of the first plan; other plans' meshes differ at most in the number of micro-batches
    const TextExchange vote_;
    const Connecting connecting_;
    const std::vector<ArenaBytes> of_class_;
    Arenas arenas_;
    std::vector<std::shared_ptr<Transport>> transports_;  ///< by index of the mesh axis; nullptr: not needed
    std::map<std::string, std::unique_ptr<Communicator>> communicators_;
    std::vector<std::shared_ptr<Transport>> own_transports_;
    std::vector<std::unique_ptr<Communicator>> of_openings_;  ///< by AxisId; nullptr: no opening has messages over it
    std::map<const Plan*, int64_t> scratch_;                  ///< by plan with an opening: its place in the arena
    std::unique_ptr<CommunicationThread> thread_, opening_thread_;
};

}  // namespace orrery
