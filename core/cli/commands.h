#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/verify/verify_options.h"

namespace orrery {

/// What the command line says over [sample].
struct SampleFlags {
    std::optional<std::string> prompt;
    std::optional<int64_t> tokens, top_k;
    std::optional<double> temperature;
    std::optional<uint64_t> seed;
};

/// What the script commands share.
struct ScriptCommand {
    std::string script;                  ///< a .lua file; for sample also a run's folder
    std::string config;                  ///< TOML file, "" for defaults
    std::vector<std::string> sets;       ///< "table.key=value", later ones win
    std::vector<std::string> own_sets;   ///< the same of the command itself, over those; the script may give them
    bool fresh = false;                  ///< run: move what the folder holds aside and start over
    int64_t from_step = -1;              ///< run: the checkpoint to go on from; -1: the newest good one
    bool script_help = false;            ///< print the options that the script declares
    std::string dump;                    ///< check: the folder for programs after each pass and plans
    std::string show;                    ///< check: "program" or "plan", and nothing else
    int64_t rank = -1;                   ///< check: of that plan; -1: all classes
    int64_t nodes = 1, node_rank = 0;    ///< nodes 0 (check): as many hosts as it takes
    std::string rendezvous;              ///< "host:port", for several nodes
    int64_t spares = 0;                  ///< run: nodes that wait for the loss of another, numbered from `nodes` on
    double wait_node_s = 300;            ///< run: longest wait for a node that is missing
    int64_t restarts = 0;                ///< run: after a failure, of each cause without a new step between
    std::vector<std::string> arguments;  ///< the whole command line, for the rank processes
    SampleFlags sample;
    VerifyOptions verify;
    std::vector<std::string> injections;
};

struct TokenizeCommand {
    std::vector<std::string> files;         ///< texts, "-" for standard input; without `out` a text and a token file
    std::string out;                        ///< for out.bin, out.idx
    std::string tokenizer;                  ///< a folder or a tokenizer.json; "": a byte a token
    std::string field, prompt, completion;  ///< keys of lines of JSON; "": whole files
    std::string end;                        ///< the token between documents; "": the folder's end of text
    int threads = 0;                        ///< 0: a thread a processor
    int token_bytes = 2;                    ///< without `out`

    /// Files are lines of JSON.
    bool lines() const { return !field.empty() || !prompt.empty(); }
};

/// A picture of a script's plan, or of a bare schedule.
struct DrawCommand {
    std::string out;                            ///< an .svg file; "": text on the terminal
    std::string schedule;                       ///< instead of a script: a name, a Lua file or a file of orders
    int64_t stages = 0, micro = 0, chunks = 0;  ///< 0: as the schedule has them
    std::string by = "unit", colour = "auto";
    int width = 0;  ///< columns; 0: the terminal's
};

/// One step of a script's plan on a cluster that is not here, or on this machine by measured costs.
struct SimulateCommand {
    std::string cluster;               ///< a TOML file, configs/clusters; "": this machine
    int64_t cluster_nodes = 0;         ///< of its one kind; 0: as many as the file says
    std::vector<std::string> mapping;  ///< axes, the innermost first
    std::string software = "compiled";
    int64_t tp_chunks = 0;          ///< collectives of tp in so many chunks beside their products; 0: whole, as `run`
    std::vector<std::string> slow;  ///< "RANK:TIMES"
    double jitter = 0;
    double restart_s = 300;  ///< from a failure until training goes on
    std::string out;         ///< an .svg file; "": none
    std::string trace;       ///< a .json file for Perfetto; "": none
    bool json = false;
    // Of this machine.
    std::vector<std::string> tables;    ///< of measured costs; later ones go first
    double link_gbit = 0, link_us = 0;  ///< what if each rank had a link of this rate; 0: none but memory
    int64_t processors = 0;             ///< what if the host had so many; 0: as measured
    bool searched = false;  ///< of a search, in which meshes without tp have nothing that `tp_chunks` could cut
    /// One of many: the train step alone, without its proof, its steady state stored once.
    bool quick = false;
};

/// A search for the fastest ways to run a script on a cluster, or without one on this machine.
struct PlanCommand {
    SimulateCommand simulate{.searched = true};
    int64_t ranks = 0;              ///< 0: all accelerators of the cluster; here one a processor
    int64_t most_tp = 0;            ///< 0: the accelerators of a node; here all ranks
    int64_t most_pp = 0;            ///< 0: 64
    int64_t jobs = 0;               ///< choices that are looked at at the same time; 0: as many as processors
    std::vector<std::string> keep;  ///< options that stay as configured: mesh, samples, zero, ...
};

struct NewPluginCommand {
    std::string kind, name;
    std::string folder;  ///< "": the name, in the current folder
};

/// Matrix products in each kind that a device has.
struct ProductsCommand {
    std::string device = "cpu", types = "f32,bf16";
    int64_t rank_threads = 0;       ///< 0: the processors that this process may run on
    bool tried = false;             ///< the kind that is set alone, in this process: prints its rates
    std::vector<std::string> sets;  ///< of [device.NAME] and [plugins]
};

/// Measured costs of this machine, as a table.
struct CalibrateCommand {
    std::optional<std::string> out;         ///< file; none: standard output
    int64_t rank_threads = 0;               ///< 0: of a script what its run would have, else the processors allowed
    std::optional<std::string> transports;  ///< "shm,gloo", "none"; none: of a script its own, else all that run here
    std::string ranks;                      ///< "2,4"; "": of a script the sizes of its axes, else 2
    double seconds = 90;                    ///< of measuring, kernels and transports together
    std::string dtype = "f32";              ///< of the grid
    bool keep = false;                      ///< in the user's cache folder, for this machine
    std::vector<std::string> refit;         ///< runs' folders, or tables that they wrote: nothing is measured
    std::string wire;                       ///< this process is the launcher or a rank of this transport's ranks
    int64_t wire_ranks = 0;
    double wire_seconds = 0;
    std::vector<int64_t> bytes;  ///< sizes of messages; empty: the usual
};

struct Job;  // run/control/job.h

/// Prints the options that the command's script declares, for --help. Returns the exit code.
int show_options(const ScriptCommand& command, const Job& job);

/// Ends the process at once, with exit code 1, from any thread.
[[noreturn]] void end_process(const std::string& text);

// One function per command, each in a file of its own. They return the exit code; errors are thrown.
int run_command(const ScriptCommand& command);
int check_command(const ScriptCommand& command);
int verify_command(const ScriptCommand& command);
int sample_command(const ScriptCommand& command);
int draw_command(const ScriptCommand& script, const DrawCommand& command);
/// Throws Error unless the file of -o is named .svg and can be written; "": there is none.
void require_svg(const std::string& file);
int simulate_command(const ScriptCommand& script, const SimulateCommand& command);
int plan_command(const ScriptCommand& script, const PlanCommand& command);
int new_plugin_command(const NewPluginCommand& command);
int tokenize_command(const TokenizeCommand& command);
int products_command(const ProductsCommand& command);
int calibrate_command(const ScriptCommand& script, const CalibrateCommand& command);
int plugins_command(const std::vector<std::string>& folders);
/// What `orrery --version` prints: version, ABI, and digests of the code of liborrery and of each plugin it would find.
std::string version_text();

}  // namespace orrery
