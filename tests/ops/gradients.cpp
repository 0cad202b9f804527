// Every gradient of every sample against central differences.
#include <algorithm>

#include "chosen.h"
#include "gradient_case.h"

using namespace orrery;
using namespace orrery::op_tests;
using orrery::test::GradientCase;

namespace {

/// The op of a call in a case, over params and data; its outputs.
std::vector<ValueId> place(GradientCase& c, const Call& call) {
    std::vector<ValueId> operands;
    const OpSample& sample = call.sample;
    for (size_t i = 0; i < sample.operands.size(); ++i) {
        const TensorType& type = sample.operands[i];
        const auto draw = i < sample.draws.size() ? sample.draws[i] : std::nullopt;
        const auto dims = i < sample.dims.size() ? sample.dims[i] : std::vector<std::string>();
        operands.push_back(is_float(type.dtype) ? c.param(type.shape, draw, dims) : c.data(type, draw, dims));
    }
    return c.add(call.def->name, operands, sample.attributes);
}

bool constant(const OpDef& def, size_t output) {
    return std::find(def.constant_outputs.begin(), def.constant_outputs.end(), static_cast<int>(output)) !=
           def.constant_outputs.end();
}

/// The outputs that pass a gradient on. One that is refused, as statistics are, says so with the op's name.
std::vector<size_t> readable(const Call& call) {
    std::vector<size_t> open;
    GradientCase probe(false);
    const std::vector<ValueId> outputs = place(probe, call);
    for (size_t o = 0; o < outputs.size() && call.sample.derivative; ++o) {
        if (!is_float(probe.type(outputs[o]).dtype) || constant(*call.def, o)) continue;
        GradientCase c(false);
        c.total(place(c, call)[o]);
        const std::string why = c.refused();
        INFO("output " << o << ": " << why);
        if (why.empty())
            open.push_back(o);
        else
            CHECK(why.find(call.def->name) != std::string::npos);
    }
    return open;
}

/// Outputs that are constants for the gradient do not change with any operand.
void check_constants(const Call& call) {
    for (const int output : call.def->constant_outputs) {
        GradientCase c(false);
        const std::vector<ValueId> made = place(c, call);
        if (static_cast<size_t>(output) >= made.size()) continue;
        if (!is_float(c.type(made[static_cast<size_t>(output)]).dtype)) continue;
        INFO("output " << output << ", a constant");
        c.total(made[static_cast<size_t>(output)]);
        CHECK(c.steepest() == 0);
    }
}

/// False for a form of the op that only runs forward, and says so.
bool check_gradients(const Call& call) {
    const std::vector<size_t> open = readable(call);
    if (open.empty()) return false;
    int found = 0;
    for (const bool inside : {false, true}) {
        INFO((inside ? "inside of a program" : "of params"));
        const auto read = [&](const std::vector<size_t>& outputs, bool weighed) {
            INFO(outputs.size() << " outputs from " << outputs[0] << (weighed ? ", weighed" : ", summed"));
            GradientCase c(inside);
            const std::vector<ValueId> made = place(c, call);
            for (const size_t o : outputs) weighed ? c.weigh(made[o]) : c.total(made[o]);
            found += c.check();
        };
        for (const size_t o : open) {
            read({o}, true);
            read({o}, false);
        }
        if (open.size() > 1) read(open, true);
    }
    CHECK(found > 0);
    return true;
}

}  // namespace

TEST_CASE("every op's gradient equals central differences") {
    for (const OpDef* def : chosen()) {
        if (def->gradient == nullptr) continue;
        DYNAMIC_SECTION(def->name) {
            int checked = 0;
            for (const Call& call : calls_of(*def)) {
                const auto& types = call.sample.operands;
                if (std::none_of(types.begin(), types.end(), [](const TensorType& t) { return is_float(t.dtype); }))
                    continue;
                INFO(call.text());
                checked += check_gradients(call);
                check_constants(call);
            }
            CHECK(checked > 0);
        }
    }
}
