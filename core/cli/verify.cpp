#include <fmt/format.h>

#include <cstdio>
#include <mutex>

#include "base/text.h"
#include "cli/script_runner.h"
#include "plan/repeat.h"
#include "run/verify/inject.h"
#include "run/verify/oracle_inputs.h"
#include "run/verify/source_check.h"
#include "run/verify/verify.h"

namespace orrery {
namespace {

constexpr const char* threads = "threads";
constexpr int64_t some_samples = 2;  // samples of a data source that are read in all ways

/// Compiles as a run does, with ranks as threads, and compares the plan with one device. The script prints nothing.
struct VerifyScript final : ScriptRunner {
    using ScriptRunner::ScriptRunner;

    void print(const std::string&) override {}
    std::chrono::milliseconds call_bound() const override { return settings_.timeout; }

    /// The plan with every micro-batch unrolled, since each instruction is judged by itself.
    const Plan& plan() {
        if (!plan_) plan_ = unrolled(compiled().train());
        return *plan_;
    }

    VerifyReport verify(const VerifyOptions& options) {
        std::mutex one_at_a_time;  // plugins read their table of the configuration
        const auto device = [&] {
            const std::lock_guard lock(one_at_a_time);
            return make_device(settings_, config_, registry_, job_);
        };
        const auto transport = [&] {
            const std::lock_guard lock(one_at_a_time);
            const Origin asked = config_.table("run").where("transport");
            return registry_.transport(threads, asked)(config_.table("transport").table(threads));
        };
        if (data_) check_parts(*data_);
        std::optional<Dataset> data;
        if (data_) data.emplace(*data_);
        if (data) checked_blocks_ += check_source(*data, options.steps);
        const auto sources_device = device();
        WholeSources sources(*sources_device, settings_.seed, experiment_->train(), data ? &*data : nullptr);
        const VerifyCase verified{experiment_->train(),
                                  plan(),
                                  compiled_->persistent,
                                  device,
                                  transport,
                                  std::ref(sources),
                                  settings_.timeout,
                                  compiled_->collectives};
        return orrery::verify(verified, options);
    }

    /// Checks each part of a mixture by itself first, so that its faults are not attributed to the mixture.
    void check_parts(const DataSpec& whole) {
        for (const DataSpec::Part& part : whole.parts) {
            DataSpec alone = whole;
            alone.source = part.source;
            alone.plugin = part.plugin;
            alone.held_out = nullptr;
            alone.validation = 0;
            const Dataset data(alone);
            SourceCheck check(data);
            check.cuts(Split::train, some_samples);
            checked_blocks_ += check.blocks();
        }
    }

    /// Must run before other readers: writing past a block would corrupt their memory.
    int64_t check_source(const Dataset& data, int64_t steps) {
        SourceCheck check(data);
        check.cuts(Split::train, some_samples);
        if (data.spec().held_out) check.cuts(Split::validation, some_samples);
        for (int64_t step = 1; step <= steps; ++step) check.ranks(plan(), ids_of(experiment_->train()), step);
        return check.blocks();
    }

    /// A line about the data that was read; "": the script trains on none.
    std::string checked_data() const {
        if (checked_blocks_ == 0) return "";
        return fmt::format("  plugin {}: {} read twice, each equal to its part of the whole sample\n", data_->plugin,
                           plural(checked_blocks_, "block"));
    }

    /// A line about the configured transports that threads replace; "": none.
    std::string not_verified() const {
        std::string text;
        for (const auto& [axis, transport] : replaced_)
            text += fmt::format("{}{} of axis {}", text.empty() ? "" : ", ", transport, axis);
        if (text.empty()) return text;
        return fmt::format("  not verified: transport {}; ranks are threads here, and the plan is made for those\n",
                           text);
    }

    void prepare() override {
        for (const Axis& axis : settings_.mesh.axes())
            if (axis.size > 1 && settings_.transport_of(axis.name) != threads)
                replaced_[axis.name] = settings_.transport_of(axis.name);
        settings_.transport = threads;
        settings_.axis_transport.clear();
        job_.local_ranks = settings_.mesh.ranks();
        load_plugins();
        load_transports();
        // also needed on one rank
        loader_.load("transport", threads, registry_, config_.table("run").where("transport"));
    }

    /// Axes share messages as in the run, although threads carry all of them.
    CompileOptions training_options(Device* device) override {
        CompileOptions options = ScriptRunner::training_options(device);
        for (const auto& [axis, transport] : replaced_) options.transports[axis] = transport;
        return options;
    }

    std::map<std::string, std::string> replaced_;  ///< by axis
    std::optional<Plan> plan_;
    int64_t checked_blocks_ = 0;
};

}  // namespace

int verify_command(const ScriptCommand& command) {
    if (command.script_help) return show_options(command, Job{});
    VerifyScript script(command, Job{});
    script.run_script();
    const Plan& plan = script.plan();
    VerifyOptions options = command.verify;
    for (const std::string& text : command.injections) options.injections.push_back(parse_injection(text));
    const VerifyReport report = script.verify(options);
    std::printf("%s%s%s", script.not_verified().c_str(), script.checked_data().c_str(),
                report.text(plan, options).c_str());
    return report.passed() ? 0 : 1;
}

}  // namespace orrery
