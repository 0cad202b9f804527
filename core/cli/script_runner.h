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

/// The configuration of a command, of its files, sets and the folder of a run that it may name.
Config config_of(const ScriptCommand& command);

class ScriptRunner;

/// What a command runs a script for. A function that is set is what a call of the script makes happen, on the record as
/// it is then.
struct ScriptUse {
    /// Who says what scratch the device's kernels need, and whether it runs them.
    enum class Scratch {
        counted,    ///< the device of the run
        noted,      ///< the same; what does not run on this machine is noted instead of refused, as nothing is started
        by_ranks,   ///< the same but where it keeps something of a process: ranks find out what is wrong with theirs
        elsewhere,  ///< nobody: the program is compiled for another machine
    };
    Scratch scratch = Scratch::counted;
    bool prints = true;         ///< what the script prints, on rank 0
    bool tells = true;          ///< of values in files that calls of the script replace, on rank 0
    bool options_only = false;  ///< throws Error when the script has declared its options
    std::function<bool(const GivenKey&)> ignores = {};            ///< keys that a call may give unseen
    std::function<void(CompileOptions&)> options = {};            ///< changes those of the training's programs
    std::function<void(ScriptRunner&, Experiment)> compile = {};  ///< else compile_whole
    /// Else take_down.
    std::function<void(ScriptRunner&, const DataSpec&, const TrainOptions&)> train = {};
    std::function<std::string(ScriptRunner&, const SampleOptions&)> sample = {};     ///< else "" is the text
    std::function<void(const ScriptRunner&, const std::string& text)> give_up = {};  ///< before the process ends
};

/// A script with its configuration, settings and plugins, and the record of what it did. A command makes one, changes
/// settings where it runs on other ranks than they say, loads plugins, runs the script, and reads the record.
class ScriptRunner final : public Host {
public:
    /// Reads the configuration.
    ScriptRunner(const ScriptCommand& command, const Job& job, ScriptUse use = {});

    /// Loads the plugins of device, store, rendezvous and transports; chooses a transport where nobody named one.
    void load();
    /// The same for ranks on so many hosts, 0: as many as it takes.
    void load_for_hosts(int64_t hosts);
    void load_backends();
    void load_transports();
    void load_store();
    /// Runs the script to its end. Once.
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
    /// Refuses a --set that would change nothing; prints of a value of a file that it is not used, once.
    void gives(const GivenKey& key) override;
    void required(const std::string& file, const std::string& text) override { modules[file] = text; }
    void print(const std::string& line) override;
    void give_up(const std::string& text) override;

    /// Compiles the training for the mesh.
    void compile_whole(Experiment made);
    /// The experiment and its device, before programs are compiled; then these; whether the device runs them. Throws
    /// Error at an axis that nothing goes over, and for what the device does not run.
    void begin(Experiment made);
    void keep(Compiled made) { compiled_ = std::move(made); }
    void refuse_unfit();
    CompileOptions training_options();
    /// Takes down what the script trains on.
    void take_down(const DataSpec& asked, const TrainOptions& options);
    /// Then: compiles what evaluates the rest of the held-out data, behind the last full batch. Throws Error at an
    /// input that the data does not fill.
    void compile_evaluation();
    /// Throws Error where the script has trained without a checkpoint of the end, which sampling begins from.
    void refuse_unsaved();

    /// The configuration with what the script's calls give.
    Config as_run() const { return given_.over(config_); }
    /// Throws Error when the script has compiled no program.
    const Compiled& compiled() const;
    /// Axes made of several that messages of its programs go over; none of a script that has compiled nothing.
    std::set<std::string> joined() const;
    /// The data of a training, opened; once for each call of run:train. Throws Error as Dataset does.
    const Dataset& dataset();
    /// From now on a call of a data source that takes longer ends the process, with a message that names the plugin and
    /// `setting`, which `bound` is of. 0: any time.
    void watch_calls(std::chrono::milliseconds bound, const std::string& setting);
    /// Values of the options that the script declares.
    std::map<std::string, std::string> option_values() const;
    /// The device that counts scratch.
    Device* counting();
    /// The same; a session may take what it has searched for.
    std::unique_ptr<Device> take_device() { return std::move(counting_); }
    /// Lines that said which values of files are not used.
    const std::set<std::string>& told() const { return told_; }

