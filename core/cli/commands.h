#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/verify/verify_options.h"

namespace orrery {

struct SampleFlags {
    std::optional<std::string> prompt;
    std::optional<int64_t> tokens, top_k;
    std::optional<double> temperature;
    std::optional<uint64_t> seed;
};

/// The flags of all commands that take a script; some are for one command only.
struct ScriptCommand {
    std::string script;                 ///< a .lua file; for sample also a run's folder
    std::string config;                 ///< TOML file; "": defaults
    std::vector<std::string> sets;      ///< "table.key=value"; later ones win
    std::vector<std::string> own_sets;  ///< the command's settings: win over `sets`, lose to calls of the script
    bool verbose = false;               ///< run: print the resolved configuration, too
    bool fresh = false;                 ///< run: move the folder's contents aside and start from scratch
    int64_t from_step = -1;             ///< run: step of the checkpoint to resume from; -1: the newest valid one
    bool script_help = false;           ///< print the options that the script declares
    std::string dump;                   ///< check: folder to write the plans to, and the programs after each pass
    std::string show;                   ///< check: print only "program" or "plan"; "": the report
    std::string program;                ///< check: program of the round to print; "": the first
    int64_t rank = -1;                  ///< check: rank whose plan alone is printed; -1: the plans of all ranks
    int64_t nodes = 1, node_rank = 0;   ///< number of hosts and of this one; check: 0 hosts: as many as needed
    std::string rendezvous;             ///< "host:port", for several nodes
    std::string job, token;  ///< id and secret of the job, from what started this node's launcher (srun); "": none
    int64_t spares = 0;  ///< run: number of extra nodes that wait to replace a lost one; their numbers begin at `nodes`
    std::optional<double> wait_node_s;   ///< run: max seconds to wait for a missing node; unset: the default, 300
    bool drain_ends_job = false;         ///< run: a node that is asked to leave ends the job on all nodes
    int64_t restarts = 0;                ///< run: max restarts in a row that have the same cause and finish no new step
    std::vector<std::string> arguments;  ///< the whole command line, repeated for each rank process
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
    int threads = 0;                        ///< 0: one per processor
    int token_bytes = 2;                    ///< bytes per token of the token file, used if there is no `out`
    bool skip_bad = false;                  ///< leave out unreadable documents; false: they are errors

