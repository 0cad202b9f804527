#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include "base/json.h"
#include "base/processors.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/simulate/forecast.h"
#include "cli/simulate/workers.h"
#include "config/load.h"
#include "draw/trade_off.h"
#include "run/settings.h"
#include "sim/cluster_prices.h"
#include "sim/search.h"

namespace orrery {
namespace {

using Sets = std::vector<std::string>;

const std::set<std::string> options = {"mesh", "samples", "zero", "schedule", "sequence", "recompute", "mapping"};

bool kept(const PlanCommand& command, const std::string& option) {
    return std::find(command.keep.begin(), command.keep.end(), option) != command.keep.end();
}

/// What a choice is called in the configuration; options that the script does not declare are left out.
Sets sets_of(const Choice& c, const SearchSpace& space) {
    Sets sets;
    if (space.varies_mesh)
        for (const auto& [axis, size] : {std::pair{"pp", c.pp}, std::pair{"dp", c.dp}, std::pair{"tp", c.tp}})
            sets.push_back(fmt::format("mesh.{}={}", axis, size));
    if (space.varies_mesh || space.varies_samples)
        sets.push_back(fmt::format("train.microbatches={}", space.batch / c.dp / c.samples));
    if (space.varies_zero) sets.push_back(fmt::format("script.zero={}", c.zero));
    if (space.varies_schedule) {
        sets.push_back(fmt::format("script.pipeline=\"{}\"", c.schedule));
        sets.push_back(fmt::format("script.chunks={}", c.chunks));
    }
    if (space.varies_sequence) sets.push_back(fmt::format("script.sequence={}", c.sequence));
    if (space.varies_recompute) sets.push_back(fmt::format("script.recompute=\"{}\"", c.recompute));
    return sets;
}

/// The same as TOML, table by table.
std::string toml(const Choice& c, const SearchSpace& space) {
    std::string out, table;
    for (const std::string& set : sets_of(c, space)) {
        const size_t dot = set.find('.'), equals = set.find('=');
        if (set.substr(0, dot) != table) out += fmt::format("[{}]\n", table = set.substr(0, dot));
        out += fmt::format("{} = {}\n", set.substr(dot + 1, equals - dot - 1), set.substr(equals + 1));
    }
    if (!c.mapping.empty()) out += fmt::format("# place ranks with --mapping {}\n", c.mapping);
    return out;
}

std::string binds(const Prediction& p) {
    if (static_cast<double>(p.memory_bytes) > 0.95 * p.memory_limit) return "memory";
    std::string most = p.waiting > 0.1 ? "bubble" : "";
    double share = p.waiting > 0.1 ? p.waiting : 0.1;
    for (const auto& [axis, exposed] : p.exposed)
        if (exposed > share) {
            share = exposed;
            most = axis;
        }
    return most.empty() ? "computing" : fmt::format("{} {:.0f} %", most, 100 * share);
}

/// `sequence`: the script declares it; what it does not declare, nobody knows.
std::string row(const Judged& j, bool sequence) {
    const Choice& c = j.choice;
    return fmt::format("{:>10.4g} {:>6.1f} {:>10}  {:>4} {:>5} {:>4} {:>6} {:>5}  {:<14} {:<5} {:<10} {:<10} {}\n",
                       j.step_s, 100 * j.mfu, bytes_text(j.memory_bytes), c.pp, c.dp, c.tp, c.samples,
                       c.zero < 0 ? "-" : std::to_string(c.zero),
                       c.pp == 1 || c.schedule.empty() ? "-"
                       : c.chunks > 0                  ? fmt::format("{} x{}", c.schedule, c.chunks)
                                                       : c.schedule,
                       !sequence    ? "-"
                       : c.sequence ? "yes"
                                    : "no",
                       c.recompute.empty() ? "-" : c.recompute, c.mapping.empty() ? "-" : c.mapping, j.binds);
}

/// Only where somebody looks.
void show(int64_t judged, int64_t left, const Judged* best) {
    static const bool terminal = ::isatty(STDERR_FILENO) == 1;
    if (!terminal) return;
    const std::string so_far = best ? fmt::format("best {:.4g} s", best->step_s) : "nothing fits so far";
    std::fprintf(stderr, "\r\033[Kplan: %lld compiled, %lld meshes to look at, %s", static_cast<long long>(judged),
                 static_cast<long long>(left), so_far.c_str());
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Of a micro-batch on one member of dp, as the configuration has it.
int64_t configured_samples(const ScriptCommand& command) {
    Config config = load_config(command.config, command.sets);
    return config.table("train").integer("sequences_per_step", 1) / config.table("mesh").integer("dp", 1) /
           config.table("train").integer("microbatches", 1);
}

/// Of all choices. A mesh that is kept says it.
int64_t ranks_of(const ScriptCommand& given, const PlanCommand& command, const Cluster& cluster) {
    int64_t ranks = command.ranks > 0 ? command.ranks : cluster.accelerators();
    if (kept(command, "mesh")) {
        Config config = load_config(given.config, given.sets);
        const int64_t mesh = read_settings(config).mesh.ranks();
        if (command.ranks > 0 && command.ranks != mesh)
            throw Error(fmt::format("--ranks {}, but the mesh that --keep mesh keeps has {}\n  leave one of them out",
                                    command.ranks, mesh));
        ranks = mesh;
    }
    if (ranks > cluster.accelerators())
        throw Error(fmt::format("{}: the cluster has {} accelerators, {} are missing",
                                command.ranks > 0 ? fmt::format("--ranks {}", ranks) : plural(ranks, "rank"),
                                cluster.accelerators(), ranks - cluster.accelerators()));
    return ranks;
}

/// What does not vary is what the script makes of the configuration; what it declares no option for, nobody knows.
void keep_options(SearchSpace& space, const std::map<std::string, std::string>& options) {
    const auto text = [&](const char* key) {
        const auto found = options.find(key);
        return found == options.end() ? "" : found->second;
    };
    const auto number = [&](const char* key) {
        const std::string of_key = text(key);
        char* end = nullptr;
        const int64_t value = std::strtoll(of_key.c_str(), &end, 10);
        return of_key.empty() || *end != 0 ? -1 : value;
    };
    if (!space.varies_zero) space.start.zero = number("zero");
    if (!space.varies_schedule) {
        space.start.schedule = text("pipeline");
        space.start.chunks = std::max<int64_t>(0, number("chunks"));
        if (number("chunks") < 0 && space.start.schedule == "interleaved") space.start.schedule = "";
    }
    if (!space.varies_sequence) space.start.sequence = text("sequence") == "true";
    if (!space.varies_recompute) space.start.recompute = text("recompute");
}

/// Plays the configuration as it is, which tells what the model and the script are.
SearchSpace space_of(const Forecast& first, const Cluster& cluster, const PlanCommand& command, int64_t ranks,
                     int64_t samples) {
    SearchSpace space;
    const auto declares = [&](const char* key) { return first.options.count(key) > 0; };
    space.ranks = ranks;
    space.batch = first.compiled.sizes.full();
    space.most_tp = command.most_tp > 0 ? command.most_tp : cluster.kinds.front().accelerators;
    space.most_pp = command.most_pp > 0 ? command.most_pp : std::min<int64_t>(ranks, 64);
    space.varies_mesh = !kept(command, "mesh");
    space.varies_samples = !kept(command, "samples");
    space.varies_zero = declares("zero") && !kept(command, "zero");
    space.varies_schedule = declares("pipeline") && declares("chunks") && !kept(command, "schedule");
    space.varies_sequence = declares("sequence") && !kept(command, "sequence");
    space.varies_recompute = declares("recompute") && !kept(command, "recompute");
    space.varies_mapping = !kept(command, "mapping");
    keep_options(space, first.options);
    const Mesh& mesh = first.compiled.mesh;
    const auto size = [&](const char* axis) { return mesh.find(axis) ? mesh.size(*mesh.find(axis)) : 1; };
    space.start.pp = size("pp");
    space.start.dp = size("dp");
    space.start.tp = size("tp");
    space.start.samples = std::max<int64_t>(1, samples);
    space.memory_limit = first.prediction.memory_limit;
    space.parameters = static_cast<double>(first.compiled.parameters);
    space.flops = first.compiled.flops_per_step;
    space.rate = first.prediction.rate;
    return space;
}

Judged judged(const ScriptCommand& given, const Cluster& cluster, const PlanCommand& command, const Choice& choice,
              const SearchSpace& space) {
    Judged made;
    ScriptCommand script = given;
    const Sets sets = sets_of(choice, space);
    script.sets.insert(script.sets.end(), sets.begin(), sets.end());
    SimulateCommand how = command.simulate;
    how.quick = true;
    if (!choice.mapping.empty()) how.mapping = split(choice.mapping, ',');
    try {
        const Prediction p = forecast(script, cluster, how).prediction;
        made.step_s = p.step_s;
        made.computing_s = p.computing * p.step_s;
        made.mfu = p.mfu;
        made.memory_bytes = p.memory_bytes;
        made.binds = binds(p);
    } catch (const Error& error) {
        made.why_not = first_line(error.what());
    }
    return made;
}

/// On the way from a process; numbers come out as they went in.
std::string text_of(const Judged& j) {
    return message_text(Json{j.why_not, j.step_s, j.computing_s, j.mfu, j.memory_bytes, j.binds});
}

Judged judged_of(const std::string& text) {
    const Json json = parse_json(text, {});
    Judged j;
    json.at(0).get_to(j.why_not);
    json.at(1).get_to(j.step_s);
    json.at(2).get_to(j.computing_s);
    json.at(3).get_to(j.mfu);
    json.at(4).get_to(j.memory_bytes);
    json.at(5).get_to(j.binds);
    return j;
}

/// Each choice in a process; what they are given outlives the search.
Search::Judge judge_of(const ScriptCommand& given, const Cluster& cluster, const PlanCommand& command,
                       const SearchSpace& space) {
    const int64_t jobs = command.jobs > 0 ? command.jobs : static_cast<int64_t>(allowed_processors().size());
    return [&, jobs](const std::vector<Choice>& choices, const Search::Done& done) {
        const auto of = [&](int64_t i) { return choices[static_cast<size_t>(i)]; };
        in_processes(
            static_cast<int64_t>(choices.size()), jobs,
            [&](int64_t i) { return text_of(judged(given, cluster, command, of(i), space)); },
            [&](int64_t i, const std::string& text) { done(static_cast<size_t>(i), judged_of(text)); },
            [&](int64_t i) { return of(i).text(); });
    };
}

void draw(const std::string& file, const std::string& title, const std::vector<std::string>& facts, const Found& found,
          double memory_limit) {
    TradeOff made{title, facts, {}, memory_limit};
    for (const Judged& judged : found.all) {
        const auto told = std::find_if(found.best.begin(), found.best.end(),
                                       [&](const Judged& best) { return best.choice == judged.choice; });
        const int place = told == found.best.end() ? 0 : static_cast<int>(told - found.best.begin()) + 1;
        made.ways.push_back({judged.step_s, static_cast<double>(judged.memory_bytes), place,
                             fmt::format("{}; MFU {:.1f} %", judged.choice.text(), 100 * judged.mfu)});
    }
    std::ofstream out(file, std::ios::trunc);
    out << draw_svg(made);
    out.close();
    if (!out) throw Error(fmt::format("cannot write {}", file), Fault::failed);
}

/// Of parameters, gradients and optimizer states alone, split as far as meshes of the space split them.
std::string least_state(const SearchSpace& space) {
    Choice most = space.start;
    double least = state_bytes(space.parameters, most);
    for (Choice c : space.meshes())
        for (std::optional<Choice> smaller = c; smaller; smaller = space.smaller(*smaller))
            if (const double bytes = state_bytes(space.parameters, *smaller); bytes < least) {
                least = bytes;
                most = *smaller;
            }
    return fmt::format(
        "\n  the state of {} parameters alone takes about {} on a rank where it is least ({}), {} more than "
        "the {} of its accelerator",
        count_text(static_cast<int64_t>(space.parameters)), bytes_text(static_cast<int64_t>(least)), most.text(),
        bytes_text(static_cast<int64_t>(least - space.memory_limit)),
        bytes_text(static_cast<int64_t>(space.memory_limit)));
}

void print_found(const Found& found, const PlanCommand& command, bool sequence) {
    for (const auto& [reason, count] : found.left_out)
        std::printf("left out: %s, as %s\n", plural(count, "choice").c_str(), reason.c_str());
    if (!found.best.empty())
        std::printf("%10s %6s %10s  %4s %5s %4s %6s %5s  %-14s %-5s %-10s %-10s %s\n", "step s", "MFU %", "memory",
                    "pp", "dp", "tp", "sample", "zero", "schedule", "seq", "recompute", "mapping", "binds");
    for (const Judged& judged : found.best) std::fputs(row(judged, sequence).c_str(), stdout);
    if (command.simulate.tp_chunks > 0)
        std::printf(
            "times are of collectives of tp in %lld chunks beside their products, which `orrery run` cannot do\n",
            static_cast<long long>(command.simulate.tp_chunks));
    for (const std::string& edge : found.edges) std::printf("at the edge: %s\n", edge.c_str());
}

/// Where nothing fits: how far off the closest is, and what is wrong with the others.
[[noreturn]] void refuse(const Found& found, const SearchSpace& space) {
    const auto limit = static_cast<int64_t>(space.memory_limit);
    std::string text = "nothing fits";
    for (const Judged& judged : found.failed)
        text +=
            "\n  " + (judged.why_not.empty()
                          ? fmt::format("{} too much where it is least: a rank takes {}, its accelerator has {} ({})",
                                        bytes_text(judged.memory_bytes - limit), bytes_text(judged.memory_bytes),
                                        bytes_text(limit), judged.choice.text())
                          : judged.why_not);
    if (found.failed.empty() && space.start.zero >= 0) text += least_state(space);
    throw Error(text + "\n  take more ranks, a smaller model, or another accelerator");
}

}  // namespace

int plan_command(const ScriptCommand& given, const PlanCommand& command) {
    if (given.script_help) {
        SimulateCommand none;
        return simulate_command(given, none);
    }
    if (!command.simulate.out.empty() && !command.simulate.out.ends_with(".svg"))
        throw Error(fmt::format("-o {}: a drawing is an SVG; name the file .svg", command.simulate.out));
    for (const std::string& option : command.keep)
        if (options.count(option) == 0)
            throw Error(fmt::format("--keep {}: no such option{}", option,
                                    choices("there are", option, {options.begin(), options.end()})),
                        Fault::usage);
    const Cluster cluster = read_cluster(command.simulate.cluster, command.simulate.cluster_nodes);
    const int64_t ranks = ranks_of(given, command, cluster);
    const auto begun = std::chrono::steady_clock::now();
    // One rank alone has no mesh that could be wrong for the model.
    ScriptCommand probe = given;
    if (!kept(command, "mesh"))
        for (const char* set : {"mesh.pp=1", "mesh.dp=1", "mesh.tp=1", "train.microbatches=1"})
            probe.sets.push_back(set);
    const Forecast first = forecast(probe, cluster, command.simulate);
    const SearchSpace space = space_of(first, cluster, command, ranks, configured_samples(given));
    const Found found = Search(space, judge_of(given, cluster, command, space), show).run();
    if (::isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "\r\033[K");
    const std::string title = fmt::format("{} on {}: {} ranks, {} sequences a step", first.compiled.name, cluster.name,
                                          count_text(ranks), count_text(space.batch));
    const std::string looked =
        fmt::format("{} compiled, {} left out", plural(found.compiled, "choice"), count_text(found.pruned()));
    std::printf("%s; %s, %.1f s\n", title.c_str(), looked.c_str(),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    if (!command.simulate.out.empty())
        draw(command.simulate.out, fmt::format("{} on {} ranks", first.compiled.name, count_text(ranks)),
             {cluster.name, cluster.text(), fmt::format("{} sequences a step; {}", count_text(space.batch), looked)},
             found, space.memory_limit);
    print_found(found, command, first.options.count("sequence") > 0);
    if (found.best.empty()) refuse(found, space);
    std::printf("\n%s", toml(found.best.front().choice, space).c_str());
    return 0;
}

}  // namespace orrery
