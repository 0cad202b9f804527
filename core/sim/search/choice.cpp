#include "sim/search/choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {
namespace {

/// Returns the pipeline schedules one step from the current one. Omits gpipe, which is never better than 1f1b.
std::vector<std::pair<std::string, int64_t>> schedules_beside(const Choice& c) {
    if (c.schedule != "interleaved")
        return {{"1f1b", 0}, {"interleaved", 2}, {"interleaved", most_chunks}, {"zb_h1", 0}, {"zbv", 0}};
    std::vector<std::pair<std::string, int64_t>> all = {{"1f1b", 0}, {"zb_h1", 0}, {"zbv", 0}};
    if (c.chunks < most_chunks) all.emplace_back("interleaved", c.chunks + 1);
    if (c.chunks > 2) all.emplace_back("interleaved", c.chunks - 1);
    return all;
}

}  // namespace

std::string Choice::schedule_text() const {
    if (pp == 1 || schedule.empty()) return "";
    return chunks > 0 ? fmt::format("{} x{}", schedule, chunks) : schedule;
}

std::string Choice::context_text() const {
    if (cp == 1) return "";
    return order.empty() ? context : context + " " + order;
}

std::string Choice::recompute_text() const { return Recomputation{recompute, recompute_layers, 0, 0, 1}.text(); }

std::string Choice::text() const {
    std::string out = fmt::format("pp={}", pp);
    if (rep > 1) out += fmt::format(" rep={}", rep);
    out += fmt::format(" dp={}", dp / ep);
    if (ep > 1) out += fmt::format(" ep={}", ep);
    if (cp > 1) out += fmt::format(" cp={}", cp);
    out += fmt::format(" tp={} samples={}", tp, samples);
    if (const std::string method = context_text(); !method.empty()) out += " " + method;
    if (zero >= 0) out += fmt::format(" zero={}", zero);
    if (const std::string pipeline = schedule_text(); !pipeline.empty()) out += " " + pipeline;
    if (sequence) out += " sequence";
    if (!recompute.empty() && recompute != "none") out += " recompute=" + recompute;
    if (recompute_layers > 0) out += fmt::format(" recompute_layers={}", recompute_layers);
    return mapping.empty() ? out : out + " mapping=" + mapping;
}

std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool, int64_t> Choice::added() const {
    const int64_t fragments = schedule == "interleaved" ? std::max<int64_t>(chunks, 2)
                              : schedule == "zb_h1"     ? most_chunks + 1
                              : schedule == "zbv"       ? most_chunks + 2
                                                        : 1;
    const int64_t again = recompute == "all" ? 2 : recompute.empty() || recompute == "none" ? 0 : 1;
    return {cp, ep, pp == 1 ? 0 : fragments, zero, again, sequence, -samples * dp};
}

double state_bytes(const StateBytes& state, const Choice& c) {
    if (c.zero < 0) return 0;
    const auto n = static_cast<double>(c.copies()), ep = static_cast<double>(c.ep);
    const double split =
        (c.zero >= 1 ? state.optimizer : 0) + (c.zero >= 2 ? state.gradients : 0) + (c.zero >= 3 ? state.params : 0);
    const double kept = (state.all() - split) * (1 - state.experts + state.experts / ep);
    return (kept + split / n) / static_cast<double>(c.tp * c.pp);
}

double bubble(const Choice& c, int64_t micros) {
    if (c.pp == 1 || micros == 0) return 0;
    const double p = static_cast<double>(c.pp - 1), m = static_cast<double>(micros);
    if (c.schedule == "interleaved") return p / (static_cast<double>(std::max<int64_t>(c.chunks, 2)) * m);
    if (c.schedule == "zb_h1") return p / (3 * m);
    if (c.schedule == "zbv") return p / (6 * m);
    return c.schedule == "1f1b" || c.schedule == "gpipe" ? p / m : 0;
}

bool SearchSpace::whole(const Choice& c) const {
    if (micros(c) == 0 || batch % (c.rep * c.dp * c.samples) != 0) return false;
    if (microbatches > 0 && micros(c) != microbatches) return false;
    if (c.pp == 1) return true;
    return c.schedule != "interleaved" || micros(c) % c.pp == 0;
}

