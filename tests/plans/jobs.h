// The jobs whose plans are kept: scripts and configurations, by name.
#pragma once
#include <string>
#include <vector>

namespace orrery::plans {

struct Job {
    std::string name;
    std::string script;     ///< below the source folder
    std::string toml;       ///< its configuration, or
    std::string config;     ///< the file that holds it, below configs/
    std::string transport;  ///< whose contract it is planned for
};

/// Every strategy, schedule, precision, ramp and recomputation, the large configurations, and 60 drawn at random.
std::vector<Job> jobs();

}  // namespace orrery::plans
