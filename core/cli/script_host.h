#pragma once
#include <memory>
#include <string>

#include "cli/commands.h"
#include "orrery/registry.h"
#include "plugin/loader.h"
#include "run/compile.h"
#include "run/folder_lock.h"
#include "run/host.h"
#include "run/job.h"
#include "run/rendezvous.h"
#include "run/settings.h"

namespace orrery {

class Session;

/// What a command does with the calls of a script.
enum class Mode : uint8_t {
    check,   ///< compile and prove, start nothing
    launch,  ///< the same, for whoever starts ranks: bad data is an error, too, and the script prints nothing
    draw,    ///< the same, for a picture: the script prints nothing and its data may be missing
    run,     ///< train on this rank
    verify,  ///< compile as `run` does, with ranks as threads; `verify` runs the plan, the script prints nothing
    sample,  ///< draw text on one rank
    help,    ///< stop after the options are declared
};

/// Runs one script for one command: configuration, plugins, and the Host that Lua drives.
class ScriptHost : public Host {
public:
    ScriptHost(const ScriptCommand& command, Mode mode, const Job& job);
    ~ScriptHost() override;

    /// Runs the script to its end, then rejects configuration that nothing has read.
    void run_script();

    Config& config() override { return config_; }
    std::unique_ptr<Strategy> make_strategy(std::string_view name, Config& options, const Origin& asked) override;
    const Mesh& mesh() override { return settings_.mesh; }
    std::vector<CollectiveChoice> collectives() override;
    void use_collectives(const CollectiveChoice& choice, std::vector<ChunkTable> tables) override;
    void compile(Experiment experiment) override;
    std::string summary() override;
    void train(const DataSpec& data, const TrainOptions& options) override;
    std::string sample(const SampleOptions& options) override;
    void declare_options(const std::vector<Option>& options) override;
    void print(const std::string& line) override;
    void give_up(const std::string& text) override;

    /// Verifies what the script compiled. Mode::verify only.
    VerifyReport verify(const VerifyOptions& options);
    /// The transports of the configuration that threads stand for then, as a line; "" when there are none.
    std::string not_verified() const;

    const Settings& settings() const { return settings_; }
    /// The run's folder; known once the experiment is compiled.
    std::string folder() const;
    /// Makes that folder and keeps other runs out of it. Throws Error at [run] folder when one is in it, or when it
    /// cannot be written.
    std::unique_ptr<FolderLock> lock_folder();
    const Compiled* compiled() const { return compiled_ ? &*compiled_ : nullptr; }
    const std::string& script() const { return script_; }
    /// The data that the script would train on; nullptr when it trains on none.
    const DataSpec* data() const { return data_ ? &*data_ : nullptr; }
    /// Some axis' transport joins threads of one process only.
    bool ranks_are_threads() const;
    /// The other ranks learn from a session why this one ends.
    bool met() const { return met_; }
    /// How many trainings have come to their end.
    int64_t trained() const { return trained_; }
    /// Where this rank serves it, from the first session on; else nullptr.
    RendezvousServer* server() { return server_.get(); }
    /// The script has asked for training.
    bool trains() const { return trains_; }
    bool summary_shown() const { return summary_shown_; }
    /// Lines for `orrery check`: what sampling needs, tables of backends whose plugin cannot be loaded here, and why.
    const std::vector<std::string>& notes() const { return notes_; }

private:
    void load_plugins();
    void choose_transport();
    /// Makes every backend that the configuration has a table for: only the plugin knows its keys.
    void check_tables();
    /// Neither a rank nor a picture: what is wrong with the configuration shows here.
    bool checks() const { return mode_ == Mode::check || mode_ == Mode::launch; }
    /// A launcher of ranks whose device keeps something of a process for as long as that lives, as a CUDA context: the
    /// launcher makes none, and the ranks find out what is wrong with theirs before their first step.
    bool leaves_device_to_ranks() const;
    /// The device that says what scratch its kernels need; nullptr where it is left to the ranks, or, with a note,
    /// where nothing is started and it cannot run on this machine.
    std::unique_ptr<Device> counting_device(const Job& job, const Settings& settings);
    /// This rank's part of a training; ends with its session.
    void train_here(const DataSpec& data, const TrainOptions& options);
    void prepare_folder();
    Job next_session();
    std::unique_ptr<Session> meet();
    std::string of_rank(const std::string& text) const;

    ScriptCommand command_;
    Mode mode_;
    Job job_;
    std::string script_;
    Config config_;
    Settings settings_;
    std::map<std::string, std::string> replaced_;  ///< verify: transports that threads stand for, by axis
    Loader loader_;
    Registry registry_;
    std::unique_ptr<RendezvousServer> server_;  ///< when this rank serves it: for every session of the script
    int64_t sessions_ = 0, trained_ = 0;
    bool met_ = false;
    std::map<std::string, TransportContract> contracts_;
    std::map<std::string, std::vector<ChunkTable>> collectives_;
    std::optional<Compiled> compiled_;
    std::unique_ptr<Device> device_;  ///< has counted scratch; the first session takes it with what it searched for
    std::optional<Experiment> experiment_;
    std::optional<DataSpec> data_;
    std::vector<std::string> notes_;
    bool help_shown_ = false;
    bool summary_shown_ = false;
    bool trains_ = false;
    bool saves_end_ = true;
};

}  // namespace orrery
