#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace orrery {

/// Sockets, cores, hardware threads and PCI devices of a host, without processors that this process may not use.
class Topology {
public:
    /// Reads this host from files in /proc and /sys, in about 10 ms of processor time for 2 processors, without opening
    /// a driver. `allowed`: as of allowed_processors().
    explicit Topology(const std::vector<int>& allowed);
    /// Reads a text in place of this host: hwloc's synthetic form, "pack:2 core:16 pu:2", or its XML. `allowed` empty:
    /// all processors. Throws Error if hwloc refuses the text.
    explicit Topology(const std::string& text, const std::vector<int>& allowed = {});
    ~Topology();
    Topology(const Topology&) = delete;

    int64_t sockets() const;
    int64_t cores() const;

    /// Gives each rank processors of its own, ascending, at least `threads`: whole sockets if there are as many, else
    /// whole cores, else hardware threads of different cores as far as possible. Each kind of core (fast, efficient) is
    /// shared out by itself. Rank i gets processors near the PCI device devices[i] ("0000:17:00.0"), if each rank then
    /// has enough; without devices, near a network card, if that costs no rank a processor. Returns nothing if a rank
    /// would get fewer than `threads`.
    std::vector<std::vector<int>> places(int64_t ranks, int64_t threads,
                                         const std::vector<std::string>& devices = {}) const;

private:
    struct Host;
    std::unique_ptr<Host> host_;
};

}  // namespace orrery
