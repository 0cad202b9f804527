// What data-parallel strategies share: reading the axes, splitting the batch, and how gradients are sent.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/codecs.h"
#include "orrery/axes.h"

namespace orrery {

std::vector<std::string> read_axes(Config& options, std::string_view key, std::string_view fallback) {
    const ConfigValue* given = options.find(key);
    if (!given || std::holds_alternative<std::string>(given->data)) return {options.text(key, fallback)};
    std::string name = options.path();
    std::replace(name.begin(), name.end(), '.', ' ');
    std::vector<std::string> axes = options.texts(key);
    if (axes.empty())
        throw Error(
            options.where(key),
            fmt::format("{}: {} is an empty list; name at least one axis of the mesh, or leave the strategy out", name,
                        key));
    std::set<std::string_view> seen;
    for (const std::string& axis : axes)
        if (!seen.insert(axis).second)
            throw Error(options.where(key),
                        fmt::format("{}: {} names the axis {} twice; name each once", name, key, axis));
    return axes;
}

void split_batch(Program& program, std::string_view axis, const Origin& origin) {
    for (const Mark& mark : program.marks())
        if (mark.what == Mark::What::store && mark.axis == axis && program.value(mark.value).role == Role::input &&
            mark.placement.kind == Placement::Kind::split && mark.placement.dim != program.dim(mark.value, "batch"))
            return;
    for (ValueId input : program.inputs())
        if (const auto dim = program.dim(input, "batch")) program.store(input, axis, Placement::split(*dim), origin);
}

GradientMessages GradientMessages::read(Config& options, std::string_view strategy) {
    const int64_t bucket_mib = options.integer("bucket_mib", 25);
    const std::string reduce = options.text("reduce", "f32");
    const std::string codec = options.text("codec", reduce == "bf16" ? reduce : "none");
    if (bucket_mib < 0)
        throw Error(
            options.where("bucket_mib"),
            fmt::format("bucket_mib is {}; give a number of MiB, or 0 to send each gradient alone", bucket_mib));
    if (reduce != "f32" && reduce != "bf16")
        throw Error(options.where("reduce"), fmt::format("strategy {}: reduce is \"{}\"; gradients are sent as "
                                                         "\"f32\", or as \"bf16\" in half the bytes",
                                                         strategy, reduce));
    if (reduce == "bf16" && codec != reduce)
        throw Error(
            options.where("codec"),
            fmt::format("strategy {}: codec is \"{}\" and reduce \"{}\"; give codec alone", strategy, codec, reduce));
    const bool feedback = options.flag("feedback", false);
    if (feedback && codec == "none")
        throw Error(options.where("feedback"),
                    fmt::format("strategy {}: feedback without a codec; give one, as in codec = \"int8\"", strategy));
    return {bucket_mib, codec, feedback, std::string(strategy)};
}

/// "rep=int4,dp=bf16" by axis; empty for a codec of all axes.
static std::map<std::string, std::string> codecs_by_axis(const std::string& text, const std::vector<std::string>& axes,
                                                         const Origin& origin) {
    std::map<std::string, std::string> named;
    if (text.find('=') == text.npos) return named;
    for (const std::string& part : split(text, ',')) {
        const size_t cut = std::min(part.find('='), part.size());
        const std::string axis = part.substr(0, cut);
        if (cut == part.size() || !std::ranges::count(axes, axis))
            throw Error(origin,
                        fmt::format("codec {}: {} is not an axis over which this strategy sends gradients; name "
                                    "those with a codec, as in \"{}=int8\"{}",
                                    quote(text), quote(axis), axes.back(), choices("its axes", axis, axes)));
        if (!named.emplace(axis, part.substr(cut + 1)).second)
            throw Error(origin, fmt::format("codec {}: it names the axis {} twice", quote(text), axis));
    }
    return named;
}

void GradientMessages::mark(Program& program, const Mesh& mesh, const std::vector<std::string>& axes,
                            const Origin& origin) const {
    bool kept = !feedback;
    const std::map<std::string, std::string> named = codecs_by_axis(codec, axes, origin);
    for (const std::string& axis : axes) {
        const auto found = named.find(axis);
        const std::string own = named.empty() ? codec : found == named.end() ? "none" : found->second;
        const Codec& coded = codec_named(program, own, origin);  // a wrong name is an error also where nothing is sent
        if (mesh.size(axis) == 1) continue;
        split_batch(program, axis, origin);
        program.bucket(axis, bucket_mib * 1024 * 1024, origin);
        if (own != "none") program.edge(axis, std::nullopt, "codec", own, origin);
        if (!feedback || (!named.empty() && (!coded.encodes() || coded.sums_in))) continue;
        program.edge(axis, std::nullopt, "feedback", true, origin);
        kept = true;
    }
    if (!kept)
        throw Error(origin,
                    fmt::format("strategy {}: feedback has no effect: each axis ({}) is of one rank, or sends "
                                "gradients in none, bf16 or f16, which leave nothing to feed back\n  leave feedback "
                                "out",
                                strategy, fmt::join(axes, ", ")));
}

}  // namespace orrery
