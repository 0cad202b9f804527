#include "compile/ids.h"

#include <algorithm>

#include "ir/op.h"

namespace orrery {
namespace {

/// The input that a value equals or is a view of; none if an op computes the value.
ValueId input_behind(const Program& program, ValueId id) {
    for (;;) {
        const Value& value = program.value(id);
        if (value.role == Role::input) return id;
        if (value.op == none) return none;
        const Op& op = program.op(value.op);
        if (!is_view(op_def(op.kind))) return none;
        id = op.inputs[0];
    }
}

int64_t fewest(int64_t a, int64_t b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

}  // namespace

std::map<std::string, IdRange> ids_of(const Program& recorded) {
    std::map<std::string, IdRange> ranges;
    for (const Op& op : recorded.ops) {
        const OpDef& def = op_def(op.kind);
        if (op.phase != Phase::forward || !def.looks_up) continue;
        const Lookup& lookup = *def.looks_up;
        const ValueId input = input_behind(recorded, op.inputs.at(lookup.ids));
        if (input == none) continue;
        const auto& rows = lookup.rows.output ? op.outputs : op.inputs;
        const Shape& shape = recorded.value(rows.at(lookup.rows.index)).type.shape;
        IdRange& range = ranges[recorded.value(input).name];
        const int64_t size = ids_looked_up(lookup, shape, op.attributes);
        range.count = fewest(range.count, fewest(size, op.attributes.integer("ids")));
        if (!lookup.skips) range.least = 0;
    }
    return ranges;
}

void narrow(std::map<std::string, IdRange>& ids, const std::map<std::string, IdRange>& also) {
    for (const auto& [input, range] : also) {
        IdRange& known = ids.try_emplace(input, range).first->second;
        known.least = std::max(known.least, range.least);
        known.count = fewest(known.count, range.count);
    }
}

bool numbers_places(std::string_view input) {
    constexpr std::string_view arrays[] = {"documents", "positions", "places"};
    return std::ranges::find(arrays, input) != std::end(arrays);
}

int64_t vocabulary_of(const Program& recorded) {
    int64_t all = 0;
    for (const auto& [input, range] : ids_of(recorded))
        if (!numbers_places(input)) all = fewest(all, range.count);
    return all;
}

}  // namespace orrery
