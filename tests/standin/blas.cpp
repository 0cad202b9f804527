// cuBLASLt: products of column-major matrices with what kernels/cuda asks for behind them, written from its manual and
// not from its callers.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "kernels/types.h"
#include "standin/calls.h"
#include "standin/memory.h"

struct cublasLtContext {};

namespace orrery::standin {

namespace {

using kernels::bf16;
using kernels::f16;

struct Product : cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    int32_t turn_a = CUBLAS_OP_N, turn_b = CUBLAS_OP_N;
    int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    int32_t bias_type = -1;
    void* aux = nullptr;
    int64_t aux_ld = 0, aux_stride = 0;
    int32_t aux_type = -1;

    bool adds_bias() const { return epilogue & CUBLASLT_EPILOGUE_BIAS; }
    bool sums_a() const { return epilogue == CUBLASLT_EPILOGUE_BGRADA; }
    bool gelu() const { return epilogue == CUBLASLT_EPILOGUE_GELU_BIAS || keeps(); }
    bool keeps() const { return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS; }
    bool slopes() const { return epilogue == CUBLASLT_EPILOGUE_DGELU; }
    bool has_aux() const { return keeps() || slopes(); }
};

struct Layout : cublasLtMatrixLayoutOpaque_t {
    cudaDataType type = CUDA_R_32F;
    int64_t rows = 0, cols = 0, ld = 0, stride = 0;
    int32_t batch = 1;
};

struct Preference : cublasLtMatmulPreferenceOpaque_t {
    uint64_t most_workspace = 0;
    uint32_t reductions = 7, a = 256, b = 256, c = 256, d = 256;
};

/// What an algorithm's words say.
struct Algorithm {
    static constexpr uint64_t mark = 0x6f72726572790001;
    uint64_t mark_ = mark, id = 0, alignment = 0, workspace = 0;

    cublasLtMatmulAlgo_t words() const { return {{mark_, id, alignment, workspace}}; }
    static std::optional<Algorithm> of(const cublasLtMatmulAlgo_t& algorithm) {
        const auto& w = algorithm.data;
        if (w[0] != mark) return std::nullopt;
        return Algorithm{w[0], w[1], w[2], w[3]};
    }
};

size_t size_of(int type) { return type == CUDA_R_32F ? 4 : 2; }
bool aligned(const void* data, uint64_t to) { return reinterpret_cast<uintptr_t>(data) % to == 0; }

float load(const char* data, int type, int64_t i) {
    switch (type) {
        case CUDA_R_16BF: return to_float(reinterpret_cast<const bf16*>(data)[i]);
        case CUDA_R_16F: return to_float(reinterpret_cast<const f16*>(data)[i]);
        default: return reinterpret_cast<const float*>(data)[i];
    }
}

void store(char* data, int type, int64_t i, float x) {
    switch (type) {
        case CUDA_R_16BF: reinterpret_cast<bf16*>(data)[i] = kernels::to_bf16(x); return;
        case CUDA_R_16F: reinterpret_cast<f16*>(data)[i] = kernels::to_f16(x); return;
        default: reinterpret_cast<float*>(data)[i] = x;
    }
}

/// The tanh form, in f64.
double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
    const double inner = std::sqrt(2 / M_PI), t = std::tanh(inner * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner * (1 + 3 * 0.044715 * x * x);
}

/// A product with its addresses: D = epilogue(op(A) op(B) + beta D).
struct Run {
    Product desc;
    Layout a, b, d;
    const void *at_a, *at_b;
    void* at_d;
    float alpha, beta;

