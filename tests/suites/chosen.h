#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/loader.h"

/// Which plugins of a kind a suite runs on, where they are and what they are given: those of this build, or installed
/// with the suite, or those that the environment names.
namespace orrery::suites {

/// ORRERY_CONFORMANCE_STORES=NAME,NAME (TRANSPORTS, DATA, DEVICES, RENDEZVOUS, LAUNCHERS, ENGINES, CODECS): these
/// alone. Empty: all.
std::vector<std::string> chosen(std::string_view kind);
/// ORRERY_CONFORMANCE_PLUGINS=FOLDER first, then those of this Orrery.
std::vector<std::string> folders();
/// The plugins to run on, loadable or not. Ends the program when a chosen one is in no folder or cannot be loaded.
std::vector<PluginReport> plugins(std::string_view kind);
/// Names of those that can be loaded and used on this machine; the others are printed with the reason.
std::vector<std::string> usable(std::string_view kind);
/// The registry of one of them, which outlives what is made from it.
const Registry& loaded(std::string_view kind, const std::string& name);
/// The keys that its factory gets: table [KIND.NAME] of the file ORRERY_CONFORMANCE_CONFIG, of a data source [data].
Config settings(std::string_view kind, const std::string& name);

/// A folder that does not exist yet, removed at the end.
class Scratch {
public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    std::filesystem::path path;

private:
    std::filesystem::path parent_;
};

}  // namespace orrery::suites
