#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/host.h"
#include "run/verify.h"

namespace orrery {

/// What the script commands share.
struct ScriptCommand {
    std::string script;             ///< a .lua file; for sample also a run's folder
    std::string config;             ///< TOML file, "" for defaults
    std::vector<std::string> sets;  ///< "table.key=value", later ones win
    bool fresh = false;             ///< run: refuse to resume, start over in an empty folder
    bool script_help = false;       ///< print the options that the script declares
    int64_t nodes = 1, node_rank = 0;
    std::string rendezvous;              ///< "host:port", for several nodes
    std::vector<std::string> arguments;  ///< the whole command line, for the rank processes
    SampleOptions sample;
    VerifyOptions verify;
    std::vector<std::string> injections;
};

struct TokenizeCommand {
    std::string text, bin;
    int token_bytes = 2;
};

// One function per command, each in a file of its own. They return the exit code; errors are thrown.
int run_command(const ScriptCommand& command);
int check_command(const ScriptCommand& command);
int verify_command(const ScriptCommand& command);
int sample_command(const ScriptCommand& command);
int tokenize_command(const TokenizeCommand& command);
int plugins_command(const std::vector<std::string>& folders);

}  // namespace orrery
