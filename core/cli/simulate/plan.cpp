#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>

#include "base/files/result_file.h"
#include "base/json.h"
#include "base/processors.h"
#include "base/seconds.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/script_runner.h"
#include "cli/simulate/choice_sets.h"
#include "cli/simulate/forecast.h"
#include "cli/simulate/found_report.h"
#include "cli/simulate/site.h"
#include "cli/simulate/workers.h"
#include "sim/search/recomputations.h"

namespace orrery {
namespace {

bool watched() {
    static const bool terminal = ::isatty(STDERR_FILENO) == 1;
    return terminal;
}

void show(int64_t judged, int64_t left, const Judged* best) {
    if (!watched()) return;
    const std::string so_far = best ? fmt::format("best {:.4g} s", best->step_s) : "nothing fits so far";
    std::fprintf(stderr, "\r\033[Kplan: %lld compiled, %lld meshes left, %s", static_cast<long long>(judged),
                 static_cast<long long>(left), so_far.c_str());
}

/// Returns the samples in a micro-batch of one member of dp, ep and `rep`. `microbatches`: as the script sets them; 0:
/// as configured.
int64_t samples_of(ScriptRunner& configured, int64_t batch, int64_t microbatches, const std::string& rep) {
    Config& config = configured.config();
    if (microbatches == 0) microbatches = config.table("train").integer("microbatches", 1);
    Config& mesh = config.table("mesh");
    return batch / mesh.integer("dp", 1) / mesh.integer(rep, 1) / mesh.integer("ep", 1) / microbatches;
}

/// Number of ranks of each searched choice: the mesh's if it does not vary, else as requested or usual.
int64_t ranks_of(const ScriptRunner& configured, const PlanCommand& command, const Site& site) {
    int64_t ranks = command.ranks > 0 ? command.ranks : site.usual_ranks();
    if (kept(command, "mesh")) {
        const int64_t mesh = configured.settings.mesh.ranks();
        if (command.ranks > 0 && command.ranks != mesh)
            throw Error(fmt::format("--ranks {}, but the mesh of --keep mesh has {} ranks\n  leave one of them out",
                                    command.ranks, mesh));
        ranks = mesh;
    }
    if (ranks > site.most_ranks())
        throw Error(fmt::format("{}: the cluster has only {} accelerators, {} too few",
                                command.ranks > 0 ? fmt::format("--ranks {}", ranks) : plural(ranks, "rank"),
                                site.most_ranks(), ranks - site.most_ranks()));
    return ranks;
}

/// Stops the search after --seconds or at a stop signal, which it takes; a second signal ends the process.
class SearchLimit {
public:
    explicit SearchLimit(double seconds) : seconds_(seconds) {}

    /// Takes signals from now on.
    void take_signals() { signals_.emplace(); }

