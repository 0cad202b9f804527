#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/run_record/given_keys.h"
#include "compile/compile.h"
#include "orrery/registry.h"
#include "plugin/loader.h"
#include "run/checkpoint/save/folder_lock.h"
#include "run/control/job.h"
#include "run/evaluate/kept_tokenizer.h"
#include "run/evaluate/sample.h"
#include "run/script_interface.h"
#include "run/settings.h"

namespace orrery {

/// The configuration of a command: from its files, its sets and the folder of a run that it may name.
Config config_of(const ScriptCommand& command);

class ScriptRunner;

/// How a command uses a script. A function that is set replaces what a call of the script does by default; it sees what
/// the script has recorded so far.
struct ScriptUse {
    /// How the scratch memory of the device's kernels is counted, and whether the device is checked to run the plan.
    enum class Scratch {
        counted,    ///< asks the run's device; refuses a plan that it cannot run
        noted,      ///< asks the run's device; notes what cannot run on this machine, since nothing is started
        by_ranks,   ///< asks the run's device; leaves that to each rank if opening it holds resources
        elsewhere,  ///< not counted: the plan is compiled for another machine
    };
    Scratch scratch = Scratch::counted;
    bool prints = true;         ///< prints the script's output, on rank 0
    bool tells = true;          ///< reports configuration values that the script's calls replace, on rank 0
    bool options_only = false;  ///< throws Error once the script has declared its options
    std::function<bool(const GivenKey&)> ignores = {};            ///< keys that calls may set without effect
    std::function<void(CompileOptions&)> options = {};            ///< changes the options for training programs
    std::function<void(ScriptRunner&, Experiment)> compile = {};  ///< default: compile_whole
    /// Handles a training call; the default, take_down(), only records data and options.
    std::function<void(ScriptRunner&, const DataSpec&, const TrainOptions&)> train = {};
    std::function<std::string(ScriptRunner&, const SampleOptions&)> sample = {};     ///< default: returns ""
    std::function<void(const ScriptRunner&, const std::string& text)> give_up = {};  ///< called before the process ends
};

/// A script with its configuration, settings and plugins, and the record of what it did. A command creates one, changes
/// settings if it runs on another mesh, loads plugins, runs the script and reads the record.
class ScriptRunner final : public Host {
public:
    /// Reads the configuration.
    ScriptRunner(const ScriptCommand& command, const Job& job, ScriptUse use = {});

    /// Loads the plugins of device, store, rendezvous and transports. Chooses a transport if none is configured.
    void load();
    /// Like load(), for ranks on `hosts` hosts; 0: as many as needed.
    void load_for_hosts(int64_t hosts);
    void load_backends();
    void load_transports();
    void load_store();
    /// Runs the script to its end. May be called once.
    void run();

    std::unique_ptr<Strategy> make_strategy(std::string_view name, Config& options, const Origin& asked) override;
    std::unique_ptr<DataSource> make_data(std::string_view name, Config& options, const Origin& asked) override;
    const OpDef& use_op(std::string_view name, const Origin& asked) override;
    const Mesh& mesh() override { return settings.mesh; }
    void use_collectives(const CollectiveChoice& choice, std::vector<ChunkTable> tables) override;
    void compile(Experiment made) override;
    std::string summary() override;
    void train(const DataSpec& asked, const TrainOptions& options) override;
    std::string sample(const SampleOptions& options) override;
    void declare_options(const std::vector<Option>& all) override;
    /// Throws Error at a --set that would have no effect. Reports once if a value of a file is not used.
    void gives(const GivenKey& key) override;
    void required(const std::string& file, const std::string& text) override { modules[file] = text; }
    void print(const std::string& line) override;
    void give_up(const std::string& text) override;

    /// Compiles the training for the mesh.
    void compile_whole(Experiment made);
    /// A compilation in three steps: begin() sets the experiment and its device, keep() the compiled programs, and
    /// refuse_unfit() checks that the device runs them. Throws Error at an unused mesh axis and for unsupported ops.
    void begin(Experiment made);
    void keep(Compiled made) { compiled_ = std::move(made); }
    void refuse_unfit();
    CompileOptions training_options();
    /// Records the data and the options of a training without running it.
    void take_down(const DataSpec& asked, const TrainOptions& options);
    /// Call after take_down(): compiles the programs for the last, smaller batch of held-out data. Throws Error at an
    /// input that the data does not fill.
    void compile_evaluation();
    /// Throws Error if the script trains without a final checkpoint, since sampling needs one.
    void refuse_unsaved();