std::vector<Choice> SearchSpace::all_meshes() const {
    if (!varies_mesh) return {start};
    std::vector<Choice> all;
    for (int64_t of_tp = 1; of_tp <= std::min(ranks, most_tp); ++of_tp)
        for (int64_t of_pp = 1; of_pp <= std::min(ranks / of_tp, most_pp); ++of_pp) {
            if (ranks % (of_tp * of_pp) != 0) continue;
            const int64_t copies = ranks / of_tp / of_pp;
            for (int64_t of_cp = 1; of_cp <= std::min(copies, most_cp); ++of_cp) {
                if (copies % of_cp != 0) continue;
                Choice c = start;
                c.ep = 1;
                c.tp = of_tp;
                c.pp = of_pp;
                c.cp = of_cp;
                c.dp = copies / of_cp;
                all.push_back(c);
            }
        }
    return all;
}

std::vector<Choice> SearchSpace::meshes() const {
    std::vector<Choice> all;
    const auto add = [&](Choice c, int64_t of_samples, int64_t stage) {
        if (varies_zero) c.zero = c.copies() > 1 ? stage : 0;
        if (varies_sequence) c.sequence = c.tp > 1;
        if (varies_samples) c.samples = of_samples;
        if (microbatches > 0) c.samples = std::max<int64_t>(1, batch / (c.rep * c.dp * microbatches));
        if (varies_schedule) c.schedule = "1f1b", c.chunks = 0;
        if (varies_recompute) set_recompute(c, 0);
        if (whole(c) && (varies_mesh || std::ranges::find(all, c) == all.end())) all.push_back(c);
    };
    for (const Choice& mesh : all_meshes()) add(mesh, 1, 1);
    if (varies_mesh) return all;
    for (const int64_t of_samples : {1, 2, 4, 8})
        for (const int64_t stage : {1, 0}) add(start, of_samples, stage);
    if (whole(start) && std::ranges::find(all, start) == all.end()) all.push_back(start);
    return all;
}

std::vector<Choice> SearchSpace::not_dividing() const {
    std::vector<Choice> all = all_meshes();
    std::erase_if(all, [&](const Choice& c) { return batch % c.dp == 0; });
    return all;
}

size_t SearchSpace::recompute_place(const Choice& c) const {
    const auto same = [&](const Recomputation& one) {
        return one.kinds == c.recompute && one.layers == c.recompute_layers;
    };
    return static_cast<size_t>(std::ranges::find_if(recomputes, same) - recomputes.begin());
}

void SearchSpace::set_recompute(Choice& c, size_t place) const {
    c.recompute = recomputes[place].kinds;
    c.recompute_layers = recomputes[place].layers;
}

double SearchSpace::factor(const Choice& c) const {
    const size_t place = recompute_place(c);
    return place < recomputes.size() ? recomputes[place].factor : 1;
}

double SearchSpace::freed(const Choice& c) const {
    const size_t place = recompute_place(c);
    if (place == recomputes.size()) return 0;
    const auto in_flight = static_cast<double>(std::clamp<int64_t>(micros(c), 1, c.pp) * c.samples);
    return recomputes[place].freed * in_flight / static_cast<double>(c.pp * c.tp * c.cp);
}

std::optional<Choice> SearchSpace::other_ep(const Choice& choice, bool larger) const {
    if (!varies_mesh || experts == 0) return std::nullopt;
    Choice c = choice;
    do c.ep += larger ? 1 : -1;
    while (c.ep > 0 && c.ep <= most_ep && (experts % c.ep != 0 || c.dp % c.ep != 0));
    return c.ep > 0 && c.ep <= most_ep ? std::optional(c) : std::nullopt;
}

std::optional<Choice> SearchSpace::smaller(const Choice& choice, double over) const {
    Choice c = choice;
    // Experts on more ranks cost messages of activations alone, so they come first as long as they free much memory.
    if (const auto more = other_ep(c, true);
        more && state_bytes(state, c) - state_bytes(state, *more) > memory_limit / 20)
        return more;
    if (const size_t last = recomputes.size() - 1, place = recompute_place(c); varies_recompute && place != last) {
        size_t next = std::min(place + 1, last);
        for (set_recompute(c, next); next < last && freed(c) - freed(choice) < over; set_recompute(c, next)) ++next;
        return c;
    }
    if (!varies_zero || c.copies() == 1 || c.zero == 3) return std::nullopt;
    c.zero = c.pp > 1 ? c.zero + 1 : 3;  // by one stage with pp, since ZeRO-2 and 3 then reduce in each micro-batch
    return c;
}

