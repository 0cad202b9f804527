#include "cli/simulate/found_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/json.h"
#include "base/text.h"
#include "cli/simulate/choice_sets.h"
#include "cli/simulate/forecast.h"
#include "draw/trade_off.h"

namespace orrery {
namespace {

constexpr size_t most_reasons = 6;

std::string known(const std::string& word) { return word.empty() ? "-" : word; }

/// Columns that the longest text of recomputation needs.
size_t recompute_width(const FoundReport& report) {
    size_t width = 10;
    for (const Judged& judged : report.found.best) width = std::max(width, judged.choice.recompute_text().size());
    return width;
}

std::string header(const FoundReport& report) {
    return fmt::format(
        "    step s  MFU %  full %     memory    pp{}    dp{}   cp   tp sample  zero  schedule       seq   {:<{}} "
        "mapping    context         binds\n",
        report.space.start.rep > 1 ? "  rep" : "", report.space.experts > 0 ? "   ep" : "", "recompute",
        recompute_width(report));
}

std::string row(const Judged& j, const FoundReport& report) {
    const Choice& c = j.choice;
    const std::string copies = c.rep > 1 ? fmt::format(" {:>4}", c.rep) : "";
    const std::string experts = report.space.experts > 0 ? fmt::format(" {:>4}", c.ep) : "";
    const std::string sequence = !report.knows_sequence ? "-" : c.sequence ? "yes" : "no";
    return fmt::format(
        "{:>10.4g} {:>6.1f} {:>7.1f} {:>10}  {:>4}{} {:>5}{} {:>4} {:>4} {:>6} {:>5}  {:<14} {:<5} {:<{}} {:<10} "
        "{:<15} {}\n",
        j.step_s, 100 * j.mfu, 100 * j.mfu * report.full_share, bytes_text(j.memory_bytes), c.pp, copies, c.dp / c.ep,
        experts, c.cp, c.tp, c.samples, c.zero < 0 ? "-" : std::to_string(c.zero), known(c.schedule_text()), sequence,
        known(c.recompute_text()), recompute_width(report), known(c.mapping), known(c.context_text()), j.binds);
}

int64_t limit_of(const SearchSpace& space) { return static_cast<int64_t>(space.memory_limit); }

/// Describes choices that were refused for one reason: "12 choices do not run: reason (pp=2 dp=1 tp=1 samples=1)".
std::string told(const Refused& refused) {
    const Judged& one = refused.closest;
    const std::string count = plural(refused.count, "choice");
    if (!one.why_not.empty())
        return fmt::format("{} {} not run: {} ({})", count, refused.count == 1 ? "does" : "do", one.why_not,
                           one.choice.text());
    const std::string rank = one.memory_rank < 0 ? "a rank" : fmt::format("rank {}", one.memory_rank);
    return fmt::format("{} {} not fit: out of memory by {} in the best case, where {} needs {} and has {} ({})", count,
                       refused.count == 1 ? "does" : "do", bytes_text(static_cast<int64_t>(one.over())), rank,
                       bytes_text(one.memory_bytes), bytes_text(static_cast<int64_t>(one.memory_limit)),
                       one.choice.text());
}

std::vector<Refused> by_count(std::vector<Refused> refused) {
    std::stable_sort(refused.begin(), refused.end(),
                     [](const Refused& a, const Refused& b) { return a.count > b.count; });
    return refused;
}

std::string title_of(const FoundReport& report) {
    return fmt::format("{} on {}: {} ranks, {} sequences a step", report.program, report.place,
                       count_text(report.space.ranks), count_text(report.space.batch));
}

std::string looked(const Found& found) {
    return fmt::format("{} compiled, {} left out", plural(found.compiled, "choice"), count_text(found.pruned()));
}

std::string stopped_text(const FoundReport& report) {
    return fmt::format("stopped early by {}: {} judged, {} left to judge or refine", report.stopped,
                       plural(report.found.compiled, "choice"),
                       report.found.left == 1 ? "1 mesh" : count_text(report.found.left) + " meshes");
}

/// Says how much memory parameters, gradients and optimizer state need on a rank at least, over all searched meshes.
std::string least_state(const FoundReport& report) {
    const SearchSpace& space = report.space;
    Choice most = space.start;
    double least = state_bytes(space.state, most);
    for (Choice c : space.meshes())
        for (std::optional<Choice> smaller = c; smaller; smaller = space.smaller(*smaller))
            if (const double bytes = state_bytes(space.state, *smaller); bytes < least) {
                least = bytes;
                most = *smaller;
            }
    return fmt::format(
        "\n  the state of {} parameters alone needs about {} on a rank in the best case ({}), {} more than the {} "
        "of its memory",
        count_text(report.parameters), bytes_text(static_cast<int64_t>(least)), most.text(),
        bytes_text(static_cast<int64_t>(least - space.memory_limit)), bytes_text(limit_of(space)));
}

/// Suggests how to get more memory per rank. On one host, fewer ranks have more memory each.
std::string more_room(const FoundReport& report) {
    if (!report.here) return "take more ranks, a smaller model, or accelerators with more memory";
    return fmt::format("take a smaller model{} or a machine with more memory",
                       report.space.ranks > 1 ? ", fewer ranks (--ranks)," : "");
}

/// The memory limit that all choices share; 0: none, or limits differ.
double limit_of_all(const Found& found) {
    const double limit = found.all.empty() ? 0 : found.all.front().memory_limit;
    const auto other = [&](const Judged& judged) { return judged.memory_limit != limit; };
    return std::any_of(found.all.begin(), found.all.end(), other) ? 0 : limit;
}

Json json_of(const Judged& j, const FoundReport& report) {
    const Choice& c = j.choice;
    Json json = {{"step_s", j.step_s},
                 {"mfu", j.mfu},
                 {"mfu_full", j.mfu * report.full_share},
                 {"memory_bytes", j.memory_bytes},
                 {"memory_limit_bytes", static_cast<int64_t>(j.memory_limit)},
                 {"fits", j.fits()},
                 {"binds", j.binds},
                 {"sources", j.sources},
                 {"pp", c.pp},
                 {"rep", c.rep},
                 {"dp", c.dp / c.ep},
                 {"ep", c.ep},
                 {"cp", c.cp},
                 {"tp", c.tp},
                 {"samples", c.samples},
                 {"zero", c.zero},
                 {"schedule", c.schedule},
                 {"chunks", c.chunks},
                 {"sequence", c.sequence},
                 {"recompute", c.recompute},
                 {"recompute_layers", c.recompute_layers},
                 {"mapping", c.mapping},
                 {"context", c.cp > 1 ? c.context : ""},
                 {"order", c.cp > 1 ? c.order : ""},
                 {"sets", sets_of(c, report.space)}};
    if (report.training.tokens > 0) json["training"] = training_json(report.training, j.step_s);
    return json;
}

}  // namespace

std::string text_of(const FoundReport& report) {
    const Found& found = report.found;
    std::string text = fmt::format("{}; {}, {:.1f} s\n", title_of(report), looked(found), report.seconds);
    if (report.here) {
        text += join(report.facts, "; ") + "\n";
        if (report.space.memory_limit > 0)
            text += fmt::format("memory is the mean over ranks, which share the host's memory: {} each\n",
                                bytes_text(limit_of(report.space)));
    }
    if (report.imbalance > 0)
        text += fmt::format("times assume that each expert of the busiest rank has {:g} times the mean load\n",
                            report.imbalance);
    if (!report.stopped.empty()) text += stopped_text(report) + "\n";
    for (const std::string& note : report.notes) text += note + "\n";
    if (!report.recomputation.empty()) text += report.recomputation + "\n";
    for (const auto& [reason, count] : found.left_out)
        text += fmt::format("left out: {}, as {}\n", plural(count, "choice"), reason);
    if (found.best.empty()) return text;
    const std::vector<Refused> refused = by_count(found.refused);
    for (size_t i = 0; i < std::min(most_reasons, refused.size()); ++i) text += told(refused[i]) + "\n";
    if (refused.size() > most_reasons)
        text +=
            fmt::format("{} more do not run\n", plural(static_cast<int64_t>(refused.size() - most_reasons), "kind"));
    text += header(report);
    for (const Judged& judged : found.best) text += row(judged, report);
    if (report.training.tokens > 0)
        text += fmt::format("training with the fastest choice: {}\n",
                            orrery::text(report.training, found.best.front().step_s));
    for (const std::string& source : found.best.front().sources)
        text += fmt::format("times of the first: {}\n", source);
    if (report.tp_chunks > 0)
        text += fmt::format(
            "times assume tp collectives in {} chunks that overlap with computation, which `orrery run` does not "
            "support\n",
            report.tp_chunks);
    if (found.best.size() > 1 && found.best[1].step_s < found.best[0].step_s)
        text += fmt::format("the first row is the simplest choice within {:g} % of the fastest\n",
                            100 * report.space.alike);
    for (const std::string& edge : found.edges) text += fmt::format("at the edge: {}\n", edge);
    return text + "\n" + toml(found.best.front().choice, report.space);
}

std::string json_of(const FoundReport& report) {
    const Found& found = report.found;
    std::vector<Judged> all = found.all;
    std::stable_sort(all.begin(), all.end(), [&](const Judged& a, const Judged& b) {
        const auto place = [&](const Judged& j) {
            const bool first = !found.best.empty() && j.choice == found.best.front().choice;
            return std::tuple(!first, !j.fits(), j.step_s, j.choice);
        };
        return place(a) < place(b);
    });
    Json json = {{"title", title_of(report)},       {"facts", report.facts},
                 {"notes", report.notes},           {"ranks", report.space.ranks},
                 {"sequences", report.space.batch}, {"memory_limit_bytes", limit_of(report.space)},
                 {"compiled", found.compiled},      {"left_out", Json::object()},
                 {"refused", Json::array()},        {"edges", found.edges},
                 {"choices", Json::array()}};
    if (!report.recomputation.empty()) json["recomputation"] = report.recomputation;
    for (const Recomputation& one : report.space.recomputes)
        json["recomputations"].push_back(
            {{"recompute", one.kinds}, {"recompute_layers", one.layers}, {"freed_bytes_a_sequence", one.freed}});
    if (report.imbalance > 0) json["imbalance"] = report.imbalance;
    if (!report.stopped.empty()) json["stopped"] = stopped_text(report);
    for (const auto& [reason, count] : found.left_out) json["left_out"][reason] = count;
    for (const Refused& one : by_count(found.refused))
        json["refused"].push_back({{"count", one.count},
                                   {"why", one.closest.why_not.empty() ? "memory" : one.closest.why_not},
                                   {"example", one.closest.choice.text()},
                                   {"sets", sets_of(one.closest.choice, report.space)}});
    for (const Judged& judged : all) json["choices"].push_back(json_of(judged, report));
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string drawing_of(const FoundReport& report) {
    const Found& found = report.found;
    TradeOff made{fmt::format("{} on {} ranks", report.program, count_text(report.space.ranks)),
                  report.facts,
                  {},
                  limit_of_all(found)};
    if (report.here) {
        made.memory_name = "mean memory of a rank";
        made.limit_name = "a rank's share of this host is";
    }
    made.facts.push_back(fmt::format("{} sequences a step; {}", count_text(report.space.batch), looked(found)));
    if (!report.stopped.empty()) made.facts.push_back(stopped_text(report));
    for (const Judged& judged : found.all) {
        const auto place = std::find_if(found.best.begin(), found.best.end(),
                                        [&](const Judged& best) { return best.choice == judged.choice; });
        made.ways.push_back({judged.step_s, static_cast<double>(judged.memory_bytes),
                             place == found.best.end() ? 0 : static_cast<int>(place - found.best.begin()) + 1,
                             fmt::format("{}; MFU {:.1f} %", judged.choice.text(), 100 * judged.mfu),
                             judged.memory_limit});
    }
    return draw_svg(made);
}

std::string refusal(const FoundReport& report) {
    const Found& found = report.found;
    if (!found.best.empty()) return "";
    // If nothing fits, choices whose state alone is too large may have been left out without simulation.
    const bool judged_large = std::any_of(found.refused.begin(), found.refused.end(),
                                          [](const Refused& one) { return one.closest.why_not.empty(); });
    const bool left_large = found.left_out.count(no_room) > 0;
    std::string text = judged_large || left_large ? "nothing fits" : "nothing runs";
    if (!report.stopped.empty())
        text = "nothing that fits was found; " + stopped_text(report) + "\n  let the search run longer";
    for (const Refused& one : by_count(found.refused)) text += "\n  " + told(one);
    for (const auto& [reason, count] : found.left_out)
        if (reason != no_room) text += fmt::format("\n  left out: {}, as {}", plural(count, "choice"), reason);
    if (report.stopped.empty() && !judged_large && left_large) text += least_state(report);
    if (report.stopped.empty() && (judged_large || left_large)) text += "\n  " + more_room(report);
    if (found.refused.empty() && found.left_out.empty() && report.stopped.empty())
        text += fmt::format(
            "\n  no mesh of {} ranks in the search splits {} sequences per step into micro-batches "
            "that its schedule supports",
            count_text(report.space.ranks), count_text(report.space.batch));
    return text;
}

}  // namespace orrery
