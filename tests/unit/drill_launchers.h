#pragma once
#include "control/supervisor.h"
#include "drill_world.h"

/// Launchers as core/cli has them, without processes: they carry out what Supervisor orders.
namespace orrery::test {

/// The ranks of one host in one generation (RankProcesses and LocalRanks).
class HostRanks {
public:
    static constexpr LinkTime grace = std::chrono::milliseconds(1500);  ///< for the others once one has failed
    HostRanks(DrillWorld& world, Launcher& launcher) : world_(world), launcher_(launcher) {}
    void start(Generation& generation, int64_t first, int64_t count);
    void reap(Rank& rank);
    void asked(bool interrupts);
    void end(LinkTime grace);
    /// How all ended, once the last one is reaped.
    std::optional<Loss> look();
    bool running() const { return !ranks_.empty(); }
    int64_t step() const { return ranks_.empty() ? 0 : ranks_.front()->step; }
    const std::vector<Rank*>& ranks() const { return ranks_; }
    int code() const;

private:
    bool any() const;
    void tell_gone(const Rank& rank, Cause cause, int code);
    void kill_late();
    void look_at_disks();
    void end_stopped();

    DrillWorld& world_;
    Launcher& launcher_;
    std::vector<Rank*> ranks_;
    std::vector<RankEnd> ends_;
    std::optional<LinkTime> deadline_, stopped_since_;
    int code_ = 0;
    bool interrupted_ = false, stopping_ = false, killed_ = false;
};

class Launcher {
public:
    Launcher(DrillWorld& world, int64_t node)
        : world_(world), node(node), process(world.net.process(node)), ranks(world, *this) {}
    virtual ~Launcher() = default;
    virtual void turn() = 0;
    virtual void asked(bool interrupts) = 0;
    virtual bool gone(const Loss& how) = 0;
    virtual Service* meeting() { return nullptr; }

    DrillWorld& world_;
    const int64_t node;
    Process& process;
    HostRanks ranks;
};

std::unique_ptr<Launcher> make_launcher(DrillWorld& world, int64_t node);

}  // namespace orrery::test
