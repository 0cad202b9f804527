#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "draw/parts.h"
#include "ir/op.h"

namespace orrery::drawing {
namespace {

std::string dim_name(const Value& value, size_t dim) {
    return value.dims.size() > dim && !value.dims[dim].empty() ? value.dims[dim] : fmt::format("dim {}", dim);
}

LayoutView view_of(const Program& program, const Mesh& mesh, ValueId id) {
    const Value& value = program.value(id);
    LayoutView view;
    std::vector<std::string> words;
    const auto& splits = value.layout.splits();
    for (size_t dim = 0; dim < splits.size(); ++dim) {
        std::string axes;
        for (AxisId axis : splits[dim]) {
            if (mesh.axis(axis).sequential || mesh.size(axis) == 1) continue;
            view.splits.push_back({mesh.axis(axis).name, mesh.size(axis), static_cast<int>(dim)});
            view.parts *= mesh.size(axis);
            axes += "/" + mesh.axis(axis).name;
        }
        if (!axes.empty()) words.push_back(dim_name(value, dim) + axes);
    }
    for (const Layout::Partial& partial : value.layout.partials())
        if (!mesh.axis(partial.axis).sequential && mesh.size(partial.axis) > 1)
            words.push_back("partial " + mesh.axis(partial.axis).name);
    view.text = words.empty() ? "whole" : join(words, " ");
    view.bytes = value.type.bytes() / view.parts;
    return view;
}

/// Returns for each param the value that forward ops read: the param, after casts and gathers if there are any.
std::vector<ValueId> read_values(const Program& program) {
    std::vector<ValueId> param_of(program.values.size(), none), read(program.values.size(), none);
    for (ValueId id : program.params()) param_of[id] = id;
    for (const Op& op : program.ops) {
        if (op.phase != Phase::forward) continue;
        const OpDef& def = op_def(op.kind);
        const bool passes = def.casts || def.collective;
        for (ValueId input : op.inputs) {
            const ValueId param = param_of[input];
            if (param == none) continue;
            if (passes)
                for (ValueId output : op.outputs) param_of[output] = param;
            else if (read[param] == none)
                read[param] = input;
        }
    }
    return read;
}

/// Replaces the numbers in a name by "*": "h.3.attn.weight" gives "h.*.attn.weight" and {3}.
std::string folded(const std::string& name, std::vector<int64_t>& numbers) {
    std::vector<std::string> words = split(name, '.');
    for (std::string& word : words) {
        const bool digits = !word.empty() && word.size() < 10 &&
                            std::all_of(word.begin(), word.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
        if (!digits) continue;
        numbers.push_back(std::stoll(word));
        word = "*";
    }
    return join(words, ".");
}

/// Replaces each "*" in a name by the numbers of all params of a row: "h.*.attn.weight" gives "h.{0..11}.attn.weight".
std::string unfolded(const std::string& pattern, const std::vector<std::set<int64_t>>& numbers) {
    std::vector<std::string> words = split(pattern, '.');
    size_t next = 0;
    for (std::string& word : words) {
        if (word != "*" || next >= numbers.size()) continue;
        const std::set<int64_t>& seen = numbers[next++];
        word =
            seen.size() == 1 ? std::to_string(*seen.begin()) : fmt::format("{{{}..{}}}", *seen.begin(), *seen.rbegin());
    }
    return join(words, ".");
}

std::string shape_text(const Value& value) {
    std::vector<std::string> words;
    for (size_t dim = 0; dim < value.type.shape.size(); ++dim) {
        const std::string name = value.dims.size() > dim ? value.dims[dim] : "";
        words.push_back(name.empty() ? std::to_string(value.type.shape[dim])
                                     : fmt::format("{} {}", name, value.type.shape[dim]));
    }
    return fmt::format("{} {}", name_of(value.type.dtype), words.empty() ? "scalar" : join(words, " x "));
}

/// Returns for each value the pipeline ranks that have it as input, param, state or result.
std::vector<std::set<int64_t>> holders(const Plan& plan) {
    std::vector<std::set<int64_t>> of(plan.program.values.size());
    for (const RankClass& c : plan.classes)
        for (const Operand& place : c.places)
            if (place.value != none) of[place.value].insert(c.stage);
    return of;
}

struct Group {
    ParamRow row;
    std::string pattern;
    std::vector<std::set<int64_t>> numbers;
    std::set<int64_t> holders;
};

ParamRow row_of(const Plan& plan, ValueId id, ValueId read) {
    const Program& program = plan.program;
    ParamRow row;
    row.type = shape_text(program.value(id));
    row.rank = static_cast<int>(program.value(id).type.shape.size());
    row.rest = view_of(program, plan.mesh, id);
    if (read != none) row.read = view_of(program, plan.mesh, read);
    if (const ValueId grad = program.grad_of(id); grad != none) row.grad = view_of(program, plan.mesh, grad);
    int64_t bytes = 0;
    for (ValueId state : program.states_of(id)) {
        const LayoutView view = view_of(program, plan.mesh, state);
        bytes += view.bytes;
        if (program.value(state).type.shape == program.value(id).type.shape) row.state = view;
    }
    row.state.bytes = bytes;  // of all optimizer states of the param together
    return row;
}

}  // namespace

std::vector<ParamRow> param_rows(const Plan& plan, const Timeline& timeline) {
    const std::vector<ValueId> read = read_values(plan.program);
    const std::vector<std::set<int64_t>> held = holders(plan);
    std::vector<Group> groups;
    std::map<std::string, size_t> known;
    for (ValueId id : plan.program.params()) {
        ParamRow row = row_of(plan, id, read[id]);
        std::vector<int64_t> numbers;
        const std::string pattern = folded(plan.program.value(id).name, numbers);
        const std::string key = join({pattern, row.type, row.rest.text, row.read.text, row.grad.text, row.state.text,
                                      fmt::format("{} {}", row.read.bytes, row.state.bytes)},
                                     "|");
        const auto [found, fresh] = known.try_emplace(key, groups.size());
        if (fresh)
            groups.push_back({std::move(row), pattern, std::vector<std::set<int64_t>>(numbers.size()), {}});
        else
            ++groups[found->second].row.count;
        Group& group = groups[found->second];
        for (size_t n = 0; n < numbers.size(); ++n) group.numbers[n].insert(numbers[n]);
        group.holders.insert(held[id].begin(), held[id].end());
    }
    std::vector<ParamRow> rows;
    const bool staged = timeline.ranks.size() > 1;
    const bool one_each = chunks_of(timeline) == 1;
    for (Group& group : groups) {
        group.row.name = unfolded(group.pattern, group.numbers);
        if (staged && !group.holders.empty())
            group.row.where = range_text(one_each ? "stage" : "pipeline rank", one_each ? "stages" : "pipeline ranks",
                                         {group.holders.begin(), group.holders.end()});
        rows.push_back(std::move(group.row));
    }
    return rows;
}

}  // namespace orrery::drawing
