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
#include "run/sample.h"
#include "run/script_interface.h"
#include "run/settings.h"
#include "run/text/kept_tokenizer.h"

namespace orrery {

/// The configuration of a command, of its files, sets and the folder of a run that it may name.
Config config_of(const ScriptCommand& command);

/// Runs a script: reads configuration and settings, loads plugins, chooses transports, makes devices, compiles. A
/// command is a class that derives from it and says what the script's calls make happen there.
class ScriptRunner : public Host {
public:
    ScriptRunner(const ScriptCommand& command, const Job& job);

    /// Prepares, then runs the script to its end. Once.
    void run_script();

    Config& config() override { return config_; }
    std::unique_ptr<Strategy> make_strategy(std::string_view name, Config& options, const Origin& asked) override;
    std::unique_ptr<DataSource> make_data(std::string_view name, Config& options, const Origin& asked) override;
    const OpDef& use_op(std::string_view name, const Origin& asked) override;
    const Mesh& mesh() override { return settings_.mesh; }
    std::vector<CollectiveChoice> collectives() override;
    void use_collectives(const CollectiveChoice& choice, std::vector<ChunkTable> tables) override;
    void compile(Experiment experiment) override;
    std::string summary() override;
    /// Takes down what the script trains on.
    void train(const DataSpec& data, const TrainOptions& options) override;
    std::string sample(const SampleOptions&) override { return ""; }
    void declare_options(const std::vector<Option>&) override {}
    /// Refuses a --set that would change nothing; prints of a value of a file that it is not used, once.
    void gives(const GivenKey& key) override;
    void required(const std::string& file, const std::string& text) override { required_[file] = text; }
    /// On rank 0.
    void print(const std::string& line) override;
    void give_up(const std::string& text) override;

    /// The configuration with what the script's calls give.
    Config as_run() const { return given_.over(config_); }
    /// The Lua file, also where the command names a run's folder.
    const std::string& script() const { return script_; }
    const ScriptCommand& command() const { return command_; }
    /// What it has read by `require` so far: files, as they lie below its folder or the library's, and their text.
    const std::map<std::string, std::string>& required() const { return required_; }
    const Job& job() const { return job_; }
    const Settings& settings() const { return settings_; }
    const std::optional<ChosenTokenizer>& tokenizer() const { return tokenizer_; }
    const Registry& registry() const { return registry_; }
    const Loader& loader() const { return loader_; }
    /// Throws Error when the script has compiled no program.
    const Compiled& compiled() const;
    const Experiment& experiment() const { return *experiment_; }
    /// Axes made of several that messages of its programs go over; none of a script that has compiled nothing.
    std::set<std::string> joined() const;
    /// What the script trains on, without ids that the model has no row for; nullptr when it trains on nothing.
    const DataSpec* data() const { return data_ ? &*data_ : nullptr; }
    /// The data of a training, opened; once for each call of run:train. Throws Error as Dataset does.
    const Dataset& dataset();
    /// From now on a call of a data source that takes longer ends the process, with a message that names the plugin and
    /// `setting`, which `bound` is of. 0: any time.
    void watch_calls(std::chrono::milliseconds bound, const std::string& setting);
    /// What could not be looked at on this machine, and why; what sampling needs.
    const std::vector<std::string>& notes() const { return notes_; }

    /// The run's folder; known once the experiment is compiled.
    std::string folder() const;
    /// Makes that folder and keeps other runs out of it, by either lock. Throws Error at [run] folder when one is in
    /// it, or when it cannot be written.
    std::unique_ptr<FolderLock> lock_folder(const std::string& name = FolderLock::job);
    /// The checkpoints of that folder.
    std::unique_ptr<CheckpointStore> open_store();
    /// Some axis' transport joins threads of one process only.
    bool ranks_are_threads() const;
    /// Of [run] device, once its plugin is loaded.
    DeviceFacts device_facts() const;
    /// "[rank 3] text" in a job of several ranks.
    std::string of_rank(const std::string& text) const;

    /// The logits program on one rank, and what it was compiled for.
    struct Sampling {
        Settings settings;
        std::unique_ptr<Device> device;  ///< nullptr where counting_device makes none
        Compiled compiled;
        std::vector<ShorterWindow> shorter;
        std::vector<std::string> notes;
    };
    /// `shorter`: windows of 64, 128 ... positions, too, where the script records them; while it runs.
    Sampling compile_sampling(bool shorter = false);

protected:
    /// The longest that a call of a data source may take: run.timeout_s, 0 (any time) where it is not given.
    virtual std::chrono::milliseconds call_bound() const;
    /// Before the script runs: loads the plugins.
    virtual void prepare();
    void load_plugins();
    /// Where nobody named a transport and the default one does not serve the device: the one that does, if any.
    void choose_transport();
    void load_transports();

    /// Where saves keep their copy of the state.
    virtual SnapshotPlace snapshot_place() const;
    /// The device that says what scratch its kernels need; nullptr: scratch is not counted.
    virtual std::unique_ptr<Device> counting_device(const Job& job, const Settings& settings);
    /// The same where nothing is started: nullptr, with a note, where the device cannot run on this machine.
    std::unique_ptr<Device> device_or_note(const Job& job, const Settings& settings);
    /// This process prints what all that run the script find: one of a job.
    virtual bool speaks() const { return job_.rank == 0; }
    /// A launcher of another program has started the ranks, so that no process of ours has run the script before.
    bool first_of_foreign() const { return job_.assigned && !job_.ours && job_.rank == 0; }
    /// Nothing is started: what no device here runs is noted instead of refused.
    virtual bool looks_only() const { return false; }
    /// Throws Error at the precision that asked for it.
    void refuse_elsewhere(const Compiled& compiled, Device& device);
    /// Of this run's mesh.
    virtual CompileOptions training_options(Device* device);
    void add_shorter(Sampling& sampling, const CompileOptions& options);
    /// Behind train(): compiles what evaluates the rest of the held-out data, behind the last full batch. Throws Error
    /// at an input that the data does not fill.
    void compile_evaluation();
    /// Throws Error where the script has trained without a checkpoint of the end, which sampling begins from.
    void refuse_unsaved();

    ScriptCommand command_;
    std::string script_;
    Job job_;
    Config config_;
    Settings settings_;
    GivenKeys given_;
    std::set<std::string> told_;  ///< lines that were printed of these
    std::optional<ChosenTokenizer> tokenizer_;
    Loader loader_;
    Registry registry_;
    Network contracts_;
    std::map<std::string, std::vector<ChunkTable>> collectives_;
    std::optional<Experiment> experiment_;
    std::optional<Compiled> compiled_;
    std::optional<DataSpec> data_;
    std::optional<Dataset> opened_;  ///< of data_
    std::optional<TrainOptions> training_;
    std::vector<std::string> notes_;
    std::map<std::string, std::string> required_;
    std::unique_ptr<Device> counting_;  ///< has counted scratch; a session may take what it has searched for
    std::optional<CallWatch> watch_;    ///< of the data sources
};

/// What can be wrong with script, configuration, plugins, data and plan shows here, before a rank starts: all but what
/// only several GPUs' own ranks can tell. Returns the script, which has run (`check.cpp`).
std::unique_ptr<ScriptRunner> check_launch(const ScriptCommand& command, const Job& job);
/// Text from the newest checkpoint of the script's run (`evaluate/sample.cpp`).
SampledText sample_newest(ScriptRunner& script, ScriptRunner::Sampling sampling, const SampleOptions& options,
                          const std::function<void(std::string_view)>& say = {});

}  // namespace orrery