    int64_t m() const { return d.rows; }
    int64_t n() const { return d.cols; }
    int64_t k() const { return desc.turn_a == CUBLAS_OP_N ? a.cols : a.rows; }
    /// Addresses of bytes in place of those of the GPU, which must have all that is read and written.
    void reach();
    void operator()() const;

private:
    std::vector<float> packed(const Layout& x, const void* data, bool turned, int64_t batch) const;
    void one(int64_t batch) const;
};

size_t extent(const Layout& x) {
    const int64_t matrix = x.rows == 0 || x.cols == 0 ? 0 : (x.cols - 1) * x.ld + x.rows;
    return static_cast<size_t>(x.stride * (x.batch - 1) + matrix) * size_of(x.type);
}

void Run::reach() {
    at_a = kept(at_a, extent(a));
    at_b = kept(at_b, extent(b));
    at_d = kept(at_d, extent(d));
    if (desc.adds_bias() || desc.sums_a())
        desc.bias = kept(desc.bias, static_cast<size_t>(m()) * size_of(desc.bias_type));
    else
        desc.bias = nullptr;
    Layout aux = d;
    aux.ld = desc.aux_ld;
    aux.stride = desc.aux_stride;
    desc.aux = desc.has_aux() ? kept(desc.aux, extent(aux)) : nullptr;
}

/// One matrix as floats, [inner][outer]: the dim of D is the last.
std::vector<float> Run::packed(const Layout& x, const void* data, bool turned, int64_t batch) const {
    const int64_t outer = turned ? x.cols : x.rows, inner = turned ? x.rows : x.cols;
    const auto* const from = static_cast<const char*>(data) + static_cast<size_t>(batch * x.stride) * size_of(x.type);
    const bool rounds = desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    std::vector<float> all(static_cast<size_t>(outer * inner));
    for (int64_t i = 0; i < inner; ++i)
        for (int64_t o = 0; o < outer; ++o) {
            float value = load(from, x.type, turned ? o * x.ld + i : i * x.ld + o);
            if (rounds) value = std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x1000u) & 0xffffe000u);
            all[static_cast<size_t>(i * outer + o)] = value;
        }
    return all;
}

void Run::one(int64_t batch) const {
    const std::vector<float> left = packed(a, at_a, desc.turn_a == CUBLAS_OP_T, batch);
    const std::vector<float> right = packed(b, at_b, desc.turn_b == CUBLAS_OP_N, batch);
    auto* const out = static_cast<char*>(at_d) + static_cast<size_t>(batch * d.stride) * size_of(d.type);
    auto* const aux = static_cast<char*>(desc.aux) + static_cast<size_t>(batch * desc.aux_stride) * size_of(d.type);
    const auto* const bias = static_cast<const char*>(desc.bias);
    const int64_t rows = m(), cols = n(), depth = k();
    std::vector<float> sums(static_cast<size_t>(rows));
    for (int64_t j = 0; j < cols; ++j) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int64_t p = 0; p < depth; ++p) {
            const float by = right[static_cast<size_t>(p * cols + j)];
            const float* const column = left.data() + p * rows;
            for (int64_t i = 0; i < rows; ++i) sums[static_cast<size_t>(i)] += column[i] * by;
        }
        for (int64_t i = 0; i < rows; ++i) {
            float x = alpha * sums[static_cast<size_t>(i)];
            if (beta != 0) x += beta * load(out, d.type, j * d.ld + i);
            if (desc.adds_bias()) x += load(bias, desc.bias_type, i);
            if (desc.keeps()) store(aux, desc.aux_type, j * desc.aux_ld + i, x);
            if (desc.gelu()) x = static_cast<float>(gelu(x));
            if (desc.slopes()) x *= static_cast<float>(gelu_slope(load(aux, desc.aux_type, j * desc.aux_ld + i)));
            store(out, d.type, j * d.ld + i, x);
        }
    }
    if (!desc.sums_a()) return;
    for (int64_t i = 0; i < rows; ++i) {
        float sum = 0;
        for (int64_t p = 0; p < depth; ++p) sum += left[static_cast<size_t>(p * rows + i)];
        store(static_cast<char*>(const_cast<void*>(desc.bias)), desc.bias_type, i, sum);
    }
}

void Run::operator()() const {
    for (int64_t batch = 0; batch < d.batch; ++batch) one(batch);
}

Product& of(cublasLtMatmulDesc_t desc) { return *static_cast<Product*>(desc); }
Layout& of(cublasLtMatrixLayout_t layout) { return *static_cast<Layout*>(layout); }
Preference& of(cublasLtMatmulPreference_t preference) { return *static_cast<Preference*>(preference); }

