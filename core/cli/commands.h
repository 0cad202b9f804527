#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/verify/verify_options.h"

namespace orrery {

/// Command-line overrides of [sample].
struct SampleFlags {
    std::optional<std::string> prompt;
    std::optional<int64_t> tokens, top_k;
    std::optional<double> temperature;
    std::optional<uint64_t> seed;
};

/// Flags that the script commands share.
struct ScriptCommand {
    std::string script;                  ///< a .lua file; for sample also a run's folder
    std::string config;                  ///< TOML file; "": defaults
    std::vector<std::string> sets;       ///< "table.key=value"; later ones win
    std::vector<std::string> own_sets;   ///< set by the command: these override `sets`, and the script overrides them
    bool fresh = false;                  ///< run: move the folder's contents aside and start from scratch
    int64_t from_step = -1;              ///< run: step of the checkpoint to resume from; -1: the newest valid one
    bool script_help = false;            ///< print the options that the script declares
    std::string dump;                    ///< check: folder for the programs after each pass and the plans
    std::string show;                    ///< check: print only "program" or "plan"; "": the report
    int64_t rank = -1;                   ///< check: a rank, to print its plan only; -1: the plans of all ranks
    int64_t nodes = 1, node_rank = 0;    ///< number of hosts, and index of this one; check: 0 nodes: as many as needed
    std::string rendezvous;              ///< "host:port", for several nodes
    int64_t spares = 0;                  ///< run: nodes that wait to replace a lost one, numbered from `nodes` on
    double wait_node_s = 300;            ///< run: max seconds to wait for a missing node
    int64_t restarts = 0;                ///< run: max restarts in a row for the same cause, without a new step
    std::vector<std::string> arguments;  ///< the whole command line, for the rank processes
    SampleFlags sample;
    VerifyOptions verify;
    std::vector<std::string> injections;
};

struct TokenizeCommand {
    std::vector<std::string> files;         ///< texts, "-": standard input; without `out`: text and token file to write
    std::string out;                        ///< path of the written .bin and .idx files, without extension
    std::string tokenizer;                  ///< the tokenizer's folder or tokenizer.json; "": one token per byte
    std::string field, prompt, completion;  ///< keys of the texts in JSON lines; "": whole files
    std::string end;                        ///< token between documents; "": the tokenizer's end of text
    int threads = 0;                        ///< number of threads; 0: one per processor
    int token_bytes = 2;                    ///< bytes per token of the token file, if there is no `out`
    bool skip_bad = false;                  ///< leave out documents that cannot be read, instead of an error

