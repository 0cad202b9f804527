#pragma once
#include <string>
#include <utility>
#include <vector>

#include "orrery/config.h"

namespace orrery {

/// What all ranks must have alike, each part with a name: "train.steps" and "300".
using Agreement = std::vector<std::pair<std::string, std::string>>;

/// Every key of the configuration but those that may differ from host to host: places of files, network interfaces,
/// processors and devices.
Agreement settings_of(const Config& config);

std::string encode(const Agreement& parts);

/// `all`: encoded, by rank; `hosts`: their names, for the message. Throws Fault::peer naming the first rank that
/// differs from rank 0, and in what; of several parts the first few.
void require_agreement(const std::vector<std::string>& all, const std::vector<std::string>& hosts = {});

}  // namespace orrery