    bool lines() const { return !field.empty() || !prompt.empty(); }
};

struct DrawCommand {
    std::string out;       ///< an .svg file; "": text on the terminal
    std::string schedule;  ///< draws a schedule instead of a script's plan: its name, its Lua file or a file of orders
    int64_t stages = 0, micro = 0, chunks = 0;  ///< stages, micro-batches and chunks of the schedule; 0: its own
    std::string program;                        ///< program of the round to draw; "": the first
    std::string by = "unit", colour = "auto";
    int width = 0;  ///< columns of the drawing; 0: the terminal's
};

/// Predicts one step of a script's plan on a cluster, or on this machine from measured costs.
struct SimulateCommand {
    std::string cluster;        ///< a TOML file, as in configs/clusters; "": this machine
    int64_t cluster_nodes = 0;  ///< number of nodes, if the cluster's file has one kind of nodes; 0: as in the file
    std::vector<std::string> mapping;  ///< axes of the mesh, from the one inside a node outwards
    std::string software = "orrery";   ///< a file of configs/software, by name or as a path that ends in .toml
    int64_t tp_chunks = 0;          ///< split tp collectives into so many chunks, overlapped with matmuls; 0: not split
    double imbalance = 0;           ///< load of each expert of the busiest rank over the mean; 0: all slots are full
    std::vector<std::string> slow;  ///< "RANK:TIMES": factor on the time of a rank's kernels
    double jitter = 0;
    double tokens = 0;       ///< of a whole training, to predict its days and price; 0: not asked for
    double restart_s = 300;  ///< seconds from a failure until training continues
    std::string out;         ///< an .svg file; "": none
    std::string trace;       ///< a .json file for Perfetto; "": none
    bool json = false;
    std::vector<std::string> tables;    ///< files of measured costs; later ones take precedence
    double link_gbit = 0, link_us = 0;  ///< rate and latency of each rank's simulated link; rate 0: no link
    int64_t processors = 0;             ///< number of simulated processors; 0: as measured
    bool searched = false;              ///< true: part of a search, where a mesh without tp may ignore `tp_chunks`
    /// One of many simulations: compiles only the train step, without proof; stores repeated micro-batches once.
    bool quick = false;
};

/// Searches for the fastest ways to run a script on a cluster, or on this machine if no cluster is given.
struct PlanCommand {
    SimulateCommand simulate{.searched = true};
    int64_t ranks = 0;              ///< 0: as many ranks as the cluster has accelerators, or this machine processors
    int64_t most_tp = 0;            ///< max size of tp; 0: the accelerators of a node, or all ranks on this machine
    int64_t most_pp = 0;            ///< max size of pp; 0: 64
    int64_t most_cp = 0;            ///< max size of cp; 0: so that a rank has 4,096 tokens of a row, or here all ranks
    int64_t most_ep = 0;            ///< max size of ep; 0: the number of experts
    int64_t jobs = 0;               ///< number of plans simulated at a time; 0: one per processor
    double seconds = 0;             ///< max duration of the search; 0: until it ends
    std::vector<std::string> keep;  ///< options that the search does not vary: mesh, samples, zero, ...
};

struct NewPluginCommand {
    std::string kind, name;
    std::string folder;  ///< folder to create; "": `name` in the current folder
};

struct InitCommand {
    std::string folder;  ///< folder to create; its last part is the experiment's name
    std::string data;    ///< text to train on; "": the manual's, which is copied
};

struct ProductsCommand {
    std::string device = "cpu", types = "f32,bf16";
    int64_t rank_threads = 0;  ///< CPU threads per rank; 0: the processors that this process may run on
    bool tried = false;  ///< true: a child process that measures the configured implementation and prints its rates
    std::vector<std::string> sets;  ///< "table.key=value" for [device.NAME] and [plugins]
};

struct CalibrateCommand {
    std::optional<std::string> out;         ///< output file; unset: standard output
    int64_t rank_threads = 0;               ///< CPU threads per rank; 0: as the script's run, or all processors
    std::optional<std::string> transports;  ///< names, "shm,gloo", or "none"; unset: the script's, or all that run here
    std::string ranks;                      ///< numbers of ranks, "2,4"; "": the script's, or 2 without a script
    double seconds = 90;                    ///< total time for kernels and transports
    std::string dtype = "f32";              ///< dtype of the kernels that are measured without a script
    bool keep = false;                      ///< true: also write the table to the user's cache folder
    std::vector<std::string> refit;         ///< folders of runs, or tables, to merge instead of measuring
    std::string wire;                       ///< child process: the transport to measure; "": not such a child
    int64_t wire_ranks = 0;
    double wire_seconds = 0;
    std::vector<int64_t> bytes;  ///< message sizes to measure, in bytes; empty: usual_wire_bytes()
};

struct Job;  // defined in run/control/job.h

int show_options(const ScriptCommand& command, const Job& job);

/// Ends the process at once with exit code 1; callable from any thread.
[[noreturn]] void end_process(const std::string& text);

// Each command has one function. It returns the exit code and throws errors.
int run_command(const ScriptCommand& command);
int check_command(const ScriptCommand& command);
int verify_command(const ScriptCommand& command);
int sample_command(const ScriptCommand& command);
int draw_command(const ScriptCommand& script, const DrawCommand& command);
/// Throws Error unless the file of -o ends in .svg and can be written; "" (no -o) is allowed.
void require_svg(const std::string& file);
int simulate_command(const ScriptCommand& script, const SimulateCommand& command);
int plan_command(const ScriptCommand& script, const PlanCommand& command);
int init_command(const InitCommand& command);
int new_plugin_command(const NewPluginCommand& command);
int tokenize_command(const TokenizeCommand& command);
int products_command(const ProductsCommand& command);
int calibrate_command(const ScriptCommand& script, const CalibrateCommand& command);
int plugins_command(const std::vector<std::string>& folders);
/// The output of `orrery --version`: version, ABI, and digests of the code of liborrery and of each plugin it finds.
std::string version_text();

}  // namespace orrery
