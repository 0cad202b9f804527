#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "orrery/mesh.h"
#include "orrery/registry.h"
#include "plan/network.h"
#include "run/checkpoint/retain/retention.h"
#include "run/control/job.h"
#include "run/script_interface.h"

namespace orrery {

/// Whether a run resumes from checkpoints in its folder: automatic (if there are any), never, required (always).
enum class Resume : uint8_t { automatic, never, required };

/// Whether collectives run on their own thread: automatic (if there are spare processors), on (always), off (never).
enum class Overlap : uint8_t { automatic, on, off };

/// The configuration tables that belong to the core, read once and validated. Defaults are in config/schema.
struct Settings {
    std::string device;                    ///< [run] device: name of the device's plugin
    std::string device_memory;             ///< name of its memory for transports; "": same as its name
    std::string transport;                 ///< [run] transport: plugin for axes not in axis_transport
    std::string store;                     ///< [run] store: name of the checkpoint store's plugin
    std::string rendezvous;                ///< [run] rendezvous: name of the rendezvous plugin
    std::string launcher;                  ///< [run] launcher: name of the launcher's plugin
    std::string folder;                    ///< [run] folder; "": derived from the experiment's name later
    uint64_t seed = 0;                     ///< [run] seed of random numbers
    int64_t ranks = 0;                     ///< [run] ranks: number per host; 0: from the mesh and --nodes
    int64_t threads_per_rank = 0;          ///< [run] threads_per_rank; 0: allowed processors / ranks of the host
    bool pin_ranks = false;                ///< [run] pin_ranks: whether to bind ranks to processors
    Overlap overlap = Overlap::automatic;  ///< [run] overlap of collectives and kernels
    bool output_all = false;               ///< [run] output: the terminal shows what all ranks print
    Resume resume = Resume::automatic;     ///< [run] resume: whether to load a checkpoint
    std::map<std::string, std::string> axis_transport;  ///< [transport.axis]: transport by mesh axis
    std::map<std::string, std::string> collectives;     ///< [collectives]: names of scripts' algorithms, by axis
    int64_t memory_bytes = 0;                           ///< [device] memory_gib, in bytes; 0: not checked
    std::chrono::milliseconds join_timeout{};           ///< [run] join_timeout_s: max wait for a rank to join
    std::chrono::milliseconds silence{};                ///< [run] silence_s: a peer that is silent for longer is lost
    std::chrono::milliseconds timeout{};                ///< [run] timeout_s: max wait for a peer that has joined
    bool timeout_given = false;                         ///< false: the plan determines the timeout within a step
    double grace_s = 0;         ///< [run] grace_s: time from a request to stop until the machine is lost; 0: unknown
    std::string notice_file;    ///< [run] notice_file: the run stops when this file appears; "": none
    double disk_timeout_s = 0;  ///< [run] disk_timeout_s: max wait of a rank for a disk
    RetentionPolicy keep;       ///< [checkpoint] keep, keep_*: which checkpoints to retain
    double suspect_factor = 0;  ///< [checkpoint] suspect_factor: a loss above this many medians is suspect
    std::vector<std::string>
        drop;                  ///< [checkpoint] drop: names of a checkpoint's tensors to drop if the program lacks them
    bool async_saves = false;  ///< [checkpoint] async: whether saves are asynchronous
    bool auto_saves = false;   ///< whether [checkpoint] every is "auto"
    double node_mtbf_s = 0;    ///< [checkpoint] mtbf_days: mean time between node failures, in seconds; 0: not set
    std::string weights;       ///< [checkpoint] load: safetensors file or folder for a fresh start
    std::string trace;         ///< [run] trace: file of a traced step; "": none
    int64_t trace_step = 0;    ///< [run] trace_step: step to trace; 0: chosen automatically
    bool tensorboard = false;  ///< [metrics] tensorboard: event files in addition to metrics.jsonl
    std::string prometheus;    ///< [metrics] prometheus: file for node_exporter's textfile collector; "": none
    std::string costs;         ///< [simulate] table: file of measured costs; "": the cached table, if any
    Mesh mesh;                 ///< [mesh]: all axes, also those of size 1

    const std::string& transport_of(const std::string& axis) const;
    /// The device memory's name in TransportContract::devices.
    const std::string& memory() const { return device_memory.empty() ? device : device_memory; }
};

/// Reads [run], [mesh], [device], [checkpoint], [metrics], [simulate] and [transport.axis]. Throws Error with
/// file:line:column.
Settings read_settings(Config& config);

/// Reads [run] ports; nullopt: any. Throws Error unless it is a range.
std::optional<Ports> ports_of(Config& config);
/// Returns a plugin's table with [run] ports added: a copy, since the run's configuration must not change.
Config with_ports(Config& config, const Config& table);

RetentionPolicy read_retention(Config& config);

/// Reads the sampling options in [sample]; the seed is [run] seed.
SampleOptions read_sample(Config& config);

/// The configuration line that selects an axis's transport: in [transport.axis] or [run] transport.
Origin transport_origin(const Settings& settings, Config& config, const std::string& axis);

/// Number of rank processes on each of `hosts` hosts (0: any number of hosts). Throws Error naming run.ranks and the
/// mesh if they disagree, or the mesh if it does not divide evenly.
int64_t ranks_per_host(const Settings& settings, Config& config, int64_t hosts);

/// Throws Error, naming the newest step, if the store has checkpoints although run.resume = "never", or has none
/// although run.resume = "required". `fresh`: the run's folder will be moved aside first.
void check_resume(const Settings& settings, Config& config, CheckpointStore& store, bool fresh);

/// Returns the options of a rank's device: its table and what core adds, its threads and its place on the host.
Config device_options(const Settings& settings, Config& config, const Job& job);

/// Makes this process's device from its plugin, with the threads of a rank. Throws Error at an unknown key of
/// [device.NAME].
std::unique_ptr<Device> make_device(const Settings& settings, Config& config, const Registry& registry, const Job& job);

/// Makes a transport from its plugin, which also gets [run] ports, as `ports`. Throws Error at an unknown key of
/// [transport.NAME].
std::unique_ptr<Transport> make_transport(const std::string& name, const Origin& asked, Config& config,
                                          const Registry& registry);

/// Makes the rendezvous backend from its plugin, which also gets [run] ports, as `ports`. Throws Error at an unknown
/// key of [rendezvous.NAME].
std::unique_ptr<RendezvousBackend> make_rendezvous(const std::string& name, Config& config, const Registry& registry);

/// Threads of each rank of this host: [run] threads_per_rank; else the launcher's number; else the processors that this
/// process may run on (see taskset), divided among the host's ranks.
int threads_of(const Settings& settings, const Job& job);

/// Whether the transport accesses this device's memory directly.
bool serves(const TransportContract& contract, std::string_view device);

/// Raises this process's limit of open files for the transports of a rank of this mesh. `joined`: combinations of axes
/// ("dp+tp") that messages go over. Throws Error with the required and the allowed number if the system does not allow
/// it.
void need_descriptors(const Mesh& mesh, const std::set<std::string>& joined = {});

/// Throws Error naming the transport's key if an axis spans several hosts, with `per_host` ranks each, but its
/// transport works only within one host (shared memory or threads).
void refuse_apart(const Settings& settings, Config& config, const Network& contracts, int64_t per_host);

/// The contract of each axis's transport, made from its plugin without opening connections.
Network contracts_of(Settings& settings, Config& config, const Registry& registry);

}  // namespace orrery
