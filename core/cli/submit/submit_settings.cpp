#include "cli/submit/submit_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "run/settings.h"

namespace orrery {
namespace {

/// Returns the seconds of "H:MM:SS" or "D-H:MM:SS"; 0 for another text.
int64_t seconds_of(const std::string& text) {
    int64_t days = 0, hours = 0, minutes = 0, seconds = 0;
    int end = -1;
    const bool with_days = text.find('-') != std::string::npos;
    if (with_days)
        std::sscanf(text.c_str(), "%5ld-%2ld:%2ld:%2ld%n", &days, &hours, &minutes, &seconds, &end);
    else
        std::sscanf(text.c_str(), "%5ld:%2ld:%2ld%n", &hours, &minutes, &seconds, &end);
    const bool digits =
        std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || c == ':' || c == '-'; });
    if (!digits || end != static_cast<int>(text.size()) || minutes > 59 || seconds > 59 ||
        std::min({hours, minutes, seconds}) < 0)
        return 0;
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
}

void require_variable(const std::string& name, const Origin& where) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    const bool valid = !name.empty() && letter(name[0]) &&
                       std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
    if (!valid)
        throw Error(where, fmt::format("submit.environment: {} is not a name of a variable\n  expected letters, digits "
                                       "and _, not beginning with a digit",
                                       name));
    if (name.starts_with("ORRERY_"))
        throw Error(where,
                    fmt::format("submit.environment.{}: variables ORRERY_* are set by `orrery submit` and by the "
                                "ranks' launcher\n  leave it out",
                                name));
}

}  // namespace

SubmitSettings read_submit(Config& config) {
    Config& table = config.table("submit");
    SubmitSettings submit;
    submit.nodes = table.integer("nodes", 0);
    submit.ranks_per_node = table.integer("ranks_per_node", 0);
    submit.gpus_per_node = table.integer("gpus_per_node", -1);
    if (const std::string time = table.text("time", ""); !time.empty()) {
        submit.time_s = seconds_of(time);
        if (submit.time_s == 0)
            throw Error(table.where("time"),
                        fmt::format("submit.time = \"{}\": expected hours, minutes and seconds, as \"12:00:00\", or "
                                    "days before them, as \"2-12:00:00\"",
                                    time));
    }
    submit.before = table.texts("before");
    Config& environment = table.table("environment");
    for (const std::string& name : environment.keys()) {
        require_variable(name, environment.where(name));
        submit.environment.emplace_back(name, environment.text(name, ""));
    }
    return submit;
}

void place_ranks(SubmitSettings& submit, const Settings& settings, Config& config) {
    Config& table = config.table("submit");
    const int64_t ranks = settings.mesh.ranks();
    const std::string mesh = fmt::format("mesh {} has {} rank{}", settings.mesh.text(), ranks, ranks == 1 ? "" : "s");
    const int64_t nodes = submit.nodes, asked = submit.ranks_per_node > 0 ? submit.ranks_per_node : settings.ranks;
    const char* key = submit.ranks_per_node > 0 ? "submit.ranks_per_node" : "run.ranks";
    const Origin where = submit.ranks_per_node > 0 ? table.where("ranks_per_node") : config.table("run").where("ranks");
    if (settings.ranks > 0 && asked != settings.ranks)
        throw Error(where, fmt::format("submit.ranks_per_node = {}, but run.ranks = {}\n  leave one of them out", asked,
                                       settings.ranks));
    if (nodes > 0 && asked > 0 && nodes * asked != ranks)
        throw Error(where, fmt::format("submit.nodes = {} and {} = {} are {} ranks, but {}\n  change one of them",
                                       nodes, key, asked, nodes * asked, mesh));
    if (nodes > 0 && ranks % nodes != 0)
        throw Error(table.where("nodes"),
                    fmt::format("{}, which submit.nodes = {} does not divide\n  change one of them", mesh, nodes));
    if (asked > 0 && ranks % asked != 0)
        throw Error(where, fmt::format("{}, which {} = {} does not divide\n  change one of them", mesh, key, asked));
    submit.nodes = nodes > 0 ? nodes : asked > 0 ? ranks / asked : 1;
    submit.ranks_per_node = ranks / submit.nodes;
}

}  // namespace orrery
