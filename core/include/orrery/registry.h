#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/checkpoint.h"
#include "orrery/communicator.h"
#include "orrery/config.h"
#include "orrery/device.h"
#include "orrery/kernel.h"
#include "orrery/strategy.h"

namespace orrery {

class DataSource;
class Engine;
class Launcher;
class RendezvousBackend;
struct Codec;
struct OpDef;

/// Factories get the configuration table of the plugin, [KIND.NAME]. A key that a factory does not read is an error.
using DeviceFactory = std::function<std::unique_ptr<Device>(Config&)>;
using TransportFactory = std::function<std::unique_ptr<Transport>(Config&)>;
/// `origin` is the line of the script that asked for the strategy.
using StrategyFactory = std::function<std::unique_ptr<Strategy>(Config&, const Origin& origin)>;
/// `place` is the folder, URL or name of the run's checkpoints.
using StoreFactory = std::function<std::unique_ptr<CheckpointStore>(Config&, const std::string& place)>;
/// Makes a rendezvous backend, which can serve a rendezvous and join one (orrery/rendezvous.h).
using RendezvousFactory = std::function<std::unique_ptr<RendezvousBackend>(Config&)>;
/// `options` has the keys of the call o.data.NAME { ... } in the script (at `asked`), then those of the table [data].
using DataFactory = std::function<std::unique_ptr<DataSource>(Config& options, const Origin& asked)>;
/// A launcher has no configuration table, because it is used before the configuration is known to be valid.
using LauncherFactory = std::function<std::unique_ptr<Launcher>()>;

/// The engine's table is [submit.NAME].
using EngineFactory = std::function<std::unique_ptr<Engine>(Config&)>;

/// The factories of the loaded plugins. The session owns it and destroys it after all that the factories made.
class ORRERY_API Registry {
public:
    void add_device(std::string name, DeviceFactory make);
    void add_transport(std::string name, TransportFactory make);
    void add_strategy(std::string name, StrategyFactory make);
    void add_store(std::string name, StoreFactory make);
    void add_data(std::string name, DataFactory make);
    void add_rendezvous(std::string name, RendezvousFactory make);
    void add_launcher(std::string name, LauncherFactory make);
    void add_engine(std::string name, EngineFactory make);
    /// Adds a codec (orrery/codec.h) and sets its member `name`.
    void add_codec(std::string name, Codec codec);
    /// Adds an op of the plugin op/NAME. It is called NAME, or NAME_more for ops that its gradient needs.
    void add_op(OpDef op);
    /// Adds a kernel for an op of the same plugin and one kind of device: "cpu", "cuda", "reference" (orrery/kernel.h).
    void add_kernel(std::string op, std::string device_kind, KernelMaker make);

    // Return the factory of a name. For an unknown name, throw Error with the known names and a "did you mean".
    const DeviceFactory& device(std::string_view name, const Origin& asked) const;
    const TransportFactory& transport(std::string_view name, const Origin& asked) const;
    const StrategyFactory& strategy(std::string_view name, const Origin& asked) const;
    const StoreFactory& store(std::string_view name, const Origin& asked) const;
    const DataFactory& data(std::string_view name, const Origin& asked) const;
    const RendezvousFactory& rendezvous(std::string_view name, const Origin& asked) const;
    const LauncherFactory& launcher(std::string_view name, const Origin& asked) const;
    const EngineFactory& engine(std::string_view name, const Origin& asked) const;
    const Codec& codec(std::string_view name, const Origin& asked) const;

    struct AddedKernel {
        std::string op, device_kind;
        KernelMaker make;
    };
    const std::vector<std::shared_ptr<const OpDef>>& ops() const { return ops_; }
    const std::vector<AddedKernel>& kernels() const { return kernels_; }

    /// Names of all factories, sorted: "transport/gloo".
    std::vector<std::string> names() const;

private:
    template <class Factory>
    using Table = std::vector<std::pair<std::string, Factory>>;
    Table<DeviceFactory> devices_;
    Table<TransportFactory> transports_;
    Table<StrategyFactory> strategies_;
    Table<StoreFactory> stores_;
    Table<DataFactory> data_;
    Table<RendezvousFactory> rendezvous_;
    Table<LauncherFactory> launchers_;
    Table<EngineFactory> engines_;
    Table<std::shared_ptr<const Codec>> codecs_;
    std::vector<std::shared_ptr<const OpDef>> ops_;
    std::vector<AddedKernel> kernels_;
};

}  // namespace orrery
