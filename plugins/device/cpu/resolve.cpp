#include "resolve.h"

#include <algorithm>
#include <cassert>
#include <sstream>

namespace orrery::cpu_device {

int64_t Request::offset(size_t dim) const {
    const std::vector<int64_t> offsets = spec.attributes.integers("offset");
    return dim < offsets.size() ? offsets[dim] : 0;
}

bool Request::erf() const {
    const std::string approx = spec.attributes.text("approx", "tanh");
    if (approx != "tanh" && approx != "erf") refuse("approx is \"tanh\" or \"erf\", found \"" + approx + "\"");
    return approx == "erf";
}

void Request::refuse(const std::string& why) const {
    std::string text = "device cpu: " + spec.op + "(";
    for (size_t i = 0; i < spec.inputs.size(); ++i) text += (i != 0 ? ", " : "") + spec.inputs[i].text();
    text += ") -> (";
    for (size_t i = 0; i < spec.outputs.size(); ++i) text += (i != 0 ? ", " : "") + spec.outputs[i].text();
    throw Error(text + "): " + why);
}

kernels::Type type_of(DType type) {
    switch (type) {
        case DType::f32: return kernels::Type::f32;
        case DType::f64: return kernels::Type::f64;
        case DType::bf16: return kernels::Type::bf16;
        case DType::f16: return kernels::Type::f16;
        case DType::i32: return kernels::Type::i32;
        case DType::u32: return kernels::Type::u32;
        case DType::u8: return kernels::Type::u8;
        // Only moved, never computed with: any type of the same width does.
        case DType::i64: return kernels::Type::f64;
        case DType::u16: return kernels::Type::f16;
    }
    return kernels::Type::f32;
}

int64_t cols_of(const TensorType& type) { return type.shape.empty() ? 1 : type.shape.back(); }

int64_t rows_of(const TensorType& type) {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < type.shape.size(); ++d) rows *= type.shape[d];
    return rows;
}

namespace {

/// Checks operands against the letters of a rule.
class Check {
public:
    Check(const Request& request, bool reference) : request_(request), reference_(reference) {}

    void run(const char* operands) {
        std::istringstream words(operands);
        const std::vector<TensorType>* side = &request_.spec.inputs;
        size_t at = 0;
        for (std::string word; words >> word;) {
            if (word == "->") {
                finish(*side, at, "inputs");
                side = &request_.spec.outputs;
                at = 0;
            } else if (word == "...") {
                at = side->size();
            } else if (at < side->size()) {
                letter(word[0], (*side)[at++].dtype);
            } else if (word.back() != '?') {
                request_.refuse("operands are missing, expected: " + std::string(operands));
            }
        }
        finish(*side, at, "outputs");
    }

private:
    void finish(const std::vector<TensorType>& side, size_t at, const char* what) const {
        if (at != side.size()) {
            request_.refuse("found " + std::to_string(side.size()) + " " + what + ", expected " + std::to_string(at));
        }
    }

    void letter(char code, DType type) {
        const bool floating = is_float(type) && (type != DType::f64 || reference_);
        bool good = true;
        switch (code) {
            case 'f': good = floating && (!seen_ || type == main_); break;
            case 'F': good = floating; break;
            case 's': good = type == DType::f32 || (type == DType::f64 && reference_); break;
            case 'i': good = type == DType::i32; break;
            case 'u': good = type == DType::u32; break;
            case 'b': good = type == DType::u8; break;
            case 'n': good = floating || type == DType::i32; break;
            default: break;
        }
        if (!good && type == DType::f64) request_.refuse("f64 needs device.cpu.reference = true");
        if (!good) request_.refuse(std::string(name_of(type)) + " does not fit here");
        if (code == 'f') {
            seen_ = true;
            main_ = type;
        }
    }

    const Request& request_;
    bool reference_;
    bool seen_ = false;
    DType main_ = DType::f32;
};

const Rule* find(const std::string& op) {
    for (std::span<const Rule> rules : {elementwise_rules(), contraction_rules(), row_rules(), shape_rules()}) {
        const auto at = std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) { return op == rule.op; });
        if (at != rules.end()) return &*at;
    }
    return nullptr;
}

}  // namespace

int64_t scratch_of(const KernelSpec& spec, const Launch& launch, int threads) {
    const Rule* rule = find(spec.op);
    if (rule == nullptr || !rule->scratch) return 0;
    kernels::Context counting(threads);
    counting.only_count();
    std::vector<Tensor> operands;
    // Never touched: the kernel is left where it asks for scratch.
    for (const auto* side : {&spec.inputs, &spec.outputs})
        for (const TensorType& type : *side) operands.push_back({&counting, type.dtype, type.shape});
    try {
        launch(counting, operands);
    } catch (const kernels::Context::Counted& counted) {
        return counted.bytes;
    }
    return 0;
}

Launch resolve(const KernelSpec& spec, const kernels::Kernels& kernels, bool reference) {
    const Request request{spec, kernels};
    const Rule* rule = find(spec.op);
    if (rule == nullptr) request.refuse("no such kernel");
    for (const std::vector<TensorType>* side : {&spec.inputs, &spec.outputs}) {
        for (const TensorType& type : *side) {
            if (type.shape.size() > kernels::max_dims) request.refuse("more than 8 dims");
        }
    }
    Check(request, reference).run(rule->operands);
    if (request.accumulate() && !rule->accumulates) request.refuse("cannot accumulate");
    return rule->make(request);
}

}  // namespace orrery::cpu_device
