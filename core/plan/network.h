#pragma once
#include <fmt/format.h>

#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "orrery/communicator.h"
#include "orrery/error.h"

namespace orrery {

/// What the transports of a mesh promise, by the name of the axis that each serves. Axes that share messages ("rep+dp")
/// have one transport, so the first one's contract is theirs.
class Network {
public:
    using Contracts = std::map<std::string, TransportContract>;

    Network() = default;
    Network(std::initializer_list<Contracts::value_type> contracts) : contracts_(contracts) {}

    TransportContract& operator[](const std::string& axis) { return contracts_[axis]; }
    /// An axis without a transport, in a plan that is made for none, has the default contract.
    const TransportContract& of(const std::string& axis) const {
        static const TransportContract by_default;
        const auto found = find(axis);
        return found == contracts_.end() ? by_default : found->second;
    }
    /// Throws Fault::failed, naming the axis and those that have a transport.
    const TransportContract& at(const std::string& axis) const {
        if (const auto found = find(axis); found != contracts_.end()) return found->second;
        std::string names;
        for (const auto& [name, contract] : contracts_) names += (names.empty() ? "" : ", ") + name;
        throw Error(fmt::format("axis {} has no transport; there is one for: {}", axis, names), Fault::failed);
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
