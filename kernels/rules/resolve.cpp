#include <algorithm>
#include <sstream>

#include "kernels/rules/rules.h"

namespace orrery::kernels::rules {

bool Request::has(std::string_view attribute) const {
    return std::any_of(spec.attributes.begin(), spec.attributes.end(),
                       [&](const auto& entry) { return entry.first == attribute; });
}

double Request::given(std::string_view attribute) const {
    if (!has(attribute)) refuse("the attribute \"" + std::string(attribute) + "\" is missing");
    return spec.number(attribute);
}

i64 Request::offset(size_t dim) const {
    const Sizes offsets = spec.integers("offset");
    return dim < offsets.size() ? offsets[dim] : 0;
}

size_t Request::dim(size_t rank) const {
    const auto dims = static_cast<i64>(rank);
    i64 dim = spec.integer("dim");
    if (dim < 0) dim += dims;
    if (dim < 0 || dim >= dims) refuse("no such dim");
    return static_cast<size_t>(dim);
}

bool Request::erf() const {
    const std::string approx = spec.text("approx", "tanh");
    if (approx != "tanh" && approx != "erf") refuse("approx is \"tanh\" or \"erf\", found \"" + approx + "\"");
    return approx == "erf";
}

void Request::refuse(const std::string& why) const { throw Refused(spec.text() + ": " + why); }

namespace {

constexpr std::span<const Signature> (*const families[])() = {elementwise_rules, contraction_rules, row_rules,
                                                              index_rules, shape_rules};
constexpr i64 most_elements = i64{1} << 40;

/// Checks operands against the letters of a rule.
class Check {
public:
    explicit Check(const Request& request) : request_(request) {}

    void run(const char* operands) {
        std::istringstream words(operands);
        const std::vector<Operand>* side = &request_.spec.inputs;
        size_t at = 0;
        for (std::string word; words >> word;) {
            if (word == "->") {
                finish(*side, at, "inputs");
                side = &request_.spec.outputs;
                at = 0;
            } else if (word == "...") {
                at = side->size();
            } else if (at < side->size()) {
                letter(word[0], (*side)[at++]);
            } else if (word.back() != '?') {
                request_.refuse("operands are missing, expected: " + std::string(operands));
            }
        }
        finish(*side, at, "outputs");
    }

private:
    void finish(const std::vector<Operand>& side, size_t at, const char* what) const {
        if (at != side.size()) {
            request_.refuse("found " + std::to_string(side.size()) + " " + what + ", expected " + std::to_string(at));
        }
    }

    void letter(char code, const Operand& operand) {
        const Type type = operand.type;
        const char* const no_f64 = request_.target.no_f64;
        const bool wide = type == Type::f64 && !no_f64;
        const bool floating =
            (type == Type::f32 || type == Type::bf16 || type == Type::f16 || wide) && !operand.moved_only;
        bool good = true;
        switch (code) {
            case 'f': good = floating && (!seen_ || type == main_); break;
            case 'F': good = floating; break;
            case 's': good = type == Type::f32 || (wide && !operand.moved_only); break;
            case 'i': good = type == Type::i32; break;
            case 'u': good = type == Type::u32; break;
            case 'b': good = type == Type::u8; break;
            case 'n': good = floating || type == Type::i32; break;
            default: break;
        }
        if (!good && type == Type::f64 && no_f64 && !operand.moved_only) request_.refuse(no_f64);
        if (!good) request_.refuse("an operand has a type that does not fit here");
        if (code == 'f') {
            seen_ = true;
            main_ = type;
        }
    }

    const Request& request_;
    bool seen_ = false;
    Type main_ = Type::f32;
};

}  // namespace

const Signature* find_signature(std::string_view op) {
    for (const auto family : families) {
        const std::span<const Signature> rules = family();
        const auto at = std::find_if(rules.begin(), rules.end(), [&](const Signature& rule) { return op == rule.op; });
        if (at != rules.end()) return &*at;
    }
    return nullptr;
}

Launch resolve(const Spec& spec, const Target& target) {
    const Request request{spec, target};
    const Signature* rule = find_signature(spec.op);
    if (rule == nullptr) request.refuse("no such kernel");
    for (const std::vector<Operand>* side : {&spec.inputs, &spec.outputs}) {
        for (const Operand& operand : *side) {
            if (operand.shape.size() > static_cast<size_t>(max_dims)) request.refuse("more than 8 dims");
            if (operand.count() > most_elements) request.refuse("more than 2^40 elements");
        }
    }
    Check(request).run(rule->operands);
    if (request.accumulate() && !rule->accumulates) request.refuse("cannot accumulate");
    return rule->make(request);
}

std::vector<std::string> rule_ops() {
    std::vector<std::string> names;
    for (const auto family : families) {
        for (const Signature& rule : family()) names.emplace_back(rule.op);
    }
    return names;
}

}  // namespace orrery::kernels::rules
