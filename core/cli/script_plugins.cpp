// Which plugins a script's run loads, and what their tables hold.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/script_host.h"
#include "config/load.h"

namespace orrery {

void ScriptHost::load_plugins() {
    check_backends(config_, loader_.names());
    Config& run = config_.table("run");
    loader_.load("device", settings_.device, registry_, run.where("device"));
    loader_.load("store", settings_.store, registry_, run.where("store"));
    choose_transport();
    for (const Axis& axis : settings_.mesh.axes())
        if (axis.size > 1)
            loader_.load("transport", settings_.transport_of(axis.name), registry_,
                         transport_origin(settings_, config_, axis.name));
    if (mode_ == Mode::verify)
        loader_.load("transport", settings_.transport, registry_, run.where("transport"));  // on one rank, too
    contracts_ = contracts_of(settings_, config_, registry_);
}

/// Where nobody named a transport and the default one does not serve the device: the one that does, if any.
void ScriptHost::choose_transport() {
    Config& run = config_.table("run");
    const Origin device = run.where("device");
    const auto& axes = settings_.mesh.axes();
    const bool needed = std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) {
        return axis.size > 1 && !settings_.axis_transport.count(axis.name);
    });
    if (!needed || run.where("transport").file != "default" || mode_ == Mode::verify) return;
    const auto serves_device = [&](const std::string& name) {
        loader_.load("transport", name, registry_, device);
        Config none;
        Config& tables = config_.table("transport");
        Config& options = tables.has(name) ? tables.table(name) : none;
        return serves(registry_.transport(name, device)(options)->contract(), settings_.device);
    };
    if (serves_device(settings_.transport)) return;
    const std::string kind = "transport/";
    std::vector<std::string> found;
    std::string reasons;
    for (const std::string& plugin : loader_.names()) {
        if (plugin.rfind(kind, 0) != 0) continue;
        const std::string name = plugin.substr(kind.size());
        try {
            if (serves_device(name)) found.push_back(name);
        } catch (const Error& problem) {
            reasons += fmt::format("\n  {}: {}", name, problem.what());
        }
    }
    if (found.size() > 1)
        throw Error(device, fmt::format("the transports {} serve device \"{}\"\n  name one of them: run.transport",
                                        fmt::join(found, ", "), settings_.device));
    if (found.empty() && !reasons.empty())
        throw Error(device,
                    fmt::format("no transport serves the memory of device \"{}\"; name one that stages it (gloo, "
                                "ucx) in run.transport, or mend what cannot be used:{}",
                                settings_.device, reasons));
    if (found.empty()) return;  // the default one is refused with the reason
    settings_.transport = found.front();
    run.set("transport", {settings_.transport, {"", "default of device " + settings_.device, 0, 0}, true});
}

void ScriptHost::check_tables() {
    for (const char* kind : {"device", "store", "transport"}) {
        Config& tables = config_.table(kind);
        for (const std::string& name : tables.keys()) {
            const bool is_table = std::holds_alternative<std::shared_ptr<Config>>(tables.find(name)->data);
            if (!is_table || (kind == std::string("transport") && name == "axis")) continue;
            Config& options = tables.table(name);
            try {
                loader_.load(kind, name, registry_, options.origin());
            } catch (const Error& problem) {
                // A table for another machine's backend; a backend of this run has been loaded before.
                notes_.push_back(fmt::format("not looked at: [{}]: {}", options.path(), problem.what()));
                continue;
            }
            if (const std::string why = loader_.cannot_run(kind, name); !why.empty()) {
                notes_.push_back(fmt::format("not looked at: [{}]: it cannot run here: {}", options.path(), why));
                continue;
            }
            const bool device = kind == std::string("device");
            if (device && name != "cpu" && leaves_device_to_ranks()) continue;
            if (device) registry_.device(name, options.origin())(options);
            if (kind == std::string("store"))
                registry_.store(name, options.origin())(options, folder() + "/checkpoints");
            if (kind == std::string("transport")) registry_.transport(name, options.origin())(options);
            options.reject_unused();
        }
    }
}

}  // namespace orrery
