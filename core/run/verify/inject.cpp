#include "run/verify/inject.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/describe.h"
#include "orrery/half.h"
#include "plan/access.h"
#include "run/verify/float_distance.h"

namespace orrery {
namespace {

template <class Number>
Number number_of(const std::string& text, const std::string& whole) {
    Number value{};
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc() || end != text.data() + text.size())
        throw Error(fmt::format("--inject {}: {} is not a number", whole, quote(text)));
    return value;
}

bool named(const Program& program, ValueId value, const std::string& name) {
    return value != none && program.value(original_of(program, value)).name == name;
}

/// Whether an error `what` can be injected at an instruction: at an all_to_all for unexchanged, else at a reduction.
bool keeps(Injection::What what, const Instruction& instruction) {
    if (what == Injection::What::unexchanged) return instruction.opcode == Opcode::all_to_all;
    return instruction.opcode == Opcode::all_reduce || instruction.opcode == Opcode::reduce_scatter;
}

/// Returns the instruction of a rank's stream, and its operand, at which the error is injected; none: there is none.
std::pair<int, size_t> place_of(const Injection& injection, const Program& program, const RankClass& c) {
    for (size_t i = 0; i < c.stream.size(); ++i) {
        const Instruction& instruction = c.stream[i];
        if (injection.what != Injection::What::scale) {
            const auto& operands = instruction.operands;
            if (keeps(injection.what, instruction) &&
                std::any_of(operands.begin(), operands.end(),
                            [&](const Operand& o) { return named(program, o.value, injection.tensor); }))
                return {static_cast<int>(i), 0};
            continue;
        }
        const bool when = instruction.fragment.micro < 0 || instruction.fragment.micro == injection.micro;
        if (!when || (instruction.opcode != Opcode::kernel && instruction.opcode != Opcode::receive)) continue;
        std::pair<int, size_t> found{none, 0};
        for_each_access(c, instruction, [&](const Operand& operand, bool, bool writes) {
            if (writes && operand.value != none && program.value(operand.value).name == injection.tensor)
                found = {static_cast<int>(i), static_cast<size_t>(&operand - instruction.operands.data())};
        });
        if (found.first != none) return found;
    }
    return {none, 0};
}

void scale(const Tensor& tensor, double by) {
    const auto scaled = [&](int64_t i) { return static_cast<float>(number_at(tensor.dtype, tensor.data, i) * by); };
    for (int64_t i = 0; i < tensor.count(); ++i) {
        switch (tensor.dtype) {
            case DType::f32: static_cast<float*>(tensor.data)[i] = scaled(i); break;
            case DType::bf16: static_cast<uint16_t*>(tensor.data)[i] = narrow_bf16(scaled(i)); break;
            case DType::f16: static_cast<uint16_t*>(tensor.data)[i] = narrow_f16(scaled(i)); break;
            default: throw Error("--inject scale: only floats of 32 and 16 bits can be scaled");
        }
    }
}

}  // namespace

Injection parse_injection(const std::string& text) {
    Injection injection;
    injection.text = text;
    const std::vector<std::string> parts = split(text, ',');
    if (parts[0] == "unreduced")
        injection.what = Injection::What::unreduced;
    else if (parts[0] == "unexchanged")
        injection.what = Injection::What::unexchanged;
    else if (parts[0] != "scale")
        throw Error(fmt::format("--inject {}: expected scale, unreduced or unexchanged first, found {}", text,
                                quote(parts[0])));
    for (size_t i = 1; i < parts.size(); ++i) {
        const size_t equals = parts[i].find('=');
        const std::string key = parts[i].substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : parts[i].substr(equals + 1);
        if (key == "rank")
            injection.rank = number_of<int64_t>(value, text);
        else if (key == "tensor")
            injection.tensor = value;
        else if (key == "by")
            injection.by = number_of<double>(value, text);
        else if (key == "micro")
            injection.micro = number_of<int64_t>(value, text);
        else
            throw Error(fmt::format("--inject {}: unknown key {}\n  known: rank, tensor, by, micro", text, quote(key)));
    }
    if (injection.tensor.empty()) throw Error(fmt::format("--inject {}: the tensor is missing; add tensor=NAME", text));
    return injection;
}

void require_injectable(const Injection& injection, const Plan& plan) {
    if (injection.rank < 0 || injection.rank >= plan.mesh.ranks())
        throw Error(fmt::format("--inject {}: rank {} does not exist, mesh {} has {} ranks", injection.text,
                                injection.rank, plan.mesh.text(), plan.mesh.ranks()));
    const RankClass& c = plan.class_of(injection.rank);
    if (place_of(injection, plan.program, c).first != none) return;
    const bool kept = injection.what != Injection::What::scale;
    std::set<std::string> names;
    for (const Instruction& instruction : c.stream) {
        if (kept && !keeps(injection.what, instruction)) continue;
        for_each_access(c, instruction, [&](const Operand& operand, bool, bool writes) {
            if (!kept && writes && operand.value != none) names.insert(plan.program.value(operand.value).name);
        });
        for (const Operand& operand : instruction.operands)
            if (kept && operand.value != none)
                names.insert(plan.program.value(original_of(plan.program, operand.value)).name);
    }
    names.erase("");
    const char* const does[] = {"makes", "reduces", "exchanges"};
    throw Error(fmt::format("--inject {}: rank {} {} no tensor {}{}", injection.text, injection.rank,
                            does[static_cast<int>(injection.what)], quote(injection.tensor),
                            choices("there are", injection.tensor, {names.begin(), names.end()})));
}

Injector::Injector(const Plan& plan, const RankClass& rank_class, int64_t rank,
                   const std::vector<Injection>& injections)
    : class_(rank_class) {
    for (const Injection& injection : injections) {
        if (injection.rank != rank) continue;
        const auto [index, operand] = place_of(injection, plan.program, rank_class);
        if (index != none) planned_.push_back({&injection, index, operand});
    }
}

void Injector::before(Executor& executor, int index) {
    for (const Planned& planned : planned_) {
        if (planned.index != index || planned.injection->what == Injection::What::scale) continue;
        const Tensor& in = executor.operand(index, 0);
        const auto* data = static_cast<const std::byte*>(in.data);
        kept_.assign(data, data + in.bytes());
    }
}

void Injector::after(Executor& executor, int index) {
    for (const Planned& planned : planned_) {
        if (planned.index != index) continue;
        if (planned.injection->what == Injection::What::scale) {
            scale(executor.operand(index, planned.operand), planned.injection->by);
            continue;
        }
        // In a reduce-scatter the rank keeps the first block of its own input.
        const Tensor& out = executor.operand(index, 1);
        std::memcpy(out.data, kept_.data(), std::min<size_t>(kept_.size(), out.bytes()));
    }
}

}  // namespace orrery
