#include "ir/signature.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <optional>

#include "ir/op.h"
#include "orrery/kernel.h"

namespace orrery {

namespace {

constexpr std::string_view all_letters = "fFa*nsiubc";
constexpr std::string_view of_one_type = "fan";
constexpr std::string_view of_any_type = "a*";

// Inference checks every recorded op, so nothing here allocates memory if the types are valid.

/// Removes the first word of `side` (the inputs or outputs of OpDef::types) and returns it; "" at the end.
std::string_view next_word(std::string_view& side) {
    side.remove_prefix(std::min(side.find_first_not_of(' '), side.size()));
    const std::string_view word = side.substr(0, side.find(' '));
    side.remove_prefix(word.size());
    return word;
}

struct Sides {
    std::string_view inputs, outputs;

    explicit Sides(std::string_view types) : inputs(types.substr(0, types.find("->"))) {
        if (inputs.size() < types.size()) outputs = types.substr(inputs.size() + 2);
    }
};

std::vector<std::string_view> words_of(std::string_view side) {
    std::vector<std::string_view> words;
    for (std::string_view word = next_word(side); !word.empty(); word = next_word(side)) words.push_back(word);
    return words;
}

/// The suffix of a word: "?" for "bias?" (optional), "??" (given together with the one before), "..." for "a..." (any
/// number), otherwise "".
std::string_view ending(std::string_view word) { return word.substr(std::min(word.find_first_of("?."), word.size())); }

/// Matches `count` inputs or outputs to the words of a side of OpDef::types. Returns what `word_of` makes of each one's
/// word, or nullopt if there cannot be that many. Optional words are taken from left to right, each together with its
/// "??" words, while they fit.
template <class Noted, class WordOf>
std::optional<Noted> present(std::string_view side, size_t count, const WordOf& word_of) {
    Noted noted;
    size_t place = 0;
    bool there = true;
    for (std::string_view word = next_word(side); !word.empty(); word = next_word(side), ++place) {
        const std::string_view end = ending(word);
        if (end == "?") {
            size_t together = 1;
            std::string_view rest = side;
            while (ending(next_word(rest)) == "??") ++together;
            there = noted.size() + together <= count;
        } else if (end != "??") {
            there = end == "..." || noted.size() < count;
            if (!there) return std::nullopt;
        }
        if (!there) continue;
        const size_t times = end == "..." ? count - std::min(count, noted.size()) : 1;
        for (size_t i = 0; i < times; ++i) noted.push_back(word_of(word, place));
    }
    return noted.size() == count ? std::optional(std::move(noted)) : std::nullopt;
}

/// The type letters of `count` inputs or outputs, by operand; nullopt if there cannot be that many.
std::optional<std::string> letters_of(std::string_view side, size_t count) {
    return present<std::string>(side, count, [](std::string_view word, size_t) { return word[0]; });
}

std::optional<DType> only_type(char letter) {
    switch (letter) {
        case 's': return DType::f32;
        case 'i': return DType::i32;
        case 'u': return DType::u32;
        case 'b': return DType::u8;
        case 'c': return DType::i8;
        default: return std::nullopt;
    }
}

std::string_view wanted(char letter) {
    if (const auto only = only_type(letter)) return name_of(*only);
    return letter == 'n' ? "i32 or a floating-point type" : "a floating-point type";
}

/// An operand of the wrong type. `like`: an operand that has the type it needs; nullopt: its letter excludes its type.
struct Misfit {
    size_t operand;
    std::optional<size_t> like = {};
};

/// Finds the first operand of a wrong type, inputs before outputs. `wide`: statistics may be f64 instead of f32.
template <class TypeOf>
std::optional<Misfit> find_misfit(const std::string& letters, const TypeOf& type_of, bool wide) {
    for (size_t i = 0; i < letters.size(); ++i) {
        const char letter = letters[i];
        const DType type = type_of(i);
        const auto only = only_type(letter);
        const bool fits = only ? type == *only || (wide && letter == 's' && type == DType::f64)
                               : is_float(type) || of_any_type.find(letter) != std::string_view::npos ||
                                     (letter == 'n' && type == DType::i32);
        if (!fits) return Misfit{i};
        const size_t first = letters.find(letter);
        if (of_one_type.find(letter) != std::string_view::npos && type != type_of(first)) return Misfit{i, first};
    }
    return std::nullopt;
}

/// The name of an operand for error messages: "gain", "x 2" for "x...", "output 1".
std::string operand_name(const OpDef& def, size_t operand, size_t inputs) {
    if (operand >= inputs) return fmt::format("output {}", operand - inputs);
    const auto places = present<std::vector<size_t>>(Sides(def.types).inputs, inputs,
                                                     [](std::string_view, size_t place) { return place; });
    assert(places);
    const std::string_view name = def.operands[(*places)[operand]];
    const std::string_view word = name.substr(0, name.size() - ending(name).size());
    return ending(name) == "..." ? fmt::format("{} {}", word, operand) : std::string(word);
}

/// The expected type of an operand for error messages: "f32", "bf16 as x".
template <class TypeOf>
std::string expected(const OpDef& def, char letter, const Misfit& misfit, const TypeOf& type_of, size_t inputs) {
    if (!misfit.like) return std::string(wanted(letter));
    return fmt::format("{} as {}", name_of(type_of(*misfit.like)), operand_name(def, *misfit.like, inputs));
}

/// How many inputs or outputs there can be (without "..."), as text: "3", "3 to 4".
std::string counts(std::string_view side) {
    const std::vector<std::string_view> words = words_of(side);
    const auto least = std::count_if(words.begin(), words.end(), [](auto word) { return ending(word).empty(); });
    return least == std::ssize(words) ? fmt::format("{}", least) : fmt::format("{} to {}", least, words.size());
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
               (end.empty() || end == "?" || end == "??" || end == "...");
    };
    const auto optional = [](std::string_view word) { return ending(word).starts_with('?'); };
    // After the required operands come either optional ones ("?", then any "??") or a single "...".
    const auto in_order = [&](const std::vector<std::string_view>& words) {
        const auto first = std::find_if(words.begin(), words.end(), [](auto word) { return !ending(word).empty(); });
        if (first != words.end() && ending(*first) == "??") return false;
        return std::all_of(first, words.end(), optional) || first + 1 == words.end();
    };
    const Sides sides(def.types);
    const std::vector<std::string_view> inputs = words_of(sides.inputs), outputs = words_of(sides.outputs);
    const bool agree =
        std::all_of(inputs.begin(), inputs.end(), good) && std::all_of(outputs.begin(), outputs.end(), good) &&
        std::equal(inputs.begin(), inputs.end(), def.operands.begin(), def.operands.end(),
                   [](std::string_view word, std::string_view operand) { return ending(word) == ending(operand); }) &&
        in_order(inputs) && in_order(outputs) && !outputs.empty() && !optional(outputs[0]) &&
        std::none_of(outputs.begin(), outputs.end(), [](std::string_view word) { return ending(word) == "..."; });
    if (agree) return "";
    return fmt::format(
        "the op {} has operands ({}) that do not match its types \"{}\": expected a letter of {} for each operand, "
        "with its \"?\" or \"...\", then \"->\" and a letter for each output; \"?\", and one \"...\" of the inputs, "
        "come last",
        def.name, fmt::join(def.operands, ", "), def.types, all_letters);
}

std::string input_letters(const OpDef& def, size_t count) {
    return letters_of(Sides(def.types).inputs, count).value_or("");
}

void check_inputs(const Infer& at, const OpDef& def) {
    if (def.types.empty()) return;  // a collective has no types to check
    const auto letters = letters_of(Sides(def.types).inputs, at.count());
    if (!letters) {
        at.fail(fmt::format("got {} operands, expected ({})", at.count(), fmt::join(def.operands, ", ")),
                "operands with \"??\" are given together with those before them");
    }
    const auto misfit = find_misfit(
        *letters, [&](size_t i) { return at.dtype(i); }, false);
    if (!misfit) return;
    const size_t i = misfit->operand;
    if (misfit->like) at.expect_same_dtype(*misfit->like, i);
    if (const auto only = only_type((*letters)[i])) at.expect_dtype(i, *only);
    if ((*letters)[i] == 'n') at.fail(at.show(i) + " is neither i32 nor of a floating-point type", "cast it first");
    at.expect_float(i);
}

void check_outputs(const Infer& at, const OpDef& def, const std::vector<Typed>& made) {
    if (def.types.empty()) return;
    const Sides sides(def.types);
    const auto in = letters_of(sides.inputs, at.count()), out = letters_of(sides.outputs, made.size());
    assert(in);
    if (!out)
        at.fail(fmt::format("its infer function returned {} outputs, but its types are {}", made.size(), def.types));
    const size_t inputs = at.count();
    const auto type_of = [&](size_t i) { return i < inputs ? at.dtype(i) : made[i - inputs].type.dtype; };
    const std::string letters = *in + *out;
    const auto misfit = find_misfit(letters, type_of, false);
    if (!misfit) return;
    const size_t i = misfit->operand;
    const std::string what = fmt::format("{} would be {}, expected {}", operand_name(def, i, inputs),
                                         name_of(type_of(i)), expected(def, letters[i], *misfit, type_of, inputs));
    const Attribute* const asked = at.attributes.find("dtype");
    const auto* const dtype = asked ? std::get_if<std::string>(asked) : nullptr;
    if (dtype && *dtype == name_of(type_of(i))) at.fail(what, "give another dtype");
    at.fail(fmt::format("{} ({})", what, def.types));  // the bug is in the inference function of the op
}

std::string wrong_operands(const KernelSpec& spec, std::string_view no_f64) {
    const OpDef* const def = find_op_def(spec.op);
    if (!def) return "";
    const auto wrong = [&](const std::string& what) { return fmt::format("op {}: {}", spec.op, what); };
    if (def->types.empty()) return wrong("it has no kernel");
    if (spec.attributes.flag("accumulate") && def->accumulates.empty()) return wrong("it cannot accumulate");
    const Sides sides(def->types);
    const size_t inputs = spec.inputs.size();
    const auto in = letters_of(sides.inputs, inputs), out = letters_of(sides.outputs, spec.outputs.size());
    if (!in) return wrong(fmt::format("got {} operands, expected ({})", inputs, fmt::join(def->operands, ", ")));
    if (!out)
        return wrong(
            fmt::format("got {} outputs, expected {} ({})", spec.outputs.size(), counts(sides.outputs), def->types));
    const auto operand = [&](size_t i) -> const TensorType& {
        return i < inputs ? spec.inputs[i] : spec.outputs[i - inputs];
    };
    const auto type_of = [&](size_t i) { return operand(i).dtype; };
    const std::string letters = *in + *out;
    const auto said = [&](size_t i) { return operand_name(*def, i, inputs) + " is " + operand(i).text(); };
    if (const auto misfit = find_misfit(letters, type_of, true)) {
        const size_t i = misfit->operand;
        const std::string meant = expected(*def, letters[i], *misfit, type_of, inputs);
        return wrong(fmt::format("{}, expected {} ({})", said(i), meant, def->types));
    }
    for (size_t i = 0; i < letters.size() && !no_f64.empty(); ++i)
        if (type_of(i) == DType::f64 && of_any_type.find(letters[i]) == std::string_view::npos)
            return wrong(fmt::format("{}: {}", said(i), no_f64));
    return "";
}

}  // namespace orrery
