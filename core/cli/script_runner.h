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

/// Reads the configuration of a command: its files, its --set options, and the folder of a run if it names one.
Config config_of(const ScriptCommand& command);

class ScriptRunner;

/// How a command uses a script. A function that is set replaces ScriptRunner's own answer to a call of the script.
struct ScriptUse {
    /// Which device reports the scratch memory of kernels and the operations that it does not support.
    enum class Scratch {
        counted,    ///< run.device on this machine
        noted,      ///< run.device; if this machine cannot run it, a note replaces the error
        by_ranks,   ///< run.device; only the ranks open it if it holds resources until its process exits
        elsewhere,  ///< no device: the plan is for another machine
    };
    Scratch scratch = Scratch::counted;
    bool prints = true;         ///< whether rank 0 prints what the script prints
    bool tells = true;          ///< whether rank 0 reports configured values that calls of the script replace
    bool options_only = false;  ///< end the script with an Error once it has declared its options
    std::function<bool(const GivenKey&)> ignores = {};  ///< selects keys of the script that have no effect
    std::function<void(CompileOptions&)> options = {};  ///< changes the compile options of the training's programs
    std::function<void(ScriptRunner&, Experiment)> compile = {};  ///< compiles an experiment; empty: compile_whole
    /// Handles the script's call of train; empty: ScriptRunner::take_down does.
    std::function<void(ScriptRunner&, const DataSpec&, const TrainOptions&)> train = {};
    std::function<std::string(ScriptRunner&, const SampleOptions&)> sample = {};     ///< samples; empty: returns ""
    std::function<void(const ScriptRunner&, const std::string& text)> give_up = {};  ///< called if a time limit expires
};

/// A script with its configuration, settings and plugins, and a record of its calls. A command creates one, may change
/// settings, loads plugins, runs the script, and reads the record.
class ScriptRunner final : public Host {
public:
    /// Reads the configuration. Throws Error at a wrong key.
    ScriptRunner(const ScriptCommand& command, const Job& job, ScriptUse use = {});

    /// Loads the plugins of device, store, rendezvous and transports. If the user named no transport, chooses one that
    /// can use the device's memory.
    void load();
    /// Does what load() does, for ranks on `hosts` hosts; 0: as many hosts as the mesh needs.
    void load_for_hosts(int64_t hosts);
    void load_backends();
    void load_transports();
    void load_store();
    /// Runs the script to its end. Call it at most once.
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
    /// Records a configuration key whose value a call of the script sets. Throws Error if a --set of the key would thus
    /// have no effect; prints a message if a configuration file has the key, once.
    void gives(const GivenKey& key) override;
    void required(const std::string& file, const std::string& text) override { modules[file] = text; }
    void print(const std::string& line) override;
    void give_up(const std::string& text) override;

    /// Compiles an experiment for the mesh: calls begin, keep and refuse_unfit.
    void compile_whole(Experiment made);
    /// Records an experiment and opens its device. Throws Error at a mesh axis that the experiment does not use.
    void begin(Experiment made);
    void keep(Compiled made) { compiled_ = std::move(made); }
    /// Throws Error if the device cannot run an operation of the compiled programs.
    void refuse_unfit();
    CompileOptions training_options();
    /// Records data and options of a training. If saves are asynchronous, adds the state's snapshot to the programs.
    void take_down(const DataSpec& asked, const TrainOptions& options);
    /// Compiles the smaller programs that evaluate the held-out samples left after the last full batch. Call it after
    /// take_down. Throws Error at an input that the data does not provide.
    void compile_evaluation();
    /// Throws Error if the training saves no checkpoint of its last step, which sampling needs.
    void refuse_unsaved();

    /// Returns the configuration with values that calls of the script set.
    Config as_run() const { return given_.over(config_); }
    /// Returns the compiled programs. Throws Error if the script has compiled none.
    const Compiled& compiled() const;
    /// Returns the joined axes, each of several mesh axes, over which the compiled programs communicate.
    std::set<std::string> joined() const;
    /// The data of the training, opened by the first use after each call of train. Throws Error as Dataset does.
    const Dataset& dataset();
    /// Limits each later call of a data source to `bound`; 0: no limit. When a call takes longer, the process exits
    /// with a message that names the plugin and `setting`, the key that sets the limit.
    void watch_calls(std::chrono::milliseconds bound, const std::string& setting);
    Options declared_options() const;
    /// Returns the device that reports scratch memory of kernels, opened by the first call; nullptr if there is none.
    Device* counting();
    /// Passes the device of counting() on to a session, so that its searches for kernels are not repeated.
    std::unique_ptr<Device> take_device() { return std::move(counting_); }
    /// Returns the reports about configured values that have no effect.
    const std::set<std::string>& told() const { return told_; }

