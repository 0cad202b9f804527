#include "cli/simulate/choice_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/suggest.h"

namespace orrery {
namespace {

const std::set<std::string> all_options = {"mesh",     "samples",   "zero",    "schedule",
                                           "sequence", "recompute", "mapping", "context"};

/// Adds the start's options that the search does not vary; all of them if the mesh stays, as the search then begins
/// with the configured ones, too. Options that the script does not declare are unknown.
void keep_options(SearchSpace& space, const Host::Options& options) {
    const bool all = !space.varies_mesh;
    const auto text = [&](const char* key) {
        const auto found = options.find(key);
        return found == options.end() ? "" : found->second.value;
    };
    const auto number = [&](const char* key) {
        const std::string of_key = text(key);
        char* end = nullptr;
        const int64_t value = std::strtoll(of_key.c_str(), &end, 10);
        return of_key.empty() || *end != 0 ? -1 : value;
    };
    if (all || !space.varies_zero) space.start.zero = number("zero");
    if (all || !space.varies_schedule) {
        space.start.schedule = text("pipeline");
        space.start.chunks = std::max<int64_t>(0, number("chunks"));
        if (number("chunks") < 0 && space.start.schedule == "interleaved") space.start.schedule = "";
    }
    if (all || !space.varies_sequence) space.start.sequence = text("sequence") == "true";
    if (all || !space.varies_recompute) {
        space.start.recompute = text("recompute");
        space.start.recompute_layers = std::max<int64_t>(0, number("recompute_layers"));
    }
    space.start.context = text("context");
    space.start.order = text("order");
}

/// Returns the script's methods of context parallelism, each with each order, beginning with the configured ones.
/// `auto` is none of them: it stands for one of the others.
std::vector<std::pair<std::string, std::string>> contexts_of(const Choice& start, const Host::Options& options) {
    const auto values = [&](const char* key, const std::string& first) {
        std::vector<std::string> all;
        if (const auto found = options.find(key); found != options.end()) all = found->second.one_of;
        std::erase(all, "auto");
        const auto at = std::ranges::find(all, first);
        if (at != all.end()) std::rotate(all.begin(), at, at + 1);
        return all.empty() ? std::vector{first} : all;
    };
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string& method : values("context", start.context))
        for (const std::string& order : values("order", start.order)) all.emplace_back(method, order);
    return all;
}

/// Returns the bytes of a program's params, gradients (those that the update reads) and optimizer state.
StateBytes state_of(const Program& program) {
    StateBytes state;
    const auto bytes = [&](ValueId id) { return static_cast<double>(program.value(id).type.bytes()); };
    std::set<ValueId> gradients;
    for (const Op& op : program.ops)
        for (const ValueId id : op.inputs) {
            const Value& value = program.value(id);
            if (op.phase == Phase::update && value.op != none && program.op(value.op).phase != Phase::update)
                gradients.insert(id);
        }
    for (const ValueId id : gradients) state.gradients += bytes(id);
    for (ValueId id = 0; id < static_cast<ValueId>(program.values.size()); ++id) {
        if (program.value(id).role == Role::param) state.params += bytes(id);
        if (program.value(id).role == Role::param && program.dim(id, "experts")) state.experts += bytes(id);
        if (program.value(id).role == Role::state) state.optimizer += bytes(id);
    }
    if (state.params > 0) state.experts /= state.params;
    return state;
}

/// Returns the largest number of ranks that can share the experts of every param with a dim `experts`; 0: none has one.
int64_t experts_of(const Program& program) {
    int64_t experts = 0;
    for (ValueId id = 0; id < static_cast<ValueId>(program.values.size()); ++id)
        if (const auto dim = program.dim(id, "experts"); dim && program.value(id).role == Role::param)
            experts = std::gcd(experts, program.value(id).type.shape[static_cast<size_t>(*dim)]);
    return experts;
}

/// Finds what an axis ep can split. If the script splits experts over other axes, or the search does not know, the
/// state of experts is left out: what remains is a lower bound.
void find_experts(const Program& program, const Host::Options& options, SearchSpace& space) {
    const auto axes = options.find("expert_axes");
    if (axes != options.end() && axes->second.value == "ep") space.experts = experts_of(program);
    if (space.experts > 0 || space.state.experts == 0) return;
    for (double* bytes : {&space.state.params, &space.state.gradients, &space.state.optimizer})
        *bytes *= 1 - space.state.experts;
    space.state.experts = 0;
}

}  // namespace

