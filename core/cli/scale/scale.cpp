#include "cli/scale/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "base/env.h"
#include "base/files/result_file.h"
#include "base/json.h"
#include "base/process.h"
#include "base/processors.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/signals.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "orrery/error.h"
#include "run/control/job.h"
#include "run/preflight/outliers.h"
#include "run/settings.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Thrown when a signal ends `orrery scale`, once the ranks have ended and its folders are removed.
struct Stopped {
    int signal;
};

void end_when_asked(HeldSignals& signals) {
    if (const int signal = signals.take()) throw Stopped{signal};
}

struct ScratchFolder {
    fs::path path;

    ScratchFolder() {
        std::string pattern = (fs::temp_directory_path() / "orrery-scale-XXXXXX").string();
        if (!::mkdtemp(pattern.data())) throw Error("cannot make a folder like " + pattern, Fault::failed);
        path = pattern;
    }
    ~ScratchFolder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    ScratchFolder(const ScratchFolder&) = delete;
};

struct Size {
    int64_t ranks, members, sequences;
    int64_t threads;  ///< threads per rank, the same for every number of ranks
};

constexpr int64_t most_started = 1024, most_simulated = int64_t{1} << 20;

void require_room(const ScaleCommand& command, int64_t ranks) {
    const int64_t most = std::min(most_started, most_measured_ranks());
    if ((command.simulate && !command.measure) || ranks <= most) return;
    throw Error(fmt::format(
        "--ranks {}: a run of {} on this host's {} is too large to measure; the maximum is {} (64 on each "
        "processor, up to {})\n  use fewer ranks, or predict them: --simulate without --measure",
        command.ranks, plural(ranks, "rank"), plural(usable_processors(), "processor"), most, most_started));
}

std::vector<Size> sizes_of(const ScriptCommand& script, const ScaleCommand& command) {
    if (!fs::is_regular_file(script.script))
        throw Error(fmt::format("scale: script {} not found\n  name a Lua file", script.script));
    Config config = load_config(script.config, script.sets);
    const Settings settings = read_settings(config);
    int64_t others = 1;
    for (const Axis& axis : settings.mesh.axes())
        if (axis.name != command.axis) others *= axis.size;
    const int64_t batch = config.table("train").integer("sequences_per_step", 0);
    if (batch == 0)
        throw Error("scale: train.sequences_per_step is not set; set it to the batch of the smallest number of ranks");
    std::vector<Size> sizes;
    for (const int64_t ranks : read_sizes(command.ranks, most_simulated)) {
        require_room(command, ranks);
        if (ranks % others != 0)
            throw Error(fmt::format(
                "scale: {} ranks are not divisible by the {} ranks of the other axes of mesh {}; only axis {} grows",
                ranks, others, settings.mesh.text(), command.axis));
        const int64_t first = sizes.empty() ? ranks : sizes.front().ranks;
        const int64_t whole = command.strong ? batch * first : batch * ranks;
        if (whole % first != 0)
            throw Error(
                fmt::format("scale: a batch of {} sequences on {} does not scale to a whole number of sequences on {}",
                            batch, plural(first, "rank"), ranks));
        sizes.push_back({ranks, ranks / others, whole / first, settings.threads_per_rank});
    }
    // Without a setting, all sizes get the threads per rank of the largest: one rank would else be as fast as several.
    const auto processors = usable_processors();
    for (Size& size : sizes)
        if (size.threads == 0) size.threads = std::max<int64_t>(1, processors / sizes.back().ranks);
    return sizes;
}

std::vector<std::string> sets_of(const ScriptCommand& script, const ScaleCommand& command, const Size& size) {
    std::vector<std::string> sets = script.sets;
    sets.push_back(fmt::format("mesh.{}={}", command.axis, size.members));
    sets.push_back(fmt::format("train.sequences_per_step={}", size.sequences));
    if (command.how.cluster.empty()) sets.push_back(fmt::format("run.threads_per_rank={}", size.threads));
    return sets;
}

std::vector<std::string> arguments_of(const ScriptCommand& script, const ScaleCommand& command, const Size& size,
                                      const fs::path& folder) {
    std::vector<std::string> arguments = {"/proc/self/exe", "run", script.script};
    if (!script.config.empty()) arguments.insert(arguments.end(), {"--config", script.config});
    std::vector<std::string> sets = sets_of(script, command, size);
    sets.push_back(fmt::format("train.steps={}", command.steps));
    sets.push_back("run.folder=" + toml_string(folder.string()));
    for (const std::string& text : sets) arguments.insert(arguments.end(), {"--set", text});
    for (const char* quiet : {"train.log_every=1000000", "train.evaluate_every=0", "train.evaluate_batches=1",
                              "checkpoint.every=steps", "checkpoint.every_steps=0", "checkpoint.final=false"})
        arguments.insert(arguments.end(), {"--own-set", quiet});
    return arguments;
}

