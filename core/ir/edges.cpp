// The table of options of mesh axes, and how Program stores and reads them.
#include "ir/edges.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/codecs.h"

namespace orrery {

namespace {

using Kind = AttributeDef::Kind;

int64_t bytes_of(const Attribute& bucket) { return std::get<int64_t>(bucket); }

void check_bucket(const Program&, std::string_view axis, const Attribute& value, const Origin& origin) {
    if (bytes_of(value) < 0)
        throw Error(origin, fmt::format("bucket over {} is {} bytes; give 0 or more", axis, bytes_of(value)));
}

std::string refused_bucket(std::string_view axis, const Attribute& asked, const Attribute& taken) {
    return fmt::format("bucket of {} bytes over {} is ignored: an earlier strategy chose {}", bytes_of(asked), axis,
                       bytes_of(taken));
}

void check_codec(const Program& program, std::string_view, const Attribute& value, const Origin& origin) {
    codec_named(program, std::get<std::string>(value), origin);
}

/// A codec of what is not a term of a sum over steps, so that nothing makes up for what one message leaves out.
void check_near_codec(const Program& program, std::string_view axis, const Attribute& value, const Origin& origin) {
    require_near(program, codec_named(program, std::get<std::string>(value), origin),
                 fmt::format("params and activations over {}", axis), "", origin);
}

std::string refused_codec(std::string_view axis, const Attribute& asked, const Attribute& taken) {
    return fmt::format("values over {} are not sent as {}: an earlier strategy chose {}", axis,
                       std::get<std::string>(asked), std::get<std::string>(taken));
}

void check_feedback(const Program&, std::string_view, const Attribute&, const Origin&) {}

std::string refused_feedback(std::string_view axis, const Attribute&, const Attribute& taken) {
    return fmt::format("feedback over {} is {}: an earlier strategy chose it", axis,
                       std::get<bool>(taken) ? "on" : "off");
}

PrefetchDepth depth_of(const Attribute& value) {
    const auto& list = std::get<std::vector<int64_t>>(value);
    return {list.at(0), list.at(1)};
}

void check_prefetch(const Program&, std::string_view axis, const Attribute& value, const Origin& origin) {
    const auto& list = std::get<std::vector<int64_t>>(value);
    if (list.size() != 2)
        throw Error(origin,
                    fmt::format("prefetch over {} has {} numbers, expected two: layers and bytes", axis, list.size()));
    if (list[0] < 0 || list[1] < 0 || (list[0] > 0 && list[1] > 0))
        throw Error(origin,
                    fmt::format("prefetch over {} cannot be {} layers and {} bytes; give only one of both, 0 or "
                                "more",
                                axis, list[0], list[1]));
}

std::string refused_prefetch(std::string_view axis, const Attribute& asked, const Attribute& taken) {
    return fmt::format("prefetch over {} of {} is ignored: an earlier strategy chose {}", axis, depth_of(asked).text(),
                       depth_of(taken).text());
}

void check_order(const Program&, std::string_view axis, const Attribute& value, const Origin& origin) {
    const auto& name = std::get<std::string>(value);
    if (name == "zigzag" || name == "balanced") return;
    throw Error(origin, fmt::format("tokens cannot be in the order {} over {}; give \"zigzag\" or \"balanced\", or no "
                                    "order for the natural one",
                                    quote(name), axis));
}

std::string refused_order(std::string_view axis, const Attribute& asked, const Attribute& taken) {
    return fmt::format("tokens are not in the order {} over {}: an earlier strategy chose {}",
                       std::get<std::string>(asked), axis, std::get<std::string>(taken));
}

void check_islands_option(const Program&, std::string_view axis, const Attribute& value, const Origin& origin) {
    if (!std::get<bool>(value)) throw Error(origin, fmt::format("islands over {} cannot be false; leave it out", axis));
}

std::string refused_islands(std::string_view axis, const Attribute&, const Attribute&) {
    return fmt::format("islands over {} are asked for twice", axis);
}

void check_resume(const Program&, std::string_view axis, const Attribute& value, const Origin& origin) {
    const auto& name = std::get<std::string>(value);
    if (name == "mean" || name == "copies" || name == "round") return;
    throw Error(origin, fmt::format("islands over {} cannot resume as {}; give \"mean\", \"copies\" or \"round\"", axis,
                                    quote(name)));
}

std::string refused_resume(std::string_view axis, const Attribute& asked, const Attribute& taken) {
    return fmt::format("islands over {} do not resume as {}: an earlier strategy chose {}", axis,
                       std::get<std::string>(asked), std::get<std::string>(taken));
}

constexpr EdgeOption options[] = {
    {.name = "bucket", .kind = Kind::integer, .by_phase = true, .check = check_bucket, .refused = refused_bucket},
    {.name = "codec", .kind = Kind::text, .phase = Phase::backward, .check = check_codec, .refused = refused_codec},
    {.name = "param_codec", .kind = Kind::text, .check = check_near_codec, .refused = refused_codec},
    {.name = "activation_codec", .kind = Kind::text, .check = check_near_codec, .refused = refused_codec},
    {.name = "feedback",
     .kind = Kind::flag,
     .phase = Phase::backward,
     .check = check_feedback,
     .refused = refused_feedback},
    {.name = "prefetch", .kind = Kind::integers, .check = check_prefetch, .refused = refused_prefetch},
    {.name = "order", .kind = Kind::text, .of_one_axis = true, .check = check_order, .refused = refused_order},
    {.name = "islands",
     .kind = Kind::flag,
     .of_one_axis = true,
     .check = check_islands_option,
     .refused = refused_islands},
    {.name = "resume", .kind = Kind::text, .of_one_axis = true, .check = check_resume, .refused = refused_resume},
};

bool overlap(const std::optional<Phase>& a, const std::optional<Phase>& b) { return !a || !b || *a == *b; }

const EdgeOption& option_named(std::string_view axis, std::string_view name, const Origin& origin) {
    if (const EdgeOption* option = find_edge_option(name)) return *option;
    std::vector<std::string> names;
    for (const EdgeOption& option : options) names.emplace_back(option.name);
    throw Error(origin, fmt::format("{} is not an option of axis {}{}", quote(name), axis,
                                    choices("declared", std::string(name), names)));
}

const Attribute* row(const Program& program, std::string_view axis, Phase phase, std::string_view option) {
    for (const EdgeMark& mark : program.edges())
        if (mark.axis == axis && mark.option == option && overlap(mark.phase, phase)) return &mark.value;
    return nullptr;
}

}  // namespace

std::string_view name_of(Phase phase) {
    constexpr std::string_view names[] = {"forward", "backward", "update"};
    return names[static_cast<int>(phase)];
}

std::span<const EdgeOption> edge_options() { return options; }

const EdgeOption* find_edge_option(std::string_view name) {
    const auto* const found = std::find_if(std::begin(options), std::end(options),
                                           [&](const EdgeOption& option) { return option.name == name; });
    return found == std::end(options) ? nullptr : found;
}

void Program::edge(std::string_view axis, std::optional<Phase> phase, std::string_view name, Attribute value,
                   const Origin& origin) {
    const EdgeOption& option = option_named(axis, name, origin);
    if (phase && !option.by_phase && phase != option.phase)
        throw Error(origin,
                    fmt::format("{} over {} cannot be set for the {} phase alone", name, axis, name_of(*phase)));
    if (value.index() != static_cast<size_t>(option.kind))
        throw Error(origin, fmt::format("{} over {} has a value of the wrong type", name, axis));
    option.check(*this, axis, value, origin);
    for (const EdgeMark& other : edges_)
        if (option.of_one_axis && other.option == name && other.axis != axis)
            throw Error(origin, fmt::format("{} over {}: {} has one already, and a program can have only one {}\n  "
                                            "set it for the outer axis only",
                                            name, axis, other.axis, name));
    if (!phase) phase = option.phase;
    const bool split = std::any_of(edges_.begin(), edges_.end(), [&](const EdgeMark& taken) {
        return taken.axis == axis && taken.option == name && taken.phase;
    });
    if (!phase && split) {  // sets the option for each phase that has no value yet
        for (const Phase one : {Phase::forward, Phase::backward, Phase::update}) edge(axis, one, name, value, origin);
        return;
    }
    for (const EdgeMark& taken : edges_) {
        if (taken.axis != axis || taken.option != name || !overlap(taken.phase, phase)) continue;
        if (taken.value != value) note(none, option.refused(axis, value, taken.value), origin);
        return;
    }
    edges_.push_back({std::string(axis), phase, std::string(name), std::move(value)});
}

void Program::bucket(std::string_view axis, int64_t bytes, const Origin& origin) {
    edge(axis, std::nullopt, "bucket", bytes, origin);
}

void Program::reduce_as(std::string_view axis, DType type, const Origin& origin) {
    if (type != DType::bf16)
        throw Error(origin,
                    fmt::format("gradients over {} cannot be sent as {}; give \"bf16\", which has the range of "
                                "f32{}, or leave them in their own type",
                                axis, name_of(type), type == DType::f16 ? " (sums in f16 overflow at 65504)" : ""));
    edge(axis, std::nullopt, "codec", std::string(name_of(type)), origin);
}

void Program::prefetch(std::string_view axis, PrefetchDepth asked, const Origin& origin) {
    edge(axis, std::nullopt, "prefetch", std::vector<int64_t>{asked.layers, asked.bytes}, origin);
}

Attributes Program::edge(std::string_view axis, Phase phase) const {
    Attributes found;
    for (const EdgeMark& mark : edges_)
        if (mark.axis == axis && overlap(mark.phase, phase)) found.set(mark.option, mark.value);
    return found;
}

std::vector<std::string> Program::axes_with(std::string_view option) const {
    std::vector<std::string> axes;
    for (const EdgeMark& mark : edges_)
        if (mark.option == option && std::find(axes.begin(), axes.end(), mark.axis) == axes.end())
            axes.push_back(mark.axis);
    return axes;
}

// For a joined axis ("rep+dp"): the smallest bucket size of the axes in it, so that the limit of none is exceeded.
int64_t Program::bucket_bytes(std::string_view axis, Phase phase) const {
    std::optional<int64_t> least;
    while (!axis.empty()) {
        const std::string_view part = axis.substr(0, axis.find('+'));
        axis.remove_prefix(std::min(axis.size(), part.size() + 1));
        if (const Attribute* size = row(*this, part, phase, "bucket"))
            least = std::min(least.value_or(bytes_of(*size)), bytes_of(*size));
    }
    return least.value_or(0);
}

std::string Program::codec(std::string_view axis, std::string_view option) const {
    const Attribute* const name = row(*this, axis, Phase::backward, option);
    return name ? std::get<std::string>(*name) : "none";
}

std::optional<PrefetchDepth> Program::prefetch_depth(std::string_view axis) const {
    const Attribute* const depth = row(*this, axis, Phase::forward, "prefetch");
    return depth ? std::optional(depth_of(*depth)) : std::nullopt;
}

std::string PrefetchDepth::text() const {
    if (bytes > 0) return bytes_text(bytes);
    return fmt::format("{} {}", layers, layers == 1 ? "layer" : "layers");
}

}  // namespace orrery
