// What strategies over several axes share: reading the axes, and splitting the batch over one.
#include <fmt/format.h>

#include <algorithm>
#include <set>

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

}  // namespace orrery