    /// The configuration, overridden by the values that the script's calls set.
    Config as_run() const { return given_.over(config_); }
    /// Throws Error if the script has compiled no program.
    const Compiled& compiled() const;
    /// Combined axes, made of several mesh axes, that messages of the programs use; empty before compilation.
    std::set<std::string> joined() const;
    /// The opened data of the latest run:train call. Throws Error as Dataset does.
    const Dataset& dataset();
    /// From now on a data source's call that takes longer than `bound` ends the process; 0: no limit. The message names
    /// the plugin and `setting`, the key that sets the limit.
    void watch_calls(std::chrono::milliseconds bound, const std::string& setting);
    /// Values of the options that the script declares.
    std::map<std::string, std::string> option_values() const;
    /// The device that counts the kernels' scratch; may be nullptr.
    Device* counting();
    /// Moves the device of counting() out, for a session.
    std::unique_ptr<Device> take_device() { return std::move(counting_); }
    /// The reports of values of files that are not used.
    const std::set<std::string>& told() const { return told_; }

    /// The run's folder; known once the experiment is compiled.
    std::string folder() const;
    /// Creates the run's folder and locks it against other runs; `name` selects the lock. Throws Error at [run] folder
    /// if another process holds the lock or the folder cannot be written.
    std::unique_ptr<FolderLock> lock_folder(const std::string& name = FolderLock::job);
    /// Opens the checkpoints of the run's folder.
    std::unique_ptr<CheckpointStore> open_store();
    /// Whether any axis' transport connects only threads of one process.
    bool ranks_are_threads() const;
    /// Whether only ranks open the device, since opening it would hold resources for the lifetime of this process.
    bool leaves_device_to_ranks() const;
    /// Facts about [run] device; its plugin must be loaded.
    DeviceFacts device_facts() const;
    /// Adds the rank to a message if the job has several: "[rank 3] text".
    std::string of_rank(const std::string& text) const;

    /// The logits program on one rank, with the settings and device that it was compiled for.
    struct Sampling {
        Settings settings;
        std::unique_ptr<Device> device;  ///< nullptr: scratch is not counted
        Compiled compiled;
        std::vector<ShorterWindow> shorter;
        std::vector<std::string> notes;
    };
    /// Call while the script runs. `shorter`: also prepares windows of 64, 128 ... positions that it can record.
    Sampling compile_sampling(bool shorter = false);

    const ScriptCommand command;
    const std::string script;  ///< path of the Lua file, also if the command names a run's folder
    Job job;
    Settings settings;
    std::optional<ChosenTokenizer> tokenizer;
    Loader loader;
    Registry registry;
    Network contracts;
    std::vector<std::string> notes;  ///< what could not be checked on this machine; memory for sampling

    // Results of running the script.
    std::optional<std::vector<Option>> options;  ///< declared options
    std::optional<GivenKey> microbatches;        ///< the call that sets train.microbatches, if any
    std::map<std::string, std::string> modules;  ///< texts of the files that `require` read, by file
    std::optional<Experiment> experiment;        ///< the experiment compiled last
    std::optional<DataSpec> data;                ///< training data; ids without a row in the model are excluded
    std::optional<TrainOptions> training;
    bool summarized = false;  ///< whether the script has called summary()

private:
    /// Replaces a default transport that does not support the device, if exactly one other transport does.
    void choose_transport();
    SnapshotPlace snapshot_place() const;
    std::unique_ptr<Device> counting_device(const Job& of, const Settings& on);
    void note(const std::string& text);
    /// Throws Error, at train.precision or the op, if the device does not support an 8-bit product.
    void refuse_elsewhere(const Compiled& made, Device& device);
    void add_shorter(Sampling& sampling, const CompileOptions& options);

    const ScriptUse use_;
    GivenKeys given_;
    std::set<std::string> told_;
    std::map<std::string, std::vector<ChunkTable>> tables_;  ///< chunk tables of [collectives], by axis
    std::optional<Compiled> compiled_;
    std::optional<Dataset> opened_;  ///< opened from `data`
    std::unique_ptr<Device> counting_;
    std::optional<CallWatch> watch_;  ///< time limit for calls of data sources
};

/// Whether this is rank 0 under another program's launcher, so that no process of Orrery has checked the script.
inline bool first_of_foreign(const Job& job) { return job.assigned && !job.ours && job.rank == 0; }

/// Checks script, configuration, plugins, data and plan before a rank starts; only what depends on several ranks' own
/// GPUs remains unchecked. Returns the script after its run. Implemented in check.cpp.
std::unique_ptr<ScriptRunner> check_launch(const ScriptCommand& command, const Job& job);
/// Samples text from the newest checkpoint of the script's run. Implemented in sample.cpp.
SampledText sample_newest(ScriptRunner& script, ScriptRunner::Sampling sampling, const SampleOptions& options,
                          const std::function<void(std::string_view)>& say = {});

}  // namespace orrery
