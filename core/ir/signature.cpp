#include "ir/signature.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "ir/op.h"
#include "orrery/kernel.h"

namespace orrery {

namespace {

constexpr std::string_view all_letters = "fFa*nsiub";
constexpr std::string_view of_one_type = "fan";
constexpr std::string_view moved_only = "a*";

std::vector<std::string_view> words_of(std::string_view side) {
    std::vector<std::string_view> words;
    for (size_t at = side.find_first_not_of(' '); at < side.size(); at = side.find_first_not_of(' ', at)) {
        const size_t end = std::min(side.find(' ', at), side.size());
        words.push_back(side.substr(at, end - at));
        at = end;
    }
    return words;
}

struct Sides {
    std::vector<std::string_view> inputs, outputs;

    explicit Sides(std::string_view types) {
        const size_t arrow = types.find("->");
        inputs = words_of(types.substr(0, arrow));
        if (arrow != std::string_view::npos) outputs = words_of(types.substr(arrow + 2));
    }
};

/// "?" of "bias?", "..." of "a...", "".
std::string_view ending(std::string_view word) { return word.substr(std::min(word.find_first_of("?."), word.size())); }

/// A letter for each of so many operands, nothing where there can be no such number of them.
std::optional<std::string> letters_of(const std::vector<std::string_view>& side, size_t count) {
    std::string letters;
    for (std::string_view word : side) {
        const bool there = letters.size() < count;
        if (!there && ending(word) != "?") return std::nullopt;
        letters.append(ending(word) == "..." ? count - letters.size() : there, word[0]);
    }
    return letters.size() == count ? std::optional(letters) : std::nullopt;
}

std::optional<DType> only_type(char letter) {
    switch (letter) {
        case 's': return DType::f32;
        case 'i': return DType::i32;
        case 'u': return DType::u32;
        case 'b': return DType::u8;
        default: return std::nullopt;
    }
}

std::string_view wanted(char letter) {
    if (const auto only = only_type(letter)) return name_of(*only);
    return letter == 'n' ? "i32 or a floating-point type" : "a floating-point type";
}

/// An operand of the wrong type: of another one than `like`, or than its letter takes.
struct Misfit {
    size_t operand;
    std::optional<size_t> like = {};
};

/// Inputs, then outputs. `wide`: statistics may be f64.
std::optional<Misfit> find_misfit(const std::string& letters, const std::vector<DType>& types, bool wide) {
    for (size_t i = 0; i < letters.size(); ++i) {
        const char letter = letters[i];
        const auto only = only_type(letter);
        const bool fits = only ? types[i] == *only || (wide && letter == 's' && types[i] == DType::f64)
                               : is_float(types[i]) || moved_only.find(letter) != std::string_view::npos ||
                                     (letter == 'n' && types[i] == DType::i32);
        if (!fits) return Misfit{i};
        const size_t first = letters.find(letter);
        if (of_one_type.find(letter) != std::string_view::npos && types[i] != types[first]) return Misfit{i, first};
    }
    return std::nullopt;
}

/// "gain", "x 2" of "x...", "output 1".
std::string operand_name(const OpDef& def, size_t operand, size_t inputs) {
    if (operand >= inputs) return fmt::format("output {}", operand - inputs);
    const std::string_view name = def.operands[std::min(operand, def.operands.size() - 1)];
    const std::string_view word = name.substr(0, name.size() - ending(name).size());
    return ending(name) == "..." ? fmt::format("{} {}", word, operand) : std::string(word);
}

/// "f32", "bf16 as x".
std::string expected(const OpDef& def, char letter, const Misfit& misfit, const std::vector<DType>& types,
                     size_t inputs) {
    if (!misfit.like) return std::string(wanted(letter));
    return fmt::format("{} as {}", name_of(types[*misfit.like]), operand_name(def, *misfit.like, inputs));
}

std::vector<DType> types_of(const Infer& at) {
    std::vector<DType> types;
    for (size_t i = 0; i < at.count(); ++i) types.push_back(at.dtype(i));
    return types;
}

}  // namespace

std::string problem_of_types(const OpDef& def) {
    if (def.types.empty())
        return fmt::format(
            "the op {} lacks types: a letter for each operand and each output, such as \"f -> f\"; "
            "orrery/op.h lists them",
            def.name);
    const auto good = [](std::string_view word) {
        const std::string_view end = ending(word);
        return all_letters.find(word[0]) != std::string_view::npos && word.size() == 1 + end.size() &&
               (end.empty() || end == "?" || end == "...");
    };
    const auto optional = [](std::string_view word) { return ending(word) == "?"; };
    const Sides sides(def.types);
    const auto& [inputs, outputs] = sides;
    const bool agree =
        std::all_of(inputs.begin(), inputs.end(), good) && std::all_of(outputs.begin(), outputs.end(), good) &&
        std::equal(inputs.begin(), inputs.end(), def.operands.begin(), def.operands.end(),
                   [](std::string_view word, std::string_view operand) { return ending(word) == ending(operand); }) &&
        !outputs.empty() && !optional(outputs[0]) && std::is_partitioned(outputs.rbegin(), outputs.rend(), optional) &&
        std::none_of(outputs.begin(), outputs.end(), [](std::string_view word) { return ending(word) == "..."; });
    if (agree) return "";
    return fmt::format(
        "the op {} has the operands ({}) and the types \"{}\": give a letter of {} for each operand, with "
        "its \"?\" or \"...\", \"->\", and one for each output",
        def.name, fmt::join(def.operands, ", "), def.types, all_letters);
}

void check_inputs(const Infer& at, const OpDef& def) {
    const auto letters = letters_of(Sides(def.types).inputs, at.count());
    if (!letters) return;  // a collective's, of any type
    const auto misfit = find_misfit(*letters, types_of(at), false);
    if (!misfit) return;
    const size_t i = misfit->operand;
    if (misfit->like) at.expect_same_dtype(*misfit->like, i);
    if (const auto only = only_type((*letters)[i])) at.expect_dtype(i, *only);
    if ((*letters)[i] == 'n') at.fail(at.show(i) + " is neither i32 nor of a floating-point type", "cast it first");
    at.expect_float(i);
}

void check_outputs(const Infer& at, const OpDef& def, const std::vector<Typed>& made) {
    const Sides sides(def.types);
    const auto in = letters_of(sides.inputs, at.count()), out = letters_of(sides.outputs, made.size());
    if (!in) return;
    if (!out) at.fail(fmt::format("its inference gives {} outputs, its types are {}", made.size(), def.types));
    std::vector<DType> types = types_of(at);
    for (const Typed& one : made) types.push_back(one.type.dtype);
    const std::string letters = *in + *out;
    const auto misfit = find_misfit(letters, types, false);
    if (!misfit) return;
    const size_t i = misfit->operand;
    at.fail(fmt::format("{} would be {}, expected {} ({})", operand_name(def, i, at.count()), name_of(types[i]),
                        expected(def, letters[i], *misfit, types, at.count()), def.types),
            at.attributes.has("dtype") ? "give another dtype" : "");
}

std::string wrong_operands(const KernelSpec& spec, std::string_view no_f64) {
    const OpDef* const def = find_op_def(spec.op);
    if (!def) return "";
    const auto wrong = [&](const std::string& what) { return fmt::format("op {}: {}", spec.op, what); };
    if (spec.attributes.flag("accumulate") && def->accumulates.empty()) return wrong("it cannot accumulate");
    const Sides sides(def->types);
    const size_t inputs = spec.inputs.size();
    const auto in = letters_of(sides.inputs, inputs), out = letters_of(sides.outputs, spec.outputs.size());
    if (!in || !out)
        return wrong(fmt::format("{} inputs and {} outputs, expected {}", inputs, spec.outputs.size(), def->types));
    std::vector<TensorType> operands = spec.inputs;
    operands.insert(operands.end(), spec.outputs.begin(), spec.outputs.end());
    std::vector<DType> types;
    for (const TensorType& type : operands) types.push_back(type.dtype);
    const std::string letters = *in + *out;
    const auto said = [&](size_t i) { return operand_name(*def, i, inputs) + " is " + operands[i].text(); };
    if (const auto misfit = find_misfit(letters, types, true)) {
        const size_t i = misfit->operand;
        const std::string meant = expected(*def, letters[i], *misfit, types, inputs);
        return wrong(fmt::format("{}, expected {} ({})", said(i), meant, def->types));
    }
    for (size_t i = 0; i < letters.size() && !no_f64.empty(); ++i)
        if (types[i] == DType::f64 && moved_only.find(letters[i]) == std::string_view::npos)
            return wrong(fmt::format("{}: {}", said(i), no_f64));
    return "";
}

}  // namespace orrery