/// Throws Error if a run failed because its script sets a key that `orrery scale` must set.
void refuse_given(const std::string& errors, const ScaleCommand& command) {
    for (const auto& [key, what] :
         {std::pair<std::string, std::string>{"train.steps", fmt::format("--steps {}", command.steps)},
          {"train.sequences_per_step", "the batch of a size"}}) {
        const std::string words = key + " has no effect: ";
        const size_t at = errors.find(words);
        if (at == std::string::npos) continue;
        const std::string call = errors.substr(at + words.size(), errors.find('\n', at) - at - words.size());
        throw Error(
            fmt::format("scale: {} has no effect: {}\n  remove the value of {} from the script", what, call, key),
            Fault::usage);
    }
}

/// Returns the median of `key` in a metrics.jsonl, over all steps but the first quarter.
double median_of(const fs::path& metrics, const char* key, int64_t steps) {
    std::ifstream file(metrics);
    std::vector<double> values;
    for (std::string line; std::getline(file, line);) {
        const Json json = parse_json(line, {"", metrics.string(), 0, 0});
        const auto value = json.find(key);
        if (json.contains("loss") && json["step"].get<int64_t>() > steps / 4 && value != json.end() &&
            value->is_number())
            values.push_back(value->get<double>());
    }
    return values.empty() ? 0 : median(std::move(values));
}

ScaledRun run_size(const ScriptCommand& script, const ScaleCommand& command, const Size& size, const fs::path& folder,
                   HeldSignals& signals) {
    const auto limit = std::chrono::seconds(command.limit_s);
    const ChildEnd end = run_child(arguments_of(script, command, size, folder), limit, &signals);
    if (end.stopped != 0) throw Stopped{end.stopped};
    if (end.code == 2) refuse_given(end.errors, command);
    const std::string why = end.code != 0 ? fmt::format("ended with exit code {}", end.code) : end.why_not();
    if (!why.empty())
        throw Error(fmt::format("scale: the run of {} {}\n{}", plural(size.ranks, "rank"), why, trim(end.errors)),
                    end.code == 2 ? Fault::usage : Fault::failed);
    ScaledRun run;
    run.ranks = size.ranks;
    run.sequences = size.sequences;
    run.throughput = median_of(folder / "metrics.jsonl", "tok/s", command.steps);
    if (!(run.throughput > 0)) {
        run.throughput = median_of(folder / "metrics.jsonl", "samples/s", command.steps);
        run.tokens = false;
    }
    run.mfu = median_of(folder / "metrics.jsonl", "MFU", command.steps);
    run.parts = parts_of_run(system_env()->read_file((folder / "run.json").string()));
    if (!(run.throughput > 0))
        throw Error(fmt::format("scale: the run on {} has neither tok/s nor samples/s in its metrics.jsonl",
                                plural(size.ranks, "rank")),
                    Fault::failed);
    return run;
}

ScaledRun middle(std::vector<ScaledRun> rounds) {
    std::sort(rounds.begin(), rounds.end(),
              [](const ScaledRun& a, const ScaledRun& b) { return a.throughput < b.throughput; });
    return rounds[rounds.size() / 2];
}

std::vector<ScaledRun> measured_runs(const ScriptCommand& script, const ScaleCommand& command,
                                     const std::vector<Size>& sizes, HeldSignals& signals) {
    const ScratchFolder folder;
    std::vector<std::vector<ScaledRun>> rounds(sizes.size());
    for (int64_t round = 0; round < command.rounds; ++round)
        for (size_t i = 0; i < sizes.size(); ++i) {
            std::fprintf(stderr, "%s, %s a step ...\n", plural(sizes[i].ranks, "rank").c_str(),
                         plural(sizes[i].sequences, "sequence").c_str());
            end_when_asked(signals);
            const fs::path own = folder.path / fmt::format("{}-{}", round, i);
            rounds[i].push_back(run_size(script, command, sizes[i], own, signals));
        }
    std::vector<ScaledRun> runs;
    for (auto& of_size : rounds) runs.push_back(middle(std::move(of_size)));
    return runs;
}

}  // namespace

std::vector<int64_t> read_sizes(const std::string& text, int64_t most) {
    std::vector<int64_t> sizes;
    for (const std::string& part : split(text, ',')) {
        int64_t size = 0;
        const auto [end, fault] = std::from_chars(part.data(), part.data() + part.size(), size);
        if (fault != std::errc() || end != part.data() + part.size() || size < 1 || size > most ||
            (!sizes.empty() && size <= sizes.back()))
            throw Error(
                fmt::format("--ranks {}: expected ascending numbers of ranks up to {}, for example 1,2,4", text, most));
        sizes.push_back(size);
    }
    return sizes;
}

