#pragma once
#include <fmt/format.h>

#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "orrery/communicator.h"
#include "orrery/error.h"

namespace orrery {

/// The transport contracts of a mesh, by axis name. A joined axis ("rep+dp") has the contract of its first axis.
class Network {
public:
    using Contracts = std::map<std::string, TransportContract>;

    Network() = default;
    Network(std::initializer_list<Contracts::value_type> contracts) : contracts_(contracts) {}

    TransportContract& operator[](const std::string& axis) { return contracts_[axis]; }
    /// The transport contract of an axis; the default contract if the axis has no transport.
    const TransportContract& of(const std::string& axis) const {
        static const TransportContract by_default;
        const auto found = find(axis);
        return found == contracts_.end() ? by_default : found->second;
    }
    /// The transport contract of an axis. Throws Fault::failed if the axis has none, naming the axes that have one.
    const TransportContract& at(const std::string& axis) const {
        if (const auto found = find(axis); found != contracts_.end()) return found->second;
        std::string names;
        for (const auto& [name, contract] : contracts_) names += (names.empty() ? "" : ", ") + name;
        throw Error(fmt::format("axis {} has no transport; axes that have one: {}", axis, names), Fault::failed);
    }
    Contracts::const_iterator begin() const { return contracts_.begin(); }
    Contracts::const_iterator end() const { return contracts_.end(); }

private:
    Contracts::const_iterator find(const std::string& axis) const {
        const auto found = contracts_.find(axis);
        return found != contracts_.end() ? found : contracts_.find(axis.substr(0, axis.find('+')));
    }

    Contracts contracts_;
};

}  // namespace orrery
