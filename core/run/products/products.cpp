#include "run/products/products.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/env.h"
#include "base/json.h"
#include "base/text.h"
#include "run/products/product_cache.h"

namespace orrery {
namespace {

/// What a rank says first.
struct Report {
    std::string host, machine;
    std::vector<std::string> names;  ///< none: its device has no choice
    std::string fixed, fixed_by;     ///< "": it has what is measured
};

/// What a rank has found for itself and the others of its host.
struct Found {
    std::vector<TriedProducts> tried;
    double best_flops = 0;
    std::string place;  ///< "kept in FILE", "as kept in FILE"; "" where nothing is kept
    std::vector<std::string> notes;
};

/// One rank, as all see it.
struct RankKinds {
    size_t rank;
    const Report* report;
    const Found* found;  ///< nullptr: it has fixed one

    const TriedProducts* find(const std::string& name) const {
        if (!found) return nullptr;
        const auto at = std::ranges::find(found->tried, name, &TriedProducts::name);
        return at == found->tried.end() ? nullptr : &*at;
    }
    bool has(const std::string& name) const {
        if (!found) return report->fixed == name;
        const TriedProducts* const tried = find(name);
        return tried && tried->why_not.empty();
    }
};

std::string encode(const Report& report) {
    return message_text(Json{{"host", report.host},
                             {"machine", report.machine},
                             {"names", report.names},
                             {"fixed", report.fixed},
                             {"fixed_by", report.fixed_by}});
}

Report decode_report(const std::string& text) {
    const Json json = parse_json(text, {});
    return {json.at("host"), json.at("machine"), json.at("names"), json.at("fixed"), json.at("fixed_by")};
}

std::string encode(const Found& found) {
    return message_text(Json{
        {"tried", text_of(found.tried)}, {"best", found.best_flops}, {"place", found.place}, {"notes", found.notes}});
}

Found decode_found(const std::string& text) {
    const Json json = parse_json(text, {});
    return {parse_tried(json.at("tried").get<std::string>()), json.at("best"), json.at("place"), json.at("notes")};
}

/// Looks for what is known of the kinds on this machine, or measures it.
class Search {
public:
    Search(const ProductKinds& kinds, const ProductSearch& search)
        : kinds_(kinds), search_(search), env_(system_env()), cache_(*env_, search.folder) {}

    /// Also the rates of f32, to which 16-bit operands can be widened.
    Found find(DType dtype) {
        Found found;
        found.tried = tried(dtype, found, found.place, true);
        best_of(found.tried, found.best_flops);
        std::string ignored;
        if (dtype != DType::f32) best_of(tried(DType::f32, found, ignored, false), found.best_flops);
        return found;
    }

private:
    static void best_of(const std::vector<TriedProducts>& tried, double& best) {
        for (const TriedProducts& one : tried) best = std::max(best, one.best);
    }

    std::vector<TriedProducts> tried(DType dtype, Found& found, std::string& place, bool taken) {
        if (auto kept = cache_.find(kinds_, dtype, found.notes); kept && any(*kept)) {
            place = "as kept in " + cache_.path(kinds_, dtype);
            if (taken) try_again(*kept, dtype, found.notes);
            return std::move(*kept);
        }
        std::vector<TriedProducts> all;
        for (const std::string& name : kinds_.names) all.push_back(search_.trial(name, dtype, true));
        if (const auto passing = std::ranges::find(all, true, &TriedProducts::for_now); passing != all.end()) {
            found.notes.push_back(
                fmt::format("products: what was measured is not kept: {}: {}", passing->name, passing->why_not));
            if (taken && std::ranges::all_of(all, &TriedProducts::for_now)) {
                found.notes.push_back(
                    fmt::format("products: none could be tried, {} is taken as the default", usual()));
                all.front() = {usual()};
            }
            return all;
        }
        if (!any(all)) return all;  // refused; the next run looks anew
        const size_t before = found.notes.size();
        cache_.keep(kinds_, dtype, all, found.notes);
        if (found.notes.size() == before) place = "kept in " + cache_.path(kinds_, dtype);
        return all;
    }

    static bool any(const std::vector<TriedProducts>& tried) {
        return std::ranges::any_of(tried, [](const TriedProducts& one) { return one.why_not.empty(); });
    }

    const std::string& usual() const { return kinds_.names.front(); }

    /// The file may be that of another machine of the same model, which lets its programs do more.
    void try_again(std::vector<TriedProducts>& kept, DType dtype, std::vector<std::string>& notes) {
        for (TriedProducts& one : kept) {
            if (!one.why_not.empty()) continue;
            const TriedProducts now = search_.trial(one.name, dtype, false);
            if (now.why_not.empty()) continue;
            if (now.for_now && one.name == usual()) {
                notes.push_back(fmt::format("products: {} could not be tried again: {}", one.name, now.why_not));
                continue;
            }
            notes.push_back(
                fmt::format("products: {} was a candidate when {} was written", one.name, cache_.path(kinds_, dtype)));
            one = now;
        }
    }