    /// Whether files contain JSON lines.
    bool lines() const { return !field.empty() || !prompt.empty(); }
};

/// Draws a script's plan, or a schedule without a plan.
struct DrawCommand {
    std::string out;                            ///< an .svg file; "": text on the terminal
    std::string schedule;                       ///< schedule to draw instead of a script: its name, Lua file or orders
    int64_t stages = 0, micro = 0, chunks = 0;  ///< sizes of the drawn schedule; 0: its own
    std::string by = "unit", colour = "auto";
    int width = 0;  ///< columns of the drawing; 0: the terminal's
};

/// Predicts one step of a script's plan on a cluster, or on this machine from measured costs.
struct SimulateCommand {
    std::string cluster;               ///< a TOML file, as in configs/clusters; "": this machine
    int64_t cluster_nodes = 0;         ///< number of nodes, if the file has one kind; 0: as in the file
    std::vector<std::string> mapping;  ///< axes of the mesh, from the one inside a node outwards
    std::string software = "compiled";
    int64_t tp_chunks = 0;          ///< split tp collectives into this many chunks overlapped with matmuls; 0: not
                                    ///< split, as in `run`
    std::vector<std::string> slow;  ///< "RANK:TIMES": factor on the time of a rank's kernels
    double jitter = 0;
    double restart_s = 300;  ///< seconds from a failure until training continues
    std::string out;         ///< an .svg file; "": none
    std::string trace;       ///< a .json file for Perfetto; "": none
    bool json = false;
    // Fields for a simulation of this machine.
    std::vector<std::string> tables;    ///< files of measured costs; later ones take precedence
    double link_gbit = 0, link_us = 0;  ///< rate and latency of each rank's simulated link; rate 0: no link
    int64_t processors = 0;             ///< simulate this many processors; 0: as measured
    bool searched = false;  ///< this simulation is part of a search, where meshes without tp may ignore `tp_chunks`
    /// For one of many simulations: compiles only the train step, without proof; stores repeated micro-batches once.
    bool quick = false;
};

/// Searches for the fastest ways to run a script on a cluster, or on this machine if no cluster is given.
struct PlanCommand {
    SimulateCommand simulate{.searched = true};
    int64_t ranks = 0;              ///< number of ranks; 0: the cluster's accelerators, or this machine's processors
    int64_t most_tp = 0;            ///< max size of tp; 0: the accelerators of a node, or all ranks on this machine
    int64_t most_pp = 0;            ///< max size of pp; 0: 64
    int64_t jobs = 0;               ///< plans simulated concurrently; 0: one per processor
    std::vector<std::string> keep;  ///< options that are not varied: mesh, samples, zero, ...
};

struct NewPluginCommand {
    std::string kind, name;
    std::string folder;  ///< folder to create; "": `name` in the current folder
};

/// Checks and times each implementation of matrix products that a device has.
struct ProductsCommand {
    std::string device = "cpu", types = "f32,bf16";
    int64_t rank_threads = 0;       ///< CPU threads per rank; 0: the processors that this process may run on
    bool tried = false;             ///< measure the configured implementation in this process and print its rates
    std::vector<std::string> sets;  ///< "table.key=value" for [device.NAME] and [plugins]
};

/// Measures costs of this machine and writes them as a table.
struct CalibrateCommand {
    std::optional<std::string> out;         ///< output file; unset: standard output
    int64_t rank_threads = 0;               ///< threads per rank; 0: those of the script's run, or all allowed
                                            ///< processors if there is no script
    std::optional<std::string> transports;  ///< "shm,gloo" or "none"; unset: the script's transports, or all that run
                                            ///< on this host if there is no script
    std::string ranks;                      ///< numbers of ranks, "2,4"; "": sizes of the script's axes, or 2 if there
                                            ///< is no script
    double seconds = 90;                    ///< total time for kernels and transports
    std::string dtype = "f32";              ///< dtype of the kernels that are measured without a script
    bool keep = false;                      ///< also write the table to the user's cache folder
    std::vector<std::string> refit;         ///< runs' folders or tables to merge; nothing is measured
    std::string wire;                       ///< transport that this process measures, as its launcher or a rank; "":
                                            ///< none
    int64_t wire_ranks = 0;
    double wire_seconds = 0;
    std::vector<int64_t> bytes;  ///< message sizes in bytes; empty: usual_wire_bytes()
};

struct Job;  // defined in run/control/job.h

/// Prints the options that the command's script declares, for --help. Returns the exit code.
int show_options(const ScriptCommand& command, const Job& job);

/// Ends the process at once with exit code 1; callable from any thread.
[[noreturn]] void end_process(const std::string& text);

// Each command has one function, which returns the exit code and throws errors.
int run_command(const ScriptCommand& command);
int check_command(const ScriptCommand& command);
int verify_command(const ScriptCommand& command);
int sample_command(const ScriptCommand& command);
int draw_command(const ScriptCommand& script, const DrawCommand& command);
/// Throws Error unless the file of -o ends in .svg and can be written; "" (no -o) is allowed.
void require_svg(const std::string& file);
int simulate_command(const ScriptCommand& script, const SimulateCommand& command);
int plan_command(const ScriptCommand& script, const PlanCommand& command);
int new_plugin_command(const NewPluginCommand& command);
int tokenize_command(const TokenizeCommand& command);
int products_command(const ProductsCommand& command);
int calibrate_command(const ScriptCommand& script, const CalibrateCommand& command);
int plugins_command(const std::vector<std::string>& folders);
/// The output of `orrery --version`: version, ABI, and digests of the code of liborrery and of each plugin it finds.
std::string version_text();

}  // namespace orrery