std::optional<Choice> SearchSpace::other_context(const Choice& choice) const {
    const auto at = std::find(contexts.begin(), contexts.end(), std::pair(choice.context, choice.order));
    if (choice.cp == 1 || at == contexts.end() || at + 1 == contexts.end()) return std::nullopt;
    Choice c = choice;
    std::tie(c.context, c.order) = at[1];
    return c;
}

std::vector<std::vector<Choice>> SearchSpace::beside(const Choice& choice) const {
    std::vector<std::vector<Choice>> all;
    const auto add = [&](auto change) {
        Choice c = choice;
        change(c);
        if (c != choice && whole(c)) all.back().push_back(c);
    };
    all.emplace_back();
    if (varies_schedule && choice.pp > 1)
        for (const auto& [name, stages] : schedules_beside(choice))
            add([&](Choice& c) { c.schedule = name, c.chunks = stages; });
    all.emplace_back();
    if (varies_samples) {
        if (choice.samples < most_samples) add([](Choice& c) { c.samples *= 2; });
        if (choice.samples % 2 == 0) add([](Choice& c) { c.samples /= 2; });
    }
    all.emplace_back();
    if (const size_t place = recompute_place(choice); varies_recompute && place < recomputes.size()) {
        if (place > 0) add([&](Choice& c) { set_recompute(c, place - 1); });
        if (place + 1 < recomputes.size()) add([&](Choice& c) { set_recompute(c, place + 1); });
    }
    all.emplace_back();
    if (varies_zero && choice.copies() > 1)
        for (int64_t stage = 0; stage <= 3; ++stage) add([&](Choice& c) { c.zero = stage; });
    all.emplace_back();
    if (varies_sequence && choice.tp > 1) add([](Choice& c) { c.sequence = !c.sequence; });
    all.emplace_back();
    if (varies_mapping && choice.pp > 1 && choice.dp > 1)
        for (const bool inner : {false, true})
            add([&](Choice& c) {
                c.mapping = !inner ? "" : fmt::format("tp{}{},pp,dp", c.cp > 1 ? ",cp" : "", c.ep > 1 ? ",ep" : "");
            });
    all.emplace_back();
    if (choice.cp > 1)
        for (const auto& [method, tokens] : contexts) add([&](Choice& c) { c.context = method, c.order = tokens; });
    all.emplace_back();
    for (const bool larger : {true, false})
        if (const auto other = other_ep(choice, larger)) add([&](Choice& c) { c.ep = other->ep, c.mapping = ""; });
    return all;
}

Choice SearchSpace::like(const Choice& mesh, const Choice& options) const {
    Choice c = options;
    c.pp = mesh.pp;
    c.dp = mesh.dp;
    c.cp = mesh.cp;
    c.tp = mesh.tp;
    if (c.dp % c.ep != 0) c.ep = mesh.ep;
    if (microbatches > 0) c.samples = mesh.samples;
    if (varies_samples && c.samples > 1 && !whole(c))
        while (c.samples % 2 == 0 && !whole(c)) c.samples /= 2;
    if (c.copies() == 1) c.zero = varies_zero ? 0 : mesh.zero;
    if (c.tp == 1) c.sequence = varies_sequence ? false : mesh.sequence;
    if (c.pp == 1 || c.dp == 1 || c.cp != options.cp || c.ep != options.ep) c.mapping = "";
    if (c.cp == 1 || options.cp == 1) c.context = mesh.context, c.order = mesh.order;
    if (c.pp == 1 || (options.pp == 1 && varies_schedule)) c.schedule = mesh.schedule, c.chunks = mesh.chunks;
    if (mesh.tp > 1 && options.tp == 1) c.sequence = mesh.sequence;
    if (mesh.copies() > 1 && options.copies() == 1) c.zero = mesh.zero;
    return whole(c) ? c : mesh;
}

}  // namespace orrery