/// Copies a value of exactly this size.
template <class T>
cublasStatus_t take(T& to, const void* value, size_t bytes) {
    if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/// Whether such matrices are multiplied at all: INVALID_VALUE where they do not fit, NOT_SUPPORTED where cuBLASLt's
/// table of types and epilogues has no such line.
cublasStatus_t judge(const Product& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    const auto shape = [](const Layout& x, int32_t turn) {
        return turn == CUBLAS_OP_N ? std::pair(x.rows, x.cols) : std::pair(x.cols, x.rows);
    };
    const auto [m, ka] = shape(a, p.turn_a);
    const auto [kb, n] = shape(b, p.turn_b);
    if (m != d.rows || n != d.cols || ka != kb || c.rows != d.rows || c.cols != d.cols || c.type != d.type)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a.batch != d.batch || b.batch != d.batch || c.batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
    for (const Layout* x : {&a, &b, &c, &d})
        if (x->rows <= 0 || x->cols <= 0 || x->ld < x->rows || x->batch < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const bool half = a.type != CUDA_R_32F;
    if (a.type != b.type || (d.type != a.type && d.type != CUDA_R_32F)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && half) return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((p.adds_bias() || p.sums_a()) && p.bias_type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((p.gelu() || p.slopes()) && (!half || d.type != a.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.has_aux() && (p.aux_type != d.type || p.aux_ld < d.rows || p.aux_ld % 8 != 0 || !aligned(p.aux, 16)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    // The epilogue sums one matrix A, not a batch of them.
    return p.sums_a() && d.batch > 1 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

/// Two that differ in their workspace for operands aligned to 16 bytes, another for f32 at any address, none for 16
/// bits there. All add in one order, so it does not matter which is the fastest.
std::vector<Algorithm> algorithms(const Layout& a, uint64_t alignment) {
    if (alignment >= 16) return {{.id = 1, .alignment = 16, .workspace = 4096}, {.id = 2, .alignment = 16}};
    if (a.type != CUDA_R_32F) return {};
    return {{.id = 3, .alignment = 4, .workspace = 1024}};
}

struct Status {
    cublasStatus_t status;
    const char* name;
};
constexpr Status statuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"},
};

}  // namespace

}  // namespace orrery::standin

using namespace orrery::standin;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
    for (const Status& one : statuses)
        if (one.status == status) return one.name;
    return "a status";
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "of the stand-in"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType scale) {
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    auto* const made = new Product{};
    made->compute = compute;
    *desc = made;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete &of(desc);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
    Product& p = of(desc);
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA: return take(p.turn_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB: return take(p.turn_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(p.epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(p.bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(p.bias_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return take(p.aux, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return take(p.aux_ld, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return take(p.aux_stride, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return take(p.aux_type, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
    auto* const made = new Layout{};
    made->type = type;
    made->rows = static_cast<int64_t>(rows);
    made->cols = static_cast<int64_t>(cols);
    made->ld = ld;
    *layout = made;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete &of(layout);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(of(layout).batch, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return take(of(layout).stride, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new Preference{};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete &of(preference);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
    Preference& p = of(preference);
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(p.most_workspace, value, bytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(p.reductions, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(p.a, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(p.b, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(p.c, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(p.d, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
    *count = 0;
    if (!handle || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t status = judge(of(desc), of(a), of(b), of(c), of(d));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const Preference& p = of(preference);
    for (const Algorithm& one : algorithms(of(a), std::min({p.a, p.b, p.c, p.d})))
        if (*count < wanted && one.workspace <= p.most_workspace)
            found[(*count)++] = {one.words(), one.workspace, CUBLAS_STATUS_SUCCESS, 1, {}};
    return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
    const cublasStatus_t status = judge(of(desc), of(a), of(b), of(c), of(d));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const std::optional<Algorithm> known = Algorithm::of(*algorithm);
    if (!known) return CUBLAS_STATUS_INVALID_VALUE;
    *result = {*algorithm, known->workspace, CUBLAS_STATUS_SUCCESS, 1, {}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    if (!handle || c != d) return CUBLAS_STATUS_INVALID_VALUE;
    const cublasStatus_t status = judge(of(desc), of(a_layout), of(b_layout), of(c_layout), of(d_layout));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const std::optional<Algorithm> how = Algorithm::of(*algorithm);
    if (!how || workspace_bytes < how->workspace) return CUBLAS_STATUS_INVALID_VALUE;
    if (how->workspace > 0 && !aligned(workspace, 16)) return CUBLAS_STATUS_INVALID_VALUE;
    const Product& p = of(desc);
    for (const void* data : {a, b, static_cast<const void*>(d), p.bias_type >= 0 ? p.bias : nullptr})
        if (!aligned(data, how->alignment)) return CUBLAS_STATUS_INVALID_VALUE;
    float by = 0, keep = 0;
    std::memcpy(&by, alpha, sizeof by);
    std::memcpy(&keep, beta, sizeof keep);
    const auto make = [&]() -> std::function<void()> {
        Run run{p, of(a_layout), of(b_layout), of(d_layout), a, b, d, by, keep};
        run.reach();
        // Whoever keeps something in the workspace loses it.
        return [run, size = how->workspace, room = kept(workspace, how->workspace)] {
            if (size > 0) std::memset(room, 0xff, size);
            run();
        };
    };
    return launch(stream, make) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
