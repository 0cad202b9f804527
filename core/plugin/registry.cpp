#include "orrery/registry.h"

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "orrery/codec.h"
#include "orrery/data.h"
#include "orrery/engine.h"
#include "orrery/launcher.h"
#include "orrery/op.h"
#include "orrery/rendezvous.h"

namespace orrery {

namespace {

template <class Table, class Factory>
void add(Table& table, std::string_view kind, std::string name, Factory make) {
    for (const auto& entry : table) {
        if (entry.first == name) throw Error("the " + std::string(kind) + " " + quote(name) + " is registered twice");
    }
    table.emplace_back(std::move(name), std::move(make));
}

template <class Table>
const auto& find(const Table& table, std::string_view kind, std::string_view name, const Origin& asked) {
    std::vector<std::string> known;
    for (const auto& entry : table) {
        if (entry.first == name) return entry.second;
        known.push_back(entry.first);
    }
    throw Error(asked, "no " + std::string(kind) + " " + quote(name) + choices("loaded", name, std::move(known)));
}

template <class Table>
void collect(const Table& table, std::string_view kind, std::vector<std::string>& names) {
    for (const auto& entry : table) names.push_back(std::string(kind) + "/" + entry.first);
}

}  // namespace

void Registry::add_device(std::string name, DeviceFactory make) {
    add(devices_, "device", std::move(name), std::move(make));
}
void Registry::add_transport(std::string name, TransportFactory make) {
    add(transports_, "transport", std::move(name), std::move(make));
}
void Registry::add_strategy(std::string name, StrategyFactory make) {
    add(strategies_, "strategy", std::move(name), std::move(make));
}
void Registry::add_store(std::string name, StoreFactory make) {
    add(stores_, "store", std::move(name), std::move(make));
}
void Registry::add_data(std::string name, DataFactory make) { add(data_, "data", std::move(name), std::move(make)); }
void Registry::add_rendezvous(std::string name, RendezvousFactory make) {
    add(rendezvous_, "rendezvous", std::move(name), std::move(make));
}
void Registry::add_launcher(std::string name, LauncherFactory make) {
    add(launchers_, "launcher", std::move(name), std::move(make));
}
void Registry::add_engine(std::string name, EngineFactory make) {
    add(engines_, "engine", std::move(name), std::move(make));
}
void Registry::add_codec(std::string name, Codec codec) {
    codec.name = name;
    add(codecs_, "codec", std::move(name), std::make_shared<const Codec>(std::move(codec)));
}
void Registry::add_op(OpDef op) {
    const std::string name(op.name);
    for (const auto& known : ops_)
        if (known->name == op.name) throw Error("the op " + quote(name) + " is registered twice");
    ops_.push_back(std::make_shared<const OpDef>(std::move(op)));
}
void Registry::add_kernel(std::string op, std::string device_kind, KernelMaker make) {
    for (const AddedKernel& known : kernels_)
        if (known.op == op && known.device_kind == device_kind)
            throw Error("the kernel of " + quote(op) + " for device " + device_kind + " is registered twice");
    kernels_.push_back({std::move(op), std::move(device_kind), std::move(make)});
}

const DeviceFactory& Registry::device(std::string_view name, const Origin& asked) const {
    return find(devices_, "device", name, asked);
}
const TransportFactory& Registry::transport(std::string_view name, const Origin& asked) const {
    return find(transports_, "transport", name, asked);
}
const StrategyFactory& Registry::strategy(std::string_view name, const Origin& asked) const {
    return find(strategies_, "strategy", name, asked);
}
const StoreFactory& Registry::store(std::string_view name, const Origin& asked) const {
    return find(stores_, "store", name, asked);
}
const DataFactory& Registry::data(std::string_view name, const Origin& asked) const {
    return find(data_, "data", name, asked);
}
const RendezvousFactory& Registry::rendezvous(std::string_view name, const Origin& asked) const {
    return find(rendezvous_, "rendezvous", name, asked);
}
const LauncherFactory& Registry::launcher(std::string_view name, const Origin& asked) const {
    return find(launchers_, "launcher", name, asked);
}
const EngineFactory& Registry::engine(std::string_view name, const Origin& asked) const {
    return find(engines_, "engine", name, asked);
}
const Codec& Registry::codec(std::string_view name, const Origin& asked) const {
    return *find(codecs_, "codec", name, asked);
}

std::vector<std::string> Registry::names() const {
    std::vector<std::string> names;
    collect(devices_, "device", names);
    collect(transports_, "transport", names);
    collect(strategies_, "strategy", names);
    collect(stores_, "store", names);
    collect(data_, "data", names);
    collect(rendezvous_, "rendezvous", names);
    collect(launchers_, "launcher", names);
    collect(engines_, "engine", names);
    collect(codecs_, "codec", names);
    for (const auto& op : ops_) names.push_back("op/" + std::string(op->name));
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace orrery
