#include <algorithm>

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
    if (dim < 0 || dim >= dims) refuse("dim is out of range");
    return static_cast<size_t>(dim);
}

bool Request::erf() const {
    const std::string approx = spec.text("approx", "tanh");
    if (approx != "tanh" && approx != "erf") refuse("approx is \"tanh\" or \"erf\", found \"" + approx + "\"");
    return approx == "erf";
}

void Request::refuse(const std::string& why) const { throw Refused(spec.text() + ": " + why); }

namespace {

constexpr std::span<const KernelRule> (*const families[])() = {elementwise_rules, contraction_rules, row_rules,
                                                               index_rules,       code_rules,        shape_rules};
constexpr i64 most_elements = i64{1} << 40;

}  // namespace

const KernelRule* find_rule(std::string_view op) {
    for (const auto family : families) {
        const std::span<const KernelRule> rules = family();
        const auto at = std::find_if(rules.begin(), rules.end(), [&](const KernelRule& rule) { return op == rule.op; });
        if (at != rules.end()) return &*at;
    }
    return nullptr;
}

Launch resolve(const Spec& spec, const Target& target) {
    const Request request{spec, target};
    const KernelRule* rule = find_rule(spec.op);
    if (rule == nullptr) request.refuse("no such kernel");
    for (const std::vector<Operand>* side : {&spec.inputs, &spec.outputs}) {
        for (const Operand& operand : *side) {
            if (operand.shape.size() > static_cast<size_t>(max_dims)) request.refuse("more than 8 dims");
            if (operand.count() > most_elements) request.refuse("more than 2^40 elements");
        }
    }
    return rule->make(request);
}

std::vector<std::string> rule_ops() {
    std::vector<std::string> names;
    for (const auto family : families) {
        for (const KernelRule& rule : family()) names.emplace_back(rule.op);
    }
    return names;
}

}  // namespace orrery::kernels::rules
