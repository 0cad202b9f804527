#include "plan/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "base/text.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "plan/repeat.h"
#include "plan/summary.h"

namespace orrery {
namespace {

/// A name without numbers, so that repeated layers share it: "h.3.mlp" -> "h.*.mlp", "for matmul %71" -> "for matmul".
std::string without_numbers(const std::string& text) {
    std::vector<std::string> words;
    for (const std::string& word : split(text, ' ')) {
        if (word.starts_with('%')) continue;
        std::vector<std::string> parts;
        for (const std::string& part : split(word, '.')) {
            const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
            parts.push_back(number ? "*" : part);
        }
        words.push_back(join(parts, "."));
    }
    return join(words, " ");
}

/// The layer of a value or op by its name: "matmul of h.3.attn" -> "h.3"; "": none.
std::string layer_of(const std::string& name) {
    std::string layer;
    for (const std::string& part : split(name.substr(name.find_last_of(' ') + 1), '.')) {
        layer += (layer.empty() ? "" : ".") + part;
        if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) return layer;
    }
    return "";
}

class Lint {
public:
    Lint(const Plan& plan, const WireBytes& wires) : plan_(plan), wires_(wires), program_(plan.program) {
        for (const Mark& mark : program_.marks()) {
            axes_of_[mark.origin.text()].insert(mark.axis);
            if (mark.what == Mark::What::use) used_.emplace(mark.value, mark.axis);
        }
        for (const Op& op : program_.ops)
            if (op.phase == Phase::backward) read_backward_.insert(op.inputs.begin(), op.inputs.end());
    }

    std::vector<Redistribution> run() {
        for (const RankClass& c : plan_.classes) {
            for (const Instruction& i : c.stream) {
                times_ = times_of(c, &i - c.stream.data());
                if (i.axis != none && i.opcode != Opcode::receive) add(i);
            }
            take_most();
        }
        std::vector<Redistribution> entries;
        for (auto& [key, entry] : entries_) entries.push_back(std::move(entry));
        std::stable_sort(entries.begin(), entries.end(),
                         [](const Redistribution& a, const Redistribution& b) { return a.bytes > b.bytes; });
        return entries;
    }

    std::vector<LayerTraffic> layers() const {
        std::vector<LayerTraffic> all;
        for (const auto& [key, traffic] : layers_) all.push_back(traffic);
        for (LayerTraffic& one : all) {
            one.bytes /= plan_.mesh.microbatches();
            one.kept /= plan_.mesh.microbatches();
            for (auto& [kind, count] : one.counts) count /= plan_.mesh.microbatches();
        }
        return all;
    }

private:
    /// Adds the counts of the current instruction stream to the entries, which report the max over streams.
    void take_most() {
        for (const auto& [key, own] : own_) {
            Redistribution& all = entries_.at(key);
            ++all.streams;
            if (std::pair(own.bytes, own.count) <= std::pair(all.bytes, all.count)) continue;
            all.bytes = own.bytes;
            all.count = own.count;
        }
        own_.clear();
        for (auto& [key, own] : own_layers_) {
            std::vector<LayerTraffic> sorted;
            for (auto& [name, layer] : own) sorted.push_back(std::move(layer));
            // The first layer may send what all of them read, as documents and positions.
            const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
            std::ranges::nth_element(sorted, middle, {}, &LayerTraffic::bytes);
            LayerTraffic& all = layers_[key];
            if (middle->bytes > all.bytes) all = std::move(*middle);
        }
        own_layers_.clear();
    }

    void add(const Instruction& i) {
        if (i.opcode != Opcode::all_reduce || i.operands.size() <= 2)
            return add(i, i.op, i.operands[0].value, wires_.bytes_sent(i, plan_.mesh));
        for (size_t k = 2; k + 1 < i.operands.size(); k += 2) {
            Instruction member = i;
            member.operands = {i.operands[k], i.operands[k + 1]};
            add(i, program_.value(i.operands[k + 1].value).op, i.operands[k].value,
                wires_.bytes_sent(member, plan_.mesh));
        }
    }

