#include "config/schema.h"

#include <algorithm>

namespace orrery {

std::string_view name_of(ConfigKind kind) {
    switch (kind) {
        case ConfigKind::flag: return "true or false";
        case ConfigKind::integer: return "an integer";
        case ConfigKind::number: return "a number";
        case ConfigKind::text: return "a text";
        case ConfigKind::texts: return "a list of texts";
    }
    return "";
}

static SchemaKey of_host(SchemaKey key) {
    key.per_host = true;
    return key;
}

const std::vector<SchemaKey>& schema() {
    using enum ConfigKind;
    constexpr double anything = -std::numeric_limits<double>::infinity();
    static const std::vector<SchemaKey> keys = {
        of_host({"run", "script", text, "\"\"", "the script of this run; set by the command"}),
        {"run", "device", text, "\"cpu\"", "device plugin that runs the kernels"},
        {"run", "transport", text, "\"shm\"",
         "transport plugin for every axis that [transport.axis] leaves out; unset: the one that serves the device, "
         "if shm "
         "does not"},
        {"run", "store", text, "\"posix\"", "store plugin of the checkpoints"},
        {"run", "rendezvous", text, "\"tcp\"",
         "rendezvous plugin by which the ranks meet; where they do is said by --rendezvous or their launcher"},
        of_host(
            {"run", "launcher", text, "\"auto\"",
             "launcher plugin that started the ranks; auto: detected from the environment, else `orrery run`; orrery: "
             "always `orrery run`"}),
        of_host({"run", "folder", text, "",
                 "folder of the run: metrics, resolved config, checkpoints (default: runs/NAME, "
                 "the name that the script traces its program under)"}),
        {"run", "seed", integer, "1", "seed of weights, dropout and data order", 0},
        of_host({"run", "ranks", integer, "", "rank processes of one host; hosts times these are the mesh's ranks", 1}),
        {"run", "threads_per_rank", integer, "0",
         "CPU threads of one rank; 0: the processors allowed, divided by the ranks of this host", 0},
        of_host({"run", "pin_ranks", flag, "true",
                 "give each rank process processors of its own, by sockets and cores and near its GPU, where there are "
                 "enough for its threads and no launcher has bound it"}),
        {"run", "overlap", text, "\"auto\"",
         "collectives on a thread of their own, beside what the rank computes; auto: where its processors are more "
         "than "
         "its threads. Not over an axis whose transport also sends a pipeline's messages; nccl always does",
         anything, "auto|on|off"},
        {"run", "join_timeout_s", number, "30", "longest wait for all ranks to come and agree, before the first step",
         0.001},
        {"run", "silence_s", number, "10",
         "silence after which a rank, a launcher or who holds the rendezvous counts as lost; the same on all hosts", 2},
        {"run", "timeout_s", number, "",
         "longest wait for a rank that has come (default: 30, and inside a step what the plan's flops and bytes may "
         "take); if set, also the longest call of a data plugin",
         0.001},
        {"run", "resume", text, "\"auto\"",
         "auto: continue from the folder's newest checkpoint, if any; never: refuse a folder that has one; required: "
         "refuse one that has none",
         anything, "auto|never|required"},
        {"run", "grace_s", number, "",
         "seconds from a signal or notice to the end of the machine: a step and a save that do not fit are left out "
         "(default: there is time for both)",
         0.001},
        {"run", "notice_file", text, "",
         "if this file appears on a host, its launcher acts as on SIGTERM: the run stops, or this node leaves"},
        of_host({"run", "output", text, "\"first\"",
                 "output of ranks on the terminal; first: rank 0's; all: every rank's, each line with its rank. "
                 "All of it is in logs/ of the run's folder",
                 anything, "first|all"}),
        {"run", "ports", text, "",
         "\"29501-29600\": the only ports at which the job's processes listen, for firewalls, except those of "
         "--rendezvous and MASTER_PORT (default: those that the system chooses)"},
        {"run", "disk_timeout_s", number, "600",
         "with --restarts: longest wait of a rank for a disk, in one piece, before the ranks are started anew", 0.001},
        {"run", "trace", text, "",
         "file for a trace of one step of all ranks, which ui.perfetto.dev shows: kernels, messages, waits"},
        {"run", "trace_step", integer, "0", "the step of it; 0: the tenth of this start, or its last", 0},
        {"mesh", "*", integer, "", "size of an axis, outermost first", 1},
        {"train", "steps", integer, "", "optimizer steps", 1},
        {"train", "sequences_per_step", integer, "", "global batch: sequences of one optimizer step", 1},
        {"train", "ramp_start", integer, "", "sequences of the first step, when the batch grows at the start", 1},
        {"train", "ramp_increment", integer, "", "sequences by which it grows each time, up to sequences_per_step", 1},
        {"train", "ramp_samples", integer, "", "sequences over which it grows, each size for an equal share of them",
         1},
        {"train", "microbatches", integer, "", "pieces of a step that run one after the other", 1},
        {"train", "precision", text, "\"f32\"",
         "type of activations and matrix operands; fp8: bf16 with 8-bit products", anything, "f32|bf16|f16|fp8"},
        {"train", "evaluate_every", integer, "0", "steps between evaluations; 0: only at the end", 0},
        {"train", "evaluate_batches", integer, "8", "batches of one evaluation", 1},
        {"train", "log_every", integer, "1", "steps between step lines", 1},
        {"train", "max_skips", integer, "50",
         "steps in a row without an update, at the min loss scale, after which a run fails; 0: never", 0},
        of_host({"data", "path", text, "", "text file or token file (.bin)"}),
        of_host({"data", "mix", texts, "[]", "instead of path: several, with weights, as \"0.7 data/web.bin\""}),
        {"data", "token_bytes", integer, "",
         "bytes of an id in a token file that does not record it: 2 or 4 (default: 2, refused where the file looks "
         "like 4)",
         2},
        {"data", "tokens_per_sequence", integer, "", "length of one training sequence", 1},
        {"data", "separator", integer, "", "packed documents: the id that ends each, in a file without .idx", 0},
        {"data", "field", text, "", "packed documents: the key of the text in lines of JSON (default: text)"},
        {"data", "vocab", integer, "", "number of token ids; larger ids in the data are an error", 1},
        of_host({"data", "tokenizer", text, "",
                 "tokenizer of the ids: a published folder or its tokenizer.json; data.vocab follows from it (default: "
                 "the one "
                 "in the folder of checkpoint.load)"}),
        {"data", "validation", number, "0.05",
         "share of the samples kept for evaluation, at most 0.5: one block of 16 in round(1/share)", 0},
        of_host({"data", "validation_path", text, "", "a file to evaluate; no share is held out then"}),
        of_host({"device", "memory_gib", number, "", "memory of one device; plans that need more are refused", 0}),
        {"checkpoint", "every_steps", integer, "0", "steps between checkpoints; 0: only at the end", 0},
        {"checkpoint", "every", text, "\"steps\"",
         "steps: as every_steps says; auto: the interval with which most gets done, from what a save costs and how "
         "often nodes fail",
         anything, "steps|auto"},
        {"checkpoint", "mtbf_days", number, "", "days that a node runs between two failures, for every = \"auto\"", 0},
        {"checkpoint", "async", flag, "true",
         "saves run beside the steps, from a copy of params and states; false: the step waits for them"},
        {"checkpoint", "final", flag, "true",
         "a checkpoint at the end; false, for benchmarks: the run leaves none of it"},
        {"checkpoint", "keep", integer, "2", "the newest verified checkpoints that stay", 2},
        {"checkpoint", "keep_every_steps", integer, "0", "and those of steps that this divides; 0: none for that", 0},
        {"checkpoint", "keep_hourly", integer, "0", "and the newest of each of the last so many hours that have one",
         0},
        {"checkpoint", "keep_daily", integer, "0", "and the newest of each of the last so many days (UTC)", 0},
        {"checkpoint", "keep_best", integer, "0",
         "and those of the least loss on held-out data, of the steps that were evaluated", 0},
        {"checkpoint", "suspect_factor", number, "1000",
         "a step is marked as suspect where the next one's loss is above so many times the median of the last 64; 0: "
         "only where it is not finite",
         0},
        {"checkpoint", "drop", texts, "[]",
         "names of tensors that a resumed run drops from a checkpoint if its program does not have them; * matches any "
         "characters, as in \"*.error.dp\""},
        of_host({"checkpoint", "load", text, "",
                 "initial weights: a safetensors file, or a folder with model.safetensors or its index"}),
        of_host({"metrics", "tensorboard", flag, "true",
                 "event files for TensorBoard, in tensorboard/ of the run's folder"}),
        of_host({"metrics", "prometheus", text, "",
                 "file for the newest numbers in Prometheus' text format, which node_exporter's textfile collector "
                 "reads where "
                 "its name ends in .prom"}),
        of_host({"sample", "tokens", integer, "256", "tokens to sample", 1}),
        of_host({"sample", "temperature", number, "0.8", "0 takes the likeliest token", 0}),
        of_host({"sample", "top_k", integer, "0", "sample among the likeliest so many tokens; 0: all", 0}),
        of_host({"sample", "prompt", text, "\"\"", "text to continue"}),
        {"simulate", "table", text, "",
         "table of measured costs of this machine that a run is held against at its end, and `orrery simulate` goes by "
         "(default: the one that `orrery calibrate --keep` keeps)"},
        of_host({"submit", "nodes", integer, "",
                 "machines that `orrery submit` asks for (default: the mesh's ranks divided by ranks_per_node, else 1)",
                 1}),
        of_host({"submit", "ranks_per_node", integer, "",
                 "ranks on each node (default: run.ranks, else the mesh's ranks divided by the nodes)", 1}),
        of_host({"submit", "gpus_per_node", integer, "",
                 "GPUs on each node (default: one for each rank where run.device has memory of its own, else none)",
                 0}),
        of_host({"submit", "time", text, "",
                 "limit of the job's duration, as \"12:00:00\" or, with days, \"2-12:00:00\" (default: the engine's)"}),
        of_host({"submit", "before", texts, "", "lines of shell before the command, as \"module load cuda\""}),
        of_host({"submit.environment", "*", text, "", "variables of all ranks"}),
        {"transport.axis", "*", text, "", "another transport for one axis of the mesh"},
        {"collectives", "*", text, "",
         "collective algorithm of an axis: a Lua module beside the script or of the library"},
        of_host({"plugins", "path", texts, "[]", "more folders to look for plugins in"}),
        of_host({"lua", "library", text, "",
                 "folder that holds the orrery/ script library (default: found beside the program)"}),
        {"lua", "allow", texts, "[]", "standard libraries that scripts may use beyond the safe ones: os, io, debug"},
        {"lua", "instructions_million", integer, "1000", "Lua instructions a script may run, in millions", 1},
        {"lua", "memory_mib", integer, "512", "memory a script may hold", 1},
        {"script", "timeout_s", number, "",
         "processor time of the script, compiling and training not counted (default: 60); all other keys of this "
         "table are the script's own options",
         0.1},
    };
    return keys;
}

const SchemaKey* find_schema(std::string_view table, std::string_view key) {
    for (const SchemaKey& k : schema())
        if (k.table == table && (k.key == key || k.key == "*")) return &k;
    return nullptr;
}

namespace {
/// Tables with a table for each plugin of a kind; those of [submit] are of engines.
const std::vector<std::string_view> backends = {"transport", "device", "store", "rendezvous", "submit"};
/// Tables of these that are the core's.
const std::vector<std::string_view> own_tables = {"transport.axis", "submit.environment"};

std::string_view parent_of(std::string_view table) {
    const size_t dot = table.rfind('.');
    return dot == std::string_view::npos ? std::string_view() : table.substr(0, dot);
}
}  // namespace

bool is_open_table(std::string_view table) {
    if (table == "script" || table.starts_with("script.")) return true;
    for (std::string_view own : own_tables)
        if (table == own || (table.starts_with(own) && table[own.size()] == '.')) return false;
    for (std::string_view kind : backends)
        if (table.size() > kind.size() && table.starts_with(kind) && table[kind.size()] == '.') return true;
    return false;
}

bool is_per_host(std::string_view table, std::string_view key) {
    if (const SchemaKey* known = find_schema(table, key)) return known->per_host;
    return table.starts_with("device.") || table.starts_with("store.") || table.starts_with("submit.");
}

bool is_known_table(std::string_view table) {
    if (table.empty() || is_open_table(table)) return true;
    if (std::ranges::find(backends, table) != backends.end()) return true;
    return std::ranges::any_of(schema(), [&](const SchemaKey& k) { return k.table == table; });
}

std::vector<std::string> schema_names(std::string_view table) {
    std::vector<std::string> names;
    const auto add = [&](std::string_view name) {
        if (name != "*" && std::ranges::find(names, name) == names.end()) names.emplace_back(name);
    };
    for (const SchemaKey& k : schema()) {
        if (k.table == table) add(k.key);
        if (parent_of(k.table) == table) add(k.table.substr(table.empty() ? 0 : table.size() + 1));
    }
    if (table.empty()) {
        for (std::string_view kind : backends) add(kind);
        add("script");
    }
    return names;
}

}  // namespace orrery
