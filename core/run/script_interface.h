#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/recipe.h"
#include "orrery/op.h"
#include "orrery/registry.h"
#include "orrery/schedule.h"
#include "plan/chunks/chunks.h"
#include "run/data/data.h"

namespace orrery {

/// What a script requests of a training run. Times and counts of 0 mean "never".
struct TrainOptions {
    int64_t steps = 0;
    int64_t evaluate_every = 0;  ///< steps between evaluations; also one at the end if evaluate_batches > 0
    int64_t evaluate_batches = 0;
    int64_t checkpoint_every = 0;   ///< steps between checkpoints during the run
    bool checkpoint_final = true;   ///< whether the run ends with a checkpoint; false for measurements
    bool checkpoint_async = false;  ///< whether periodic saves are asynchronous
    /// Mean time between failures of a node; above 0, checkpoint_every is computed from it and from the cost of a save.
    double checkpoint_mtbf_s = 0;
    int64_t log_every = 1;
    int64_t max_skips = 50;  ///< max steps in a row without an update at the min loss scale; more end the run
    Origin origin;
};

struct SampleOptions {
    std::string prompt;
    int64_t tokens = 0;
    double temperature = 0;
    int64_t top_k = 0;  ///< number of likeliest tokens to draw from; 0: all
    uint64_t seed = 0;
};

/// A collective algorithm that the configuration chooses: [collectives] dp = "ring".
struct CollectiveChoice {
    std::string axis;
    int64_t members = 1;
    std::string name;
    Origin asked;
};

/// A configuration key that a call of the script overrides, as in run:train(data, { steps = 100 }).
struct GivenKey {
    std::string table, key;  ///< the key's table and name: "train", "steps"
    Origin line;
    std::optional<ConfigValue> value = {};  ///< the value that the call sets; none: the key cannot express it
    std::string shown = {};  ///< what the call does instead of setting a value: "trains on o.data.mixture"
    bool read_too = false;   ///< whether the script also reads the configuration's value
};

/// The functions that a script can call. The orrery command decides what each does: `check` compiles and proves but
/// starts nothing, `run` trains, `sample` samples text from the newest checkpoint.
class Host {
public:
    explicit Host(Config config) : config_(std::move(config)) {}
    virtual ~Host() = default;
    Config& config() { return config_; }

    /// Called with each program of the script after every compiler pass; may be empty.
    PassLook look = {};
    /// Whether compile() gets only the train step, without programs that evaluate or sample.
    bool train_step_alone = false;
    /// Collective algorithms that the configuration chooses; set before the script runs.
    std::vector<CollectiveChoice> collectives = {};
    /// Codecs of plugins, each loaded when a program first names it; set before the script runs.
    std::vector<std::shared_ptr<const Codec>> codecs = {};

    /// Makes the strategy of the plugin `name`, loading the plugin if needed. Throws Error naming script line `asked`.
    virtual std::unique_ptr<Strategy> make_strategy(std::string_view name, Config& options, const Origin& asked) = 0;
    /// Makes a data source of the plugin `name`, loading the plugin if needed, without opening the source. `options`:
    /// those of the script's call. Throws Error naming script line `asked`.
    virtual std::unique_ptr<DataSource> make_data(std::string_view name, Config& options, const Origin& asked) = 0;
    /// Returns the op of the plugin `name`, loading the plugin if needed. Throws Error naming script line `asked`.
    virtual const OpDef& use_op(std::string_view name, const Origin& asked) = 0;
    /// Proves a script's algorithm for an axis's collectives (tables of sends by step). Throws Error with script lines.
    virtual void use_collectives(const CollectiveChoice&, std::vector<ChunkTable>) {}
    /// The configured mesh, without the axis of micro-batches.
    virtual const Mesh& mesh() = 0;
    /// Compiles and proves the experiment. Throws Error with script lines. Called by a script's program:compile().
    virtual void compile(Experiment experiment) = 0;
    /// A text about the compiled experiment: bytes moved, peak memory and flops.
    virtual std::string summary() { return ""; }
    virtual void train(const DataSpec&, const TrainOptions&) {}
    /// Samples text from the model; "" in commands that run nothing.
    virtual std::string sample(const SampleOptions&) { return ""; }
    /// An option declared by the script, for `--help`; its value comes from [script] and --set script.KEY=VALUE.
    struct Option {
        std::string key, fallback, help;
        std::string value;                ///< current value; text without quotes
        std::vector<std::string> one_of;  ///< valid values; empty: any
    };
    using Options = std::map<std::string, Option>;  ///< options by key
    virtual void declare_options(const std::vector<Option>&) {}
    /// Called when a script's call sets a configuration key. Throws Error if a --set gives the key another value.
    virtual void gives(const GivenKey&) {}
    /// Called with name and text of each file that the script's `require` reads. The name is relative to the library or
    /// the script's folder: "orrery/nn.lua".
    virtual void required(const std::string& /*file*/, const std::string& /*text*/) {}
    /// Called by a script's print(); only rank 0 prints the text.
    virtual void print(const std::string&) {}
    /// Ends the process with exit code 1 and prints the text, if the script is in a call that cannot be interrupted.
    /// Called from another thread.
    virtual void give_up(const std::string&) {}

protected:
    Config config_;
};

}  // namespace orrery