    /// The run's folder; known once the experiment is compiled.
    std::string folder() const;
    /// Makes that folder and keeps other runs out of it, by either lock. Throws Error at [run] folder when one is in
    /// it, or when it cannot be written.
    std::unique_ptr<FolderLock> lock_folder(const std::string& name = FolderLock::job);
    /// The checkpoints of that folder.
    std::unique_ptr<CheckpointStore> open_store();
    /// Some axis' transport joins threads of one process only.
    bool ranks_are_threads() const;
    /// Whether this process makes no device that keeps something of a process for as long as that lives.
    bool leaves_device_to_ranks() const;
    /// Of [run] device, once its plugin is loaded.
    DeviceFacts device_facts() const;
    /// "[rank 3] text" in a job of several ranks.
    std::string of_rank(const std::string& text) const;

    /// The logits program on one rank, and what it was compiled for.
    struct Sampling {
        Settings settings;
        std::unique_ptr<Device> device;  ///< nullptr where nobody counts scratch
        Compiled compiled;
        std::vector<ShorterWindow> shorter;
        std::vector<std::string> notes;
    };
    /// `shorter`: windows of 64, 128 ... positions, too, where the script records them; while it runs.
    Sampling compile_sampling(bool shorter = false);

    const ScriptCommand command;
    const std::string script;  ///< the Lua file, also where the command names a run's folder
    Job job;
    Settings settings;
    std::optional<ChosenTokenizer> tokenizer;
    Loader loader;
    Registry registry;
    Network contracts;
    std::vector<std::string> notes;  ///< what could not be looked at on this machine, and why; what sampling needs

    // What the script did.
    std::optional<std::vector<Option>> options;  ///< that it declares
    std::optional<GivenKey> microbatches;        ///< of train.microbatches, whatever the configuration says
    std::map<std::string, std::string> modules;  ///< read by `require`: files below its folder or the library's, text
    std::optional<Experiment> experiment;        ///< compiled last
    std::optional<DataSpec> data;                ///< trained on, without ids that the model has no row for
    std::optional<TrainOptions> training;
    bool summarized = false;  ///< it has asked for the summary

private:
    /// Where nobody named a transport and the default one does not serve the device: the one that does, if any.
    void choose_transport();
    SnapshotPlace snapshot_place() const;
    std::unique_ptr<Device> counting_device(const Job& of, const Settings& on);
    void note(const std::string& text);
    /// Throws Error at the precision that asked for it.
    void refuse_elsewhere(const Compiled& made, Device& device);
    void add_shorter(Sampling& sampling, const CompileOptions& options);

    const ScriptUse use_;
    GivenKeys given_;
    std::set<std::string> told_;
    std::map<std::string, std::vector<ChunkTable>> tables_;  ///< of [collectives]
    std::optional<Compiled> compiled_;
    std::optional<Dataset> opened_;  ///< of `data`
    std::unique_ptr<Device> counting_;
    std::optional<CallWatch> watch_;  ///< of the data sources
};

/// A launcher of another program has started the ranks, so that no process of ours has run the script before.
inline bool first_of_foreign(const Job& job) { return job.assigned && !job.ours && job.rank == 0; }

/// What can be wrong with script, configuration, plugins, data and plan shows here, before a rank starts: all but what
/// only several GPUs' own ranks can tell. Returns the script, which has run (`check.cpp`).
std::unique_ptr<ScriptRunner> check_launch(const ScriptCommand& command, const Job& job);
/// Text from the newest checkpoint of the script's run (`sample.cpp`).
SampledText sample_newest(ScriptRunner& script, ScriptRunner::Sampling sampling, const SampleOptions& options,
                          const std::function<void(std::string_view)>& say = {});

}  // namespace orrery