std::map<std::string, double> parts_of_run(const std::string& run_json) {
    const Json record = parse_json(run_json, {"", "run.json", 0, 0});
    if (!record.contains("time_s"))
        throw Error("scale: run.json has no time_s, the breakdown of the run's time", Fault::failed);
    auto parts = record["time_s"].get<std::map<std::string, double>>();
    double all = 0;
    for (const auto& [part, seconds] : parts) all += seconds;
    for (auto& [part, seconds] : parts) seconds = all > 0 ? seconds / all : 0;
    return parts;
}

bool ScaleReport::reaches_target() const {
    return !largest_left_out && (runs.empty() || efficiency(runs.size() - 1) >= target);
}

namespace {

/// Adds runs and predictions to `report`. Throws Stopped.
void run_all(const ScriptCommand& script, const ScaleCommand& command, const std::vector<Size>& sizes,
             ScaleReport& report) {
    report.simulated = command.simulate && !command.measure;
    std::optional<HeldSignals> signals;
    if (!report.simulated) signals.emplace();  // must come before a simulation loads libraries that create threads
    std::vector<ScaledRun> simulated;
    std::vector<std::optional<double>> predicted;
    std::vector<Size> kept;  // those that can be simulated, or at least run
    std::exception_ptr mistake;
    std::set<std::string> reasons;
    for (const Size& size : command.simulate ? sizes : std::vector<Size>()) {
        if (signals) end_when_asked(*signals);
        ScriptCommand asked = script;
        asked.sets = sets_of(script, command, size);
        try {
            simulated.push_back(simulated_run(asked, command, size.sequences));
            predicted.emplace_back(simulated.back().throughput);
            kept.push_back(size);
        } catch (const Error& error) {
            const bool runs = command.measure && dynamic_cast<const NotPriced*>(&error);
            if (runs) predicted.emplace_back(), kept.push_back(size);
            report.left_out.push_back(fmt::format("{}{}: {}", plural(size.ranks, "rank"),
                                                  command.measure && !runs ? ", not run either" : "", error.what()));
            reasons.insert(error.what());
            mistake = std::current_exception();
        }
    }
    if (command.simulate && simulated.empty() && reasons.size() == 1) std::rethrow_exception(mistake);
    if (command.simulate && simulated.empty())
        throw Error(fmt::format("scale: none of the sizes can be simulated\n  {}", join(report.left_out, "\n  ")));
    if (!command.simulate) kept = sizes;
    report.largest_left_out = kept.back().ranks != sizes.back().ranks;
    report.smallest_left_out = kept.front().ranks != sizes.front().ranks;
    if (!simulated.empty()) report.notes = simulated.front().notes;
    report.runs = signals ? measured_runs(script, command, kept, *signals) : simulated;
    if (command.simulate && command.measure) report.predicted = predicted;
}

}  // namespace

int scale_command(const ScriptCommand& script, const ScaleCommand& command) {
    if (script.script_help) return show_options(script, Job{});
    require_svg(command.out);
    if (!(command.target > 0 && command.target <= 1))
        throw Error(
            fmt::format("--target {}: expected a fraction of ideal scaling, above 0 and up to 1", command.target));
    if (command.measure && !command.how.cluster.empty())
        throw Error(
            "--measure and --cluster cannot be combined: --measure runs on this machine; leave one of them out");
    if (command.steps < 4) throw Error(fmt::format("--steps {}: expected 4 or more", command.steps));
    const std::vector<Size> sizes = sizes_of(script, command);
    ScaleReport report;
    report.title = fmt::format("{}: {} scaling over {}", fs::path(script.script).filename().string(),
                               command.strong ? "strong" : "weak", command.axis);
    report.strong = command.strong;
    report.target = command.target;
    try {
        run_all(script, command, sizes, report);
    } catch (const Stopped& stopped) {
        std::fprintf(stderr, "orrery: scale: stopped by signal %d\n", stopped.signal);
        return 128 + stopped.signal;
    }
    std::fputs(scale_text(report).c_str(), stdout);
    for (const std::string& size : report.left_out) std::printf("not simulated: %s\n", size.c_str());
    if (report.largest_left_out) std::printf("the largest size was left out: the target counts as missed\n");
    for (const std::string& note : report.notes) std::printf("%s\n", note.c_str());
    if (!command.out.empty()) write_result(command.out, scale_svg(report));
    return report.reaches_target() ? 0 : 1;
}

}  // namespace orrery