    void add(const Instruction& i, OpId id, ValueId operand, int64_t bytes) {
        const Op* op = id == none ? nullptr : &program_.op(id);
        const bool rolls = op && exchanges_blocks(op_def(op->kind), *op);
        const bool inserted = op && (rolls || op_def(op->kind).collective);
        const ValueId value = inserted ? op->inputs[0] : operand;
        if (value == none) return;
        Redistribution entry;
        entry.kind = inserted ? op->kind : std::string(name_of(i.opcode));
        entry.axis = plan_.mesh.axis(i.axis).name;
        entry.what = title(value);
        entry.why = rolls && !op->attributes.has("cause") ? "the script rolls a dim that is split"
                    : inserted                            ? without_numbers(op->attributes.text("cause"))
                                                          : "to another stage";
        entry.by = strategies(value, entry.axis);
        entry.origin = op ? op->origin : program_.value(value).origin;
        entry.implicit = inserted && implicit(*op, value, entry.axis);
        const auto key = fmt::format("{}|{}|{}|{}|{}|{}|{}", entry.kind, entry.axis, entry.what, entry.why, entry.by,
                                     entry.origin.text(), entry.implicit);
        Redistribution& all = entries_.try_emplace(key, std::move(entry)).first->second;
        all.values += seen_.emplace(&all, value).second;
        Own& own = own_[key];
        own.count += times_;
        own.bytes += times_ * bytes;
        if (inserted && i.fragment.micro >= 0) add_to_layer(i, *op, all, layer_of(name_of_value(value)), bytes);
    }

    void add_to_layer(const Instruction& i, const Op& op, const Redistribution& entry, const std::string& layer,
                      int64_t bytes) {
        if (layer.empty() || entry.by.empty()) return;
        LayerTraffic& of = own_layers_[{entry.by, entry.axis}][layer];
        of.by = entry.by;
        of.axis = entry.axis;
        of.bytes += times_ * bytes;
        of.counts[entry.kind] += times_;
        const bool moved = i.opcode == Opcode::all_gather || i.opcode == Opcode::all_to_all;
        if (moved && op.phase == Phase::forward && read_backward_.count(op.outputs[0]) > 0)
            of.kept += times_ * i.operands[1].type.bytes();
    }

    std::string title(ValueId value) const { return without_numbers(name_of_value(value)); }

    std::string name_of_value(ValueId value) const {
        const ValueId original = original_of(program_, value);
        const Value& v = program_.value(original);
        if (!v.name.empty() || v.op == none) return v.name;
        const Op& op = program_.op(v.op);
        return op.scope.empty() ? op.kind : fmt::format("{} of {}", op.kind, op.scope);
    }

    /// Text of the strategies that caused the layout of a value by a mark on the axis.
    std::string strategies(ValueId value, const std::string& axis) const {
        std::string all;
        for (const Origin& cause : program_.value(value).causes) {
            const auto axes = axes_of_.find(cause.text());
            if (axes == axes_of_.end() || !names(axes->second, axis)) continue;
            all += (all.empty() ? "" : "; ") + cause.text();
        }
        return all;
    }

    /// Whether `axes` contains the axis or, for a joined axis ("dp+pp"), one of those that it joins.
    bool names(const std::set<std::string>& axes, const std::string& axis) const {
        const std::vector<AxisId>& parts = plan_.mesh.parts(plan_.mesh.over(axis).value());
        return std::any_of(parts.begin(), parts.end(),
                           [&](AxisId part) { return axes.count(plan_.mesh.axis(part).name) > 0; });
    }

    bool implicit(const Op& op, ValueId value, const std::string& axis) const {
        const auto moved = collective_of(op);
        if (moved != Opcode::all_gather && moved != Opcode::all_to_all) return false;
        if (!op.attributes.text("cause").starts_with("for ")) return false;
        return !asked_for(value, axis);
    }

