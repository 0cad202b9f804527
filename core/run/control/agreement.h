#pragma once
#include <string>
#include <utility>
#include <vector>

#include "orrery/config.h"
#include "run/control/exchange.h"

namespace orrery {

/// What all ranks must have alike, each part with a name: "train.steps" and "300".
using Agreement = std::vector<std::pair<std::string, std::string>>;

/// Every key of the configuration but those that may differ from host to host: places of files, network interfaces,
/// processors and devices.
Agreement settings_of(const Config& config);

std::string encode(const Agreement& parts);

/// Every rank's parts, by digest; what they are is only told where they differ. Throws Fault::usage naming the first
/// rank that differs from rank 0, both hosts, and in what; of several parts the first few. Collective.
void require_agreement(Exchange& exchange, const std::string& topic, const Agreement& parts, const std::string& host);

}  // namespace orrery
