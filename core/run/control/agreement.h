#pragma once
#include <string>
#include <utility>
#include <vector>

#include "orrery/config.h"
#include "run/control/exchange.h"

namespace orrery {

/// Names and values of settings that must be the same on all ranks: {"train.steps", "300"}.
using Agreement = std::vector<std::pair<std::string, std::string>>;

/// The values of a configuration, without those that may differ between hosts: paths, networks, processors, devices.
Agreement settings_of(const Config& config);

std::string encode(const Agreement& parts);

/// Compares the settings of all ranks by digest; values are sent only if they differ. Throws Fault::usage naming the
/// first rank that differs from rank 0, both hosts, and the first few keys that differ. Collective.
void require_agreement(Exchange& exchange, const std::string& topic, const Agreement& parts, const std::string& host);

}  // namespace orrery