    const ProductKinds& kinds_;
    const ProductSearch& search_;
    const std::unique_ptr<Env> env_;
    const ProductCache cache_;
};

using Machine = std::pair<std::string, std::string>;  ///< host, machine

std::vector<Report> reports_of(const ProductKinds& kinds, bool fixed, const ProductRank& rank) {
    const Report mine{rank.host, kinds.machine, kinds.names, fixed ? kinds.in_use : "", kinds.fixed_by};
    std::vector<Report> reports;
    for (const std::string& text : rank.exchange("kinds of products", encode(mine)))
        reports.push_back(decode_report(text));
    return reports;
}

/// What the first rank of each machine has found, `find` on this one.
std::map<Machine, Found> found_by(const std::vector<Report>& reports, const ProductRank& rank,
                                  const std::function<Found()>& find) {
    std::map<Machine, size_t> first;
    for (size_t i = 0; i < reports.size(); ++i)
        if (reports[i].fixed.empty() && !reports[i].names.empty())
            first.emplace(Machine(reports[i].host, reports[i].machine), i);
    std::map<Machine, Found> found;
    if (first.empty()) return found;
    const auto me = static_cast<size_t>(rank.rank);
    const auto at = first.find({reports[me].host, reports[me].machine});
    const bool looks = at != first.end() && at->second == me;
    const std::vector<std::string> texts = rank.exchange("rates of products", looks ? encode(find()) : "");
    for (const auto& [machine, who] : first) found[machine] = decode_found(texts.at(who));
    return found;
}

/// Those that have a choice.
std::vector<RankKinds> ranks_of(const std::vector<Report>& reports, const std::map<Machine, Found>& found) {
    std::vector<RankKinds> ranks;
    for (size_t i = 0; i < reports.size(); ++i) {
        const Report& report = reports[i];
        if (!report.names.empty())
            ranks.push_back({i, &report, report.fixed.empty() ? &found.at({report.host, report.machine}) : nullptr});
    }
    return ranks;
}

std::string reason_of(const Report& report) { return report.fixed_by.empty() ? "the default" : report.fixed_by; }

/// "rank 0 on a: onednn (device.cpu.products)", "rank 1 on b: blocks; native is no candidate: it ..."
std::string text_of(const RankKinds& kinds) {
    std::vector<std::string> has, lacks;
    if (!kinds.found) has.push_back(fmt::format("{} ({})", kinds.report->fixed, reason_of(*kinds.report)));
    for (const std::string& name : kinds.report->names) {
        const TriedProducts* const tried = kinds.find(name);
        if (!tried) continue;
        if (tried->why_not.empty())
            has.push_back(name);
        else
            lacks.push_back(fmt::format("{} is no candidate: {}", name, tried->why_not));
    }
    return fmt::format("\n  rank {} on {}: {}{}{}", kinds.rank, kinds.report->host,
                       has.empty() ? "none" : join(has, ", "), lacks.empty() ? "" : "; ", join(lacks, "; "));
}

[[noreturn]] void refuse_nothing_common(const std::vector<RankKinds>& ranks) {
    constexpr size_t shown = 4;
    std::string text;
    for (size_t i = 0; i < std::min(ranks.size(), shown); ++i) text += text_of(ranks[i]);
    if (ranks.size() > shown) text += fmt::format("\n  and {} ranks more", ranks.size() - shown);
    const bool one = ranks.size() == 1;
    throw Error(fmt::format("{}{}\n  {}",
                            one ? "no kind of matrix products runs here"
                                : "there is no kind of matrix products that all ranks have",
                            text,
                            one ? "look at the processor's emulation, or take device.cpu.reference = true"
                                : "let all ranks have one: device.cpu.products"),
                one ? Fault::failed : Fault::peer);
}

/// On the rank where it is slowest; 0 where nobody has measured it.
double slowest(const std::vector<RankKinds>& ranks, const std::string& name) {
    double rate = 0;
    for (const RankKinds& rank : ranks)
        if (const TriedProducts* tried = rank.find(name); tried && (rate == 0 || tried->rate < rate))
            rate = tried->rate;
    return rate;
}

std::string fastest(const std::vector<RankKinds>& ranks, const std::vector<std::string>& common,
                    const std::string& usual) {
    std::string taken = common.front();
    for (const std::string& name : common)
        if (slowest(ranks, name) > slowest(ranks, taken)) taken = name;
    const bool other = taken != usual && std::ranges::find(common, usual) != common.end();
    return other && slowest(ranks, taken) < worth_another * slowest(ranks, usual) ? usual : taken;
}

std::string giga(double rate) { return fmt::format("{:.1f}", rate / 1e9); }

/// Why a kind is no candidate, and on which hosts where it is one on others.
std::string why_not_text(const std::vector<RankKinds>& ranks, const std::string& name) {
    std::string why;
    std::vector<std::string> hosts;
    for (const RankKinds& rank : ranks) {
        const TriedProducts* const tried = rank.find(name);
        if (!tried || tried->why_not.empty()) continue;
        if (why.empty()) why = tried->why_not;
        if (std::ranges::find(hosts, rank.report->host) == hosts.end()) hosts.push_back(rank.report->host);
    }
    const bool one_host = std::ranges::all_of(
        ranks, [&](const RankKinds& rank) { return rank.report->host == ranks.front().report->host; });
    return why.empty() ? ""
                       : fmt::format("{} is no candidate{}: {}", name, one_host ? "" : " on " + join_few(hosts), why);
}

/// "blocks, 98.1 GFLOP/s of f32 on a rank (onednn 86.0; native is no candidate: ...), kept in FILE"
std::string measured_text(const ProductChoice& choice, const std::vector<RankKinds>& ranks, DType dtype) {
    const Found& first = *ranks.front().found;
    std::vector<std::string> others;
    for (const TriedProducts& tried : first.tried) {
        const std::string why = why_not_text(ranks, tried.name);
        if (!why.empty())
            others.push_back(why);
        else if (tried.name != choice.name)
            others.push_back(fmt::format("{} {}", tried.name, giga(slowest(ranks, tried.name))));
    }
    const double rate = slowest(ranks, choice.name);
    const std::string how =
        rate == 0 ? "not measured" : fmt::format("{} GFLOP/s of {} on a rank", giga(rate), name_of(dtype));
    return fmt::format("products: {}, {}{}{}{}", choice.name, how,
                       others.empty() ? "" : " (" + join(others, "; ") + ")", first.place.empty() ? "" : ", ",
                       first.place);
}

}  // namespace

ProductChoice choose_products(Device& device, DType dtype, const ProductSearch* search, const ProductRank& rank) {
    const ProductKinds kinds = device.products();
    const std::vector<Report> reports = reports_of(kinds, !search || !kinds.fixed_by.empty(), rank);
    const std::map<Machine, Found> found = found_by(reports, rank, [&] { return Search(kinds, *search).find(dtype); });
    const std::vector<RankKinds> ranks = ranks_of(reports, found);
    ProductChoice choice;
    if (ranks.empty()) return choice;
    for (const std::string& name : ranks.front().report->names)
        if (std::ranges::all_of(ranks, [&](const RankKinds& one) { return one.has(name); }))
            choice.common.push_back(name);
    if (choice.common.empty()) refuse_nothing_common(ranks);
    choice.name = fastest(ranks, choice.common, ranks.front().report->names.front());
    const auto fixes = std::ranges::find(ranks, nullptr, &RankKinds::found);
    if (fixes != ranks.end()) {
        choice.fixed_by = reason_of(*fixes->report);
        choice.said.push_back(fmt::format("products: {} ({})", choice.name, choice.fixed_by));
    } else {
        choice.said.push_back(measured_text(choice, ranks, dtype));
    }
    for (const auto& [machine, one] : found)
        for (const std::string& note : one.notes)
            if (std::ranges::find(choice.said, note) == choice.said.end()) choice.said.push_back(note);
    for (const RankKinds& one : ranks)
        if (static_cast<int64_t>(one.rank) == rank.rank && one.found) choice.best_flops = one.found->best_flops;
    if (!kinds.names.empty()) device.use_products(choice.name);
    return choice;
}

void resume_products(ProductChoice& choice, const std::string& saved, int64_t step) {
    if (step == 0 || choice.name.empty() || saved == choice.name) return;
    if (saved.empty()) {  // made on a device without a choice, or before there was one
        const bool fixed = !choice.fixed_by.empty();
        if (!fixed) choice.name = choice.common.front();
        choice.said.push_back(
            fmt::format("the checkpoint of step {} does not say which products it had; from here on they are {} ({})",
                        step, choice.name, fixed ? choice.fixed_by : "the default"));
        return;
    }
    const bool common = std::ranges::find(choice.common, saved) != choice.common.end();
    if (common && choice.fixed_by.empty()) {
        choice.said.push_back(
            fmt::format("products: {} after all, as those of the checkpoint of step {}", saved, step));
        choice.name = saved;
        return;
    }
    const std::string why =
        choice.fixed_by.empty() ? fmt::format("{} is no candidate on all ranks", saved) : choice.fixed_by;
    choice.said.push_back(
        fmt::format("products were {} until step {}, from here on they are {} ({}): bits will differ "
                    "from those of a run that did not stop",
                    saved, step, choice.name, why));
}

}  // namespace orrery
