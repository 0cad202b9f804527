#pragma once
#include <chrono>
#include <map>
#include <string>

#include "orrery/mesh.h"
#include "orrery/registry.h"
#include "run/job.h"

namespace orrery {

/// The tables of the configuration that belong to the core, read once and checked.
struct Settings {
    std::string device = "cpu";     ///< [run] device
    std::string transport = "shm";  ///< [run] transport
    std::string store = "posix";    ///< [run] store
    std::string folder;             ///< [run] folder; "" until the experiment has a name
    uint64_t seed = 1;              ///< [run] seed
    int64_t threads_per_rank = 0;   ///< [run] threads_per_rank; 0: processors allowed over ranks of the host
    bool pin_ranks = true;          ///< [run] pin_ranks
    std::map<std::string, std::string> axis_transport;  ///< [transport.axis]
    std::map<std::string, std::string> collectives;     ///< [collectives]: an axis' algorithms of a script's making
    int64_t memory_bytes = 0;                           ///< [device] memory_gib; 0: not judged
    std::chrono::milliseconds timeout{30'000};          ///< [run] timeout_s: longest wait for a peer
    bool timeout_given = false;                         ///< false: inside a step the plan decides
    int64_t keep = 2;                                   ///< [checkpoint] keep
    std::string weights;                                ///< [checkpoint] load: safetensors file of a fresh start
    Mesh mesh;                                          ///< [mesh], axes of size 1 included

    const std::string& transport_of(const std::string& axis) const;
};

/// Reads [run], [mesh], [device], [checkpoint] and [transport.axis]. Throws Error with file:line:column.
Settings read_settings(Config& config);

/// The line that names the transport of an axis: [transport.axis] or [run] transport.
Origin transport_origin(const Settings& settings, Config& config, const std::string& axis);

/// Threads of each rank of this host: [run] threads_per_rank; else what its launcher says; else the processors that
/// this process may run on (see taskset), shared by the ranks of the host.
int threads_of(const Settings& settings, const Job& job);

/// Whether the transport reads and writes the memory of this device itself.
bool serves(const TransportContract& contract, std::string_view device);

/// The contract of each axis' transport, made from its plugin without opening anything.
std::map<std::string, TransportContract> contracts_of(Settings& settings, Config& config, const Registry& registry);

}  // namespace orrery