bool kept(const PlanCommand& command, const std::string& option) {
    return std::find(command.keep.begin(), command.keep.end(), option) != command.keep.end();
}

void require_options(const PlanCommand& command) {
    for (const std::string& option : command.keep)
        if (all_options.count(option) == 0)
            throw Error(fmt::format("--keep {}: no such option{}", option,
                                    choices("there are", option, {all_options.begin(), all_options.end()})),
                        Fault::usage);
}

std::vector<std::string> sets_of(const Choice& c, const SearchSpace& space) {
    std::vector<std::string> sets;
    if (space.varies_mesh)
        for (const auto& [axis, size, used] : {std::tuple{"pp", c.pp, true}, std::tuple{"dp", c.dp / c.ep, true},
                                               std::tuple{"ep", c.ep, space.experts > 0},
                                               std::tuple{"cp", c.cp, space.has_cp}, std::tuple{"tp", c.tp, true}})
            if (used) sets.push_back(fmt::format("mesh.{}={}", axis, size));
    if (space.microbatches == 0 && (space.varies_mesh || space.varies_samples))
        sets.push_back(fmt::format("train.microbatches={}", space.micros(c)));
    if (space.varies_zero) sets.push_back(fmt::format("script.zero={}", c.zero));
    if (space.varies_schedule) {
        sets.push_back(fmt::format("script.pipeline=\"{}\"", c.schedule));
        sets.push_back(fmt::format("script.chunks={}", c.chunks));
    }
    if (space.varies_sequence) sets.push_back(fmt::format("script.sequence={}", c.sequence));
    if (space.varies_recompute) sets.push_back(fmt::format("script.recompute=\"{}\"", c.recompute));
    if (space.varies_recompute && space.has_recompute_layers)
        sets.push_back(fmt::format("script.recompute_layers={}", c.recompute_layers));
    if (c.cp > 1 && space.contexts.size() > 1) {
        sets.push_back(fmt::format("script.context=\"{}\"", c.context));
        if (!c.order.empty()) sets.push_back(fmt::format("script.order=\"{}\"", c.order));
    }
    return sets;
}

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

std::string replicate_axis(const Host::Options& options) {
    const auto found = options.find("replicate");
    return found == options.end() ? "rep" : found->second.value;
}

SearchSpace space_of(const Compiled& compiled, const Host::Options& options, const PlanCommand& command,
                     int64_t samples) {
    SearchSpace space;
    const auto declares = [&](const char* key) { return options.count(key) > 0; };
    space.batch = compiled.sizes.full();
    space.varies_mesh = !kept(command, "mesh");
    space.varies_samples = !kept(command, "samples");
    space.varies_zero = declares("zero") && !kept(command, "zero");
    space.varies_schedule = declares("pipeline") && declares("chunks") && !kept(command, "schedule");
    space.varies_sequence = declares("sequence") && !kept(command, "sequence");
    space.varies_recompute = declares("recompute") && !kept(command, "recompute");
    space.has_recompute_layers = declares("recompute_layers");
    space.varies_mapping = !kept(command, "mapping");
    keep_options(space, options);
    space.has_cp = declares("context");
    if (space.has_cp && !kept(command, "context")) {
        space.contexts = contexts_of(space.start, options);
        std::tie(space.start.context, space.start.order) = space.contexts.front();
    }
    const Mesh& mesh = compiled.mesh;
    const auto size = [&](const std::string& axis) { return mesh.find(axis) ? mesh.size(*mesh.find(axis)) : 1; };
    space.start.pp = size("pp");
    space.start.ep = size("ep");
    space.start.dp = size("dp") * space.start.ep;
    space.start.rep = size(replicate_axis(options));
    space.start.cp = size("cp");
    space.start.tp = size("tp");
    space.start.samples = std::max<int64_t>(1, samples);
    space.state = state_of(compiled.train().program);
    find_experts(compiled.train().program, options, space);
    space.flops = compiled.flops_per_step;
    return space;
}

}  // namespace orrery
