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
    std::string device = "cpu";                         ///< [run] device
    std::string transport = "shm";                      ///< [run] transport
    std::string store = "posix";                        ///< [run] store
    std::string folder;                                 ///< [run] folder; "" until the experiment has a name
    uint64_t seed = 1;                                  ///< [run] seed
    int64_t threads_per_rank = 0;                       ///< [run] threads_per_rank; 0: the host's cores over its ranks
    std::map<std::string, std::string> axis_transport;  ///< [transport.axis]
    int64_t memory_bytes = 0;                           ///< [device] memory_gib; 0: not judged
    std::chrono::milliseconds timeout{30'000};          ///< [run] timeout_s: longest wait for a peer
    int64_t keep = 2;                                   ///< [checkpoint] keep
    std::string weights;                                ///< [checkpoint] load: safetensors file of a fresh start
    Mesh mesh;                                          ///< [mesh], axes of size 1 included

    const std::string& transport_of(const std::string& axis) const;
};

/// Reads [run], [mesh], [device], [checkpoint] and [transport.axis]. Throws Error with file:line:column.
Settings read_settings(Config& config);

/// The line that names the transport of an axis: [transport.axis] or [run] transport.
Origin transport_origin(const Settings& settings, Config& config, const std::string& axis);

/// Threads that each rank of this host may use.
int threads_of(const Settings& settings, const Job& job);

/// The contract of each axis' transport, made from its plugin without opening anything.
std::map<std::string, TransportContract> contracts_of(Settings& settings, Config& config, const Registry& registry);

}  // namespace orrery
