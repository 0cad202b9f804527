#pragma once
#include <string>
#include <vector>

#include "plugin/loader.h"

/// Which transports the suite runs on, and where they are: those of this build or beside the installed suite, or those
/// that the environment names.
namespace orrery::conformance {

/// ORRERY_CONFORMANCE_TRANSPORTS=NAME,NAME: these alone. Empty: all that there are.
std::vector<std::string> chosen();
/// ORRERY_CONFORMANCE_PLUGINS=FOLDER first, then those of this Orrery.
std::vector<std::string> plugins_of_suite();
/// Of the transports to run, loadable or not. Ends the program when a chosen one is in no folder or cannot be loaded.
std::vector<PluginReport> transports();

}  // namespace orrery::conformance