    bool reached() {
        if (signals_ && signal_ == 0 && (signal_ = signals_->take()) != 0) signals_.reset();
        return signal_ != 0 || (seconds_ > 0 && seconds_since(begun_) >= seconds_);
    }
    int signal() const { return signal_; }
    std::string text() const {
        return signal_ != 0 ? fmt::format("signal {}", signal_) : fmt::format("--seconds {:g}", seconds_);
    }

private:
    const double seconds_;
    const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
    std::optional<HeldSignals> signals_;
    int signal_ = 0;
};

std::string text_of(const Judged& j) {
    return message_text(Json{j.why_not, j.step_s, j.computing_s, j.mfu, j.memory_bytes, j.memory_limit, j.memory_rank,
                             j.binds, j.sources});
}

Judged judged_of(const std::string& text) {
    const Json json = parse_json(text, {});
    Judged j;
    json.at(0).get_to(j.why_not);
    json.at(1).get_to(j.step_s);
    json.at(2).get_to(j.computing_s);
    json.at(3).get_to(j.mfu);
    json.at(4).get_to(j.memory_bytes);
    json.at(5).get_to(j.memory_limit);
    json.at(6).get_to(j.memory_rank);
    json.at(7).get_to(j.binds);
    json.at(8).get_to(j.sources);
    return j;
}

/// Returns a function that simulates each choice of mesh and options in a child process. The arguments must outlive it.
Search::Judge judge_of(const ScriptCommand& given, const Site& site, const SearchSpace& space, int64_t jobs,
                       SearchLimit& limit) {
    return [&, jobs](const std::vector<Choice>& choices, const Search::Done& done) {
        const auto of = [&](int64_t i) -> const Choice& { return choices[static_cast<size_t>(i)]; };
        const auto judge = [&](int64_t i) {
            ScriptCommand script = given;
            const std::vector<std::string> sets = sets_of(of(i), space);
            script.sets.insert(script.sets.end(), sets.begin(), sets.end());
            // The printed TOML has the axes in this order; those of a configuration may be in another one.
            const std::string inner = fmt::format("tp{}{}", space.has_cp ? ",cp" : "", space.experts > 0 ? ",ep" : "");
            const std::string own = !space.varies_mesh ? "" : inner + ",dp,pp";
            return text_of(site.judge(script, of(i).mapping.empty() ? own : of(i).mapping));
        };
        in_processes(
            static_cast<int64_t>(choices.size()), jobs, judge,
            [&](int64_t i, const std::string& text) { done(static_cast<size_t>(i), judged_of(text)); },
            [&](int64_t i) { return of(i).text(); }, [&] { return limit.reached(); });
    };
}

/// The script's settings with a mesh of one rank, which suits every model; unchanged if the mesh does not vary.
ScriptCommand probe_of(const ScriptCommand& given, const PlanCommand& command) {
    ScriptCommand probe = given;
    if (kept(command, "mesh")) return probe;
    for (const char* set : {"mesh.pp=1", "mesh.dp=1", "mesh.ep=1", "mesh.cp=1", "mesh.tp=1"}) probe.sets.push_back(set);
    probe.own_sets.push_back("train.microbatches=1");
    return probe;
}

/// Returns the number of micro-batches that the script sets; 0: it sets none.
int64_t micros_of(const FirstLook& first) {
    return first.microbatches ? std::get<int64_t>(first.microbatches->value->data) : 0;
}

void require_tp(const SearchSpace& space, int64_t tp_chunks) {
    const std::vector<Choice> meshes = space.meshes();
    const bool any = std::any_of(meshes.begin(), meshes.end(), [](const Choice& mesh) { return mesh.tp > 1; });
    if (tp_chunks == 0 || any || meshes.empty()) return;
    throw Error(
        fmt::format("--tp-chunks {}: no mesh in the search has tp collectives to split\n  {}, or "
                    "leave --tp-chunks out",
                    tp_chunks, space.varies_mesh ? "raise --ranks or --most-tp" : "set mesh.tp"));
}

/// Finds what recomputation is worth trying.
void find_recomputations(const Program& recorded, FoundReport& report) {
    SearchSpace& space = report.space;
    if (space.rate <= 0 || space.bytes_s <= 0) return;
    Recomputations found = recomputations(recorded, space.batch, space.rate, space.bytes_s, space.has_recompute_layers);
    report.recomputation = text_of(found);
    if (space.varies_recompute) space.recomputes = std::move(found.worth);
}

/// Throws Error for what a search of other meshes and schedules than the configured ones cannot have.
void require_searched(ScriptRunner& configured, const PlanCommand& command) {
    const std::set<std::string> varied = {"pp", "dp", "ep", "cp", "tp"};
    for (const Axis& axis : configured.settings.mesh.axes())
        if (!kept(command, "mesh") && axis.size > 1 && !varied.contains(axis.name))
            throw Error(
                fmt::format("mesh.{0} = {1}: the search does not vary it\n  remove mesh.{0}, or give --keep mesh",
                            axis.name, axis.size));
    const std::string stages = configured.config().table("script").text("stages", "");
    if (!stages.empty() && !(kept(command, "mesh") && kept(command, "schedule")))
        throw Error(
            fmt::format("script.stages = {}: plan varies the mesh and the schedule, stages fit one\n  add --keep "
                        "mesh,schedule, or leave script.stages out",
                        stages));
}

FoundReport searched(const ScriptCommand& given, const PlanCommand& command, Site& site, SearchLimit& limit) {
    ScriptRunner configured(given, Job{});
    require_searched(configured, command);
    const int64_t ranks = ranks_of(configured, command, site);
    const auto begun = std::chrono::steady_clock::now();
    const FirstLook first = site.first(probe_of(given, command), ranks);
    FoundReport report;
    if (command.simulate.tokens > 0) {
        report.training = site.terms(ranks);
        report.training.tokens = command.simulate.tokens;
        report.training.tokens_per_step = static_cast<double>(first.compiled.tokens_per_step);
        training_cost(report.training, 1);  // throws for a program without tokens before the search
    }
    SearchSpace& space = report.space;
    const int64_t micros = micros_of(first);
    space = space_of(first.compiled, first.options, command,
                     samples_of(configured, first.compiled.sizes.full(), micros, replicate_axis(first.options)));
    space.microbatches = micros;
    space.varies_samples = space.varies_samples && micros == 0;
    space.ranks = ranks;
    space.most_tp = command.most_tp > 0 ? command.most_tp : site.usual_tp(ranks);
    space.most_pp = command.most_pp > 0 ? command.most_pp : std::min<int64_t>(ranks, 64);
    const int64_t tokens = first.compiled.tokens_per_step / first.compiled.sizes.full();
    space.most_cp = !space.has_cp ? 1 : command.most_cp > 0 ? command.most_cp : site.usual_cp(ranks, tokens);
    const int64_t ep = configured.settings.mesh.size("ep");
    if (space.varies_mesh && space.experts == 0 && ep > 1)
        throw Error(
            fmt::format("mesh.ep = {}: the search cannot vary it, because the script does not declare expert_axes = "
                        "\"ep\", or the model has no experts\n  remove mesh.ep, or give --keep mesh",
                        ep));
    if (command.most_ep > 0 && space.experts == 0)
        throw Error(
            fmt::format("--max-ep {}: there is no ep to search, because the script does not declare expert_axes = "
                        "\"ep\", or the model has no experts\n  leave --max-ep out",
                        command.most_ep),
            Fault::usage);
    space.most_ep = command.most_ep > 0 ? command.most_ep : std::max<int64_t>(1, space.experts);
    require_tp(space, command.simulate.tp_chunks);
    site.describe(space);
    if (first.options.count("recompute") > 0) find_recomputations(first.recorded, report);
    const int64_t jobs = command.jobs > 0 ? command.jobs : usable_processors();
    limit.take_signals();
    report.found =
        Search(space, judge_of(given, site, space, jobs, limit), show, [&] { return limit.reached(); }).run();
    if (watched()) std::fprintf(stderr, "\r\033[K");
    if (report.found.stopped) report.stopped = limit.text();
    report.program = first.compiled.name;
    report.parameters = first.compiled.parameters;
    if (first.compiled.flops_per_step > 0)
        report.full_share = first.compiled.full_flops_per_step / first.compiled.flops_per_step;
    report.place = site.name();
    report.facts = site.facts();
    report.notes = site.notes();
    if (std::string priced = priced_text(first.compiled); !priced.empty()) report.notes.push_back(std::move(priced));
    if (micros > 0)
        report.notes.push_back(fmt::format("the script sets microbatches ({}:{}), so that they are not searched",
                                           first.microbatches->line.file, first.microbatches->line.line));
    report.here = command.simulate.cluster.empty();
    report.knows_sequence = first.options.count("sequence") > 0;
    report.tp_chunks = command.simulate.tp_chunks;
    report.imbalance = command.simulate.imbalance;
    report.seconds = seconds_since(begun);
    return report;
}

}  // namespace

int plan_command(const ScriptCommand& given, const PlanCommand& command) {
    if (given.script_help) {
        SimulateCommand none;
        return simulate_command(given, none);
    }
    const std::string& drawing = command.simulate.out;
    require_svg(drawing);  // an unusable file must fail now, since a search takes minutes
    require_options(command);
    const std::unique_ptr<Site> site = site_of(given, command);
    SearchLimit limit(command.seconds);
    const FoundReport report = searched(given, command, *site, limit);
    const std::string text = command.simulate.json ? json_of(report) : text_of(report);
    std::fputs(text.c_str(), stdout);
    if (!drawing.empty()) {
        std::fflush(stdout);
        write_result(drawing, drawing_of(report));
    }
    if (const std::string why = refusal(report); !why.empty() && limit.signal() == 0)
        throw Error(why);
    else if (!why.empty())
        std::fprintf(stderr, "orrery: plan: %s\n", why.c_str());
    return limit.signal() != 0 ? 128 + limit.signal() : 0;
}

}  // namespace orrery
