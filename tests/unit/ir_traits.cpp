// Traits of OpDef agree with each other, and defaults of attributes with those that kernels assume.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "folders.h"
#include "ir/op.h"

using namespace orrery;

namespace {

const AttributeDef* attribute(const OpDef& def, std::string_view name) {
    const auto found = std::find_if(def.attributes.begin(), def.attributes.end(),
                                    [&](const AttributeDef& a) { return a.name == name; });
    return found == def.attributes.end() ? nullptr : &*found;
}

bool takes(const OpDef& def, int operand) {
    return operand >= 0 && static_cast<size_t>(operand) < def.operands.size() &&
           !def.operands[static_cast<size_t>(operand)].ends_with('?');
}

/// What is wrong with the traits of an op.
std::vector<std::string> untrue_of(const OpDef& def) {
    std::vector<std::string> wrong;
    const auto want = [&](bool good, const char* what) {
        if (!good) wrong.emplace_back(what);
    };
    const auto needs = [&](const char* name) { return attribute(def, name) && attribute(def, name)->required; };
    want(def.alias == (def.moves == Moves::renames), "an alias is what renames");
    want(!is_view(def) || def.operands.size() == 1, "a view has one operand");
    want(def.moves != Moves::permutes || needs("perm"), "permutes by `perm`");
    want(def.moves != Moves::cuts || (needs("dim") && needs("start")), "cuts by `dim` and `start`");
    want(def.moves != Moves::joins || (needs("dim") && def.operands.size() == 1), "joins its x... along `dim`");
    want(def.moves == Moves::no || !def.casts, "a cast changes elements");
    want(!def.casts || (def.operands.size() == 1 && needs("dtype")), "casts its operand to `dtype`");
    want(!def.reduces || def.operands.size() == 1, "reduces its operand");
    want(!def.combines || def.operands.size() == 2, "combines two");
    want(!def.loss || (def.looks_up && attribute(def, "grad")), "a loss looks targets up and has `grad`");
    if (def.looks_up)
        want(takes(def, def.looks_up->ids) &&
                 (def.looks_up->rows.output ? def.looks_up->rows.index >= 0 : takes(def, def.looks_up->rows.index)),
             "looks up in operands that it takes");
    if (def.looks_up && !def.looks_up->dim_attribute.empty()) {
        const AttributeDef* const dim = attribute(def, def.looks_up->dim_attribute);
        want(dim && (dim->required || dim->fallback), "looks up in a dim that an attribute always says");
    }
    if (def.choice) {
        std::istringstream outputs{std::string(def.types.substr(def.types.find("->") + 2))};
        const std::vector<std::string> types{std::istream_iterator<std::string>(outputs), {}};
        const auto chosen = static_cast<size_t>(def.choice->output);
        want(def.choice->differences && chosen < types.size() && (types[chosen] == "i" || types[chosen] == "b"),
             "chooses an output of integers");
    }
    for (int i : def.multiplies) want(takes(def, i), "multiplies an operand that it takes");
    want(def.swaps.size() <= def.operands.size(), "swaps dims of operands that it takes");
    for (std::string_view flag : def.swaps)
        want(attribute(def, flag) && attribute(def, flag)->kind == AttributeDef::Kind::flag, "swaps by a flag");
    for (std::string_view part : def.fused_of)
        want(find_op_def(part) && part != def.name, "is fused of other ops of the table");
    want(def.quantized.empty() || (find_op_def(def.quantized) && find_op_def(def.quantized)->elsewhere),
         "has an 8-bit form that runs elsewhere");
    want(!def.elsewhere || def.samples == nullptr, "runs elsewhere, and so has no samples");
    want(def.kernel.empty() || (find_op_def(def.kernel) && def.kernel != def.name), "runs as another op of the table");
    return wrong;
}

}  // namespace

TEST_CASE("traits of ops agree with operands, attributes and each other") {
    for (const OpDef* def : own_ops())
        for (const std::string& what : untrue_of(*def)) FAIL_CHECK(def->name << ": " << what);
    OpDef broken = op_def("slice");
    CHECK(untrue_of(broken).empty());
    broken.moves = Moves::renames;
    broken.multiplies = {1};
    broken.fused_of = {"slize"};
    broken.choice = FloatChoice{1, {0, 0}, op_def("less").choice->differences};
    CHECK(untrue_of(broken).size() == 4);
}

TEST_CASE("kernels assume the defaults that ops declare") {
    static const std::regex call(R"re(spec\.(number|integer|text)\("(\w+)", "?([-\w.]+)"?\))re");
    size_t compared = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(in_source("kernels"))) {
        if (entry.path().extension() != ".cpp") continue;
        std::ifstream file(entry.path());
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        for (auto at = std::sregex_iterator(text.begin(), text.end(), call); at != std::sregex_iterator(); ++at) {
            const std::string key = (*at)[2], assumed = (*at)[3];
            bool declared = false, equal = false;
            for (const OpDef* def : own_ops()) {
                const AttributeDef* const a = attribute(*def, key);
                if (!a || !a->fallback) continue;
                declared = true;
                if (const auto* word = std::get_if<std::string>(&*a->fallback)) equal |= *word == assumed;
                if (const auto* whole = std::get_if<int64_t>(&*a->fallback)) equal |= *whole == std::stoll(assumed);
                if (const auto* real = std::get_if<double>(&*a->fallback)) equal |= *real == std::stod(assumed);
            }
            compared += declared;
            if (declared && !equal)
                FAIL_CHECK(entry.path().filename()
                           << " assumes " << key << " = " << assumed << ", no op declares that");
        }
    }
    CHECK(compared >= 12);
}