    /// Returns the run's folder, which is known once the experiment is compiled.
    std::string folder() const;
    /// Creates the run's folder and locks it. `name`: a lock file of FolderLock. Throws Error at run.folder if another
    /// run uses the folder or it cannot be written.
    std::unique_ptr<FolderLock> lock_folder(const std::string& name = FolderLock::job);
    std::unique_ptr<CheckpointStore> open_store();
    /// Whether an axis has a transport that connects only threads of one process.
    bool ranks_are_threads() const;
    /// Whether only the ranks may open the device, because it holds resources until its process exits.
    bool leaves_device_to_ranks() const;
    /// Returns the facts in the plugin of run.device, which must be loaded.
    DeviceFacts device_facts() const;
    /// Puts "[rank 3] " before a text in a job of several ranks.
    std::string of_rank(const std::string& text) const;

    struct Sampling {
        Settings settings;
        std::unique_ptr<Device> device;  ///< nullptr if no device reports scratch memory
        Compiled compiled;
        std::vector<ShorterWindow> shorter;
        std::vector<std::string> notes;  ///< messages for the user
    };
    /// Compiles the logits program. `shorter`: also records variants for 64, 128 ... positions; the script must still
    /// be running then, and must not depend on a fixed length.
    Sampling compile_sampling(bool shorter = false);

    const ScriptCommand command;
    const std::string script;  ///< path of the Lua file
    Job job;
    Settings settings;
    std::optional<ChosenTokenizer> tokenizer;
    Loader loader;
    Registry registry;
    Network contracts;
    std::vector<std::string> notes;  ///< messages about checks that this machine cannot do

    // The record of the script's calls.
    std::optional<std::vector<Option>> options;  ///< options that the script declares
    std::optional<GivenKey> microbatches;        ///< the script's value of train.microbatches
    std::map<std::string, std::string> modules;  ///< files loaded by `require`: text by path
    std::optional<Experiment> experiment;        ///< the experiment compiled last
    std::optional<DataSpec> data;                ///< data of the last training, limited to the ids of the model
    std::optional<TrainOptions> training;        ///< options of the last training
    bool summarized = false;                     ///< whether the script has asked for its summary

private:
    /// If the user named no transport, replaces the default one by one that can use the device's memory.
    void choose_transport();
    SnapshotPlace snapshot_place() const;
    std::unique_ptr<Device> counting_device(const Job& of, const Settings& on);
    void note(const std::string& text);
    /// Throws Error for an operation that the device cannot run, at train.precision or at the operation's script line.
    void refuse_elsewhere(const Compiled& made, Device& device);
    void add_shorter(Sampling& sampling, const CompileOptions& options);

    const ScriptUse use_;
    GivenKeys given_;
    std::set<std::string> told_;
    std::map<std::string, std::vector<ChunkTable>> tables_;  ///< proved chunk tables of [collectives], by axis
    std::optional<Compiled> compiled_;
    std::optional<Dataset> opened_;  ///< the dataset of `data`; nullopt until dataset() opens it
    std::unique_ptr<Device> counting_;
    std::optional<CallWatch> watch_;  ///< limits the time of calls of data sources
};

/// Whether this is rank 0 of a job that torchrun or srun started: no launcher of Orrery has checked the script.
inline bool first_of_foreign(const Job& job) { return job.assigned && !job.ours && job.rank == 0; }

/// Runs the script and checks it, the configuration, plugins, data and plan before ranks start, except for what only
/// the ranks of several GPUs can check. Returns the script.
std::unique_ptr<ScriptRunner> check_launch(const ScriptCommand& command, const Job& job);
/// Does the same for ranks on the `command.nodes` hosts of an engine, where this host may lack the device. `sees`: they
/// have this host's files; if not, data and checkpoints are not checked.
std::unique_ptr<ScriptRunner> check_submission(const ScriptCommand& command, bool sees);
/// Samples a text from the newest checkpoint of the script's run.
SampledText sample_newest(ScriptRunner& script, ScriptRunner::Sampling sampling, const SampleOptions& options,
                          const std::function<void(std::string_view)>& say = {});

}  // namespace orrery