    bool asked_for(ValueId value, const std::string& axis) const {
        const ValueId original = original_of(program_, value);
        const auto used = [&](AxisId part) { return used_.count({original, plan_.mesh.axis(part).name}) > 0; };
        if (std::ranges::all_of(plan_.mesh.parts(plan_.mesh.over(axis).value()), used)) return true;
        const OpId id = program_.value(original).op;
        if (id == none) return false;
        // The marks of a param also apply to its low-precision copy, and to a bucket of params.
        const Op& maker = program_.op(id);
        const OpDef& def = op_def(maker.kind);
        const bool same = def.casts || def.moves == Moves::renames || def.moves == Moves::permutes;
        return (same || def.moves == Moves::joins) &&
               std::all_of(maker.inputs.begin(), maker.inputs.end(), [&](ValueId in) { return asked_for(in, axis); });
    }

    struct Own {
        int64_t count = 0, bytes = 0;
    };

    const Plan& plan_;
    const WireBytes& wires_;
    const Program& program_;
    int64_t times_ = 1;
    std::map<std::string, Own> own_;
    std::map<std::string, std::set<std::string>> axes_of_;
    std::set<std::pair<ValueId, std::string>> used_;
    std::map<std::string, Redistribution> entries_;
    std::set<std::pair<const Redistribution*, ValueId>> seen_;
    std::unordered_set<ValueId> read_backward_;
    using ByAndAxis = std::pair<std::string, std::string>;
    std::map<ByAndAxis, std::map<std::string, LayerTraffic>> own_layers_;  // of one stream, by name of the layer
    std::map<ByAndAxis, LayerTraffic> layers_;
};

}  // namespace

std::vector<Redistribution> redistributions(const Plan& plan, const WireBytes& wires,
                                            std::vector<LayerTraffic>* layers) {
    Lint lint(plan, wires);
    std::vector<Redistribution> entries = lint.run();
    if (layers) *layers = lint.layers();
    return entries;
}

std::string layers_text(const std::vector<LayerTraffic>& layers) {
    std::string text = layers.empty() ? "" : "of these a layer sends in each micro-batch:\n";
    for (const LayerTraffic& one : layers) {
        std::vector<std::string> counts;
        for (const auto& [kind, count] : one.counts) counts.push_back(fmt::format("{} x {}", count, kind));
        text += fmt::format("  {:>10}  over {} by {}: {}", bytes_text(one.bytes), one.axis, one.by, join(counts, ", "));
        text += one.kept > 0
                    ? fmt::format("; {} of received values are saved for the backward pass\n", bytes_text(one.kept))
                    : "\n";
    }
    return text;
}

std::string lint_text(const std::vector<Redistribution>& entries, size_t most) {
    if (entries.empty()) return "";
    std::string text = "redistributions a step, each as the rank that sends most of it does:\n";
    int64_t implicit = 0, bytes = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
        const Redistribution& e = entries[i];
        implicit += e.implicit;
        bytes += e.implicit ? e.bytes : 0;
        if (i >= most) continue;
        text += fmt::format("  {:>10}  {:>5} x  {} over {}: {}, {}{}\n", bytes_text(e.bytes), count_text(e.count),
                            e.kind, e.axis, e.what, e.why, e.implicit ? ", IMPLICIT" : "");
        text += fmt::format("  {:>22}{}{}{}\n", "", e.origin.text(), e.by.empty() ? "" : "; laid so by ", e.by);
    }
    if (entries.size() > most) text += fmt::format("  and {} more kinds\n", entries.size() - most);
    text += implicit == 0 ? "  none is implicit: strategies asked for every gather\n"
                          : fmt::format(
                                "  {} of these are gathers that no strategy asked for: {} a step\n"
                                "    forbid them with program:parallel {{ ..., forbid_implicit = true }}\n",
                                implicit, bytes_text(bytes));
    return text;
}

}  // namespace orrery
