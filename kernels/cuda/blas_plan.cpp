#include "kernels/cuda/blas_plan.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/cuda/check.h"
#include "kernels/cuda/rules.h"

namespace orrery::kernels::cuda {

namespace {

constexpr i64 most_workspace = i64{32} << 20;

cudaDataType_t data_type(Type type) {
    return type == Type::bf16 ? CUDA_R_16BF : type == Type::f16 ? CUDA_R_16F : CUDA_R_32F;
}

const char* name(Type type) { return type == Type::bf16 ? "bf16" : type == Type::f16 ? "f16" : "f32"; }

template <class V>
void set(const BlasProductDesc& desc, cublasLtMatmulDescAttributes_t attribute, const V& value) {
    check_blas(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value), "describing a product");
}

using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, GiveBack<cublasLtMatmulPreferenceDestroy>>;

template <class V>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const V& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
               "asking for algorithms");
}

/// A row-major matrix [rows, cols] as the column-major one [cols, rows].
BlasLayout layout(Type type, i64 rows, i64 cols, i64 batch, i64 stride) {
    cublasLtMatrixLayout_t handle = nullptr;
    check_blas(cublasLtMatrixLayoutCreate(&handle, data_type(type), static_cast<std::uint64_t>(cols),
                                          static_cast<std::uint64_t>(rows), cols),
               "describing a matrix");
    BlasLayout made(handle);
    const auto count = static_cast<std::int32_t>(batch);
    check_blas(cublasLtMatrixLayoutSetAttribute(handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
               "describing a matrix");
    check_blas(
        cublasLtMatrixLayoutSetAttribute(handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "describing a matrix");
    return made;
}

/// Epilogue of the column-major product, whose left operand is b: a bias runs along its rows.
cublasLtEpilogue_t epilogue_of(const BlasRequest& request) {
    switch (request.then) {
        case BlasThen::gelu: return CUBLASLT_EPILOGUE_GELU_BIAS;
        case BlasThen::gelu_aux: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
        case BlasThen::gelu_grad: return CUBLASLT_EPILOGUE_DGELU;
        case BlasThen::bias_grad: return CUBLASLT_EPILOGUE_BGRADA;
        case BlasThen::nothing: break;
    }
    return request.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// Memory during a search; null when there is none.
class Temporary {
public:
    explicit Temporary(i64 bytes) {
        if (cudaMalloc(&data, static_cast<size_t>(bytes > 0 ? bytes : 1)) != cudaSuccess) {
            data = nullptr;
            cudaGetLastError();
        }
    }
    ~Temporary() { cudaFree(data); }
    Temporary(const Temporary&) = delete;
    Temporary& operator=(const Temporary&) = delete;
    void* data = nullptr;
};

using Event = std::unique_ptr<CUevent_st, GiveBack<cudaEventDestroy>>;

Event event() {
    cudaEvent_t made = nullptr;
    check(cudaEventCreate(&made), "timing a product");
    return Event(made);
}

/// Random numbers in [-1, 1), because products of zeros run faster than real ones.
void randomize(Context& context, const Temporary& to, Type type, i64 n, const Temporary& seed) {
    Call call(&context, context.stream(), context.chip().multiprocessors);
    table().random(call, Out(to.data, type), {Shape(&n, 1)}, Draw::uniform, 1, 1,
                   static_cast<const std::uint32_t*>(seed.data));
}

}  // namespace

std::string BlasRequest::key() const {
    const Matmul& s = sizes;
    std::string text = std::to_string(s.batch) + "x" + std::to_string(s.m) + "x" + std::to_string(s.n) + "x" +
                       std::to_string(s.k) + " " + name(in) + " " + name(y) + " " + (s.trans_a ? "t" : "n") +
                       (s.trans_b ? "t" : "n");
    if (s.shared_b) text += " shared";
    if (s.accumulate) text += " add";
    if (bias) text += " bias";
    if (then == BlasThen::gelu_aux) text += " gelu";
    if (then == BlasThen::gelu) text += " gelu alone";
    if (then == BlasThen::gelu_grad) text += " gelu_grad";
    if (then == BlasThen::bias_grad) text += " bias_grad";
    if (tf32) text += " tf32";
    return text;
}

bool BlasOperands::aligned() const {
    for (const void* p : {a, b, bias, static_cast<const void*>(y), pre}) {
        if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) return false;
    }
    return true;
}

std::shared_ptr<BlasPlan> BlasPlan::shared(Context& context, const BlasRequest& request) {
    const std::string order = context.deterministic ? "" : " any order";
    return context.keep<BlasPlan>("product " + request.key() + order, [&] { return new BlasPlan(context, request); });
}

BlasPlan::BlasPlan(Context& context, const BlasRequest& request) : request_(request) {
    const Matmul& s = request.sizes;
    const bool fast = request.in == Type::f32 && request.tf32;
    cublasLtMatmulDesc_t product = nullptr;
    check_blas(cublasLtMatmulDescCreate(&product, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing a product");
    product_.reset(product);
    const cublasOperation_t straight = CUBLAS_OP_N, turned = CUBLAS_OP_T;
    set(product_, CUBLASLT_MATMUL_DESC_TRANSA, s.trans_b ? turned : straight);
    set(product_, CUBLASLT_MATMUL_DESC_TRANSB, s.trans_a ? turned : straight);
    set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(request));
    if (request.bias_pointer()) set(product_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(request.y));
    if (request.aux()) {
        set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.n);
        set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, data_type(request.y));
        set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, s.m * s.n);
    }
    left_ = s.trans_b ? layout(request.in, s.n, s.k, s.batch, s.shared_b ? 0 : s.k * s.n)
                      : layout(request.in, s.k, s.n, s.batch, s.shared_b ? 0 : s.k * s.n);
    right_ =
        s.trans_a ? layout(request.in, s.k, s.m, s.batch, s.m * s.k) : layout(request.in, s.m, s.k, s.batch, s.m * s.k);
    result_ = layout(request.y, s.m, s.n, s.batch, s.m * s.n);

    if (request.aux() || request.then == BlasThen::bias_grad) {
        why_not_any_ = "what the epilogue reads or writes must be aligned";
    } else {
        const std::vector<BlasChoice> at_any = candidates(context, false, 1, why_not_any_);
        has_any_ = !at_any.empty();
        if (has_any_) any_ = at_any[0];
    }
    choose_aligned(context);
}

void BlasPlan::choose_aligned(Context& context) {
    const BlasCache cache(context);
    if (cache.find(request_.key(), aligned_) && usable(context, aligned_)) {
        has_aligned_ = true;
        chosen_ = "as chosen before";
        return;
    }
    const std::vector<BlasChoice> found = candidates(context, true, 8, why_not_aligned_);
    has_aligned_ = has_any_ || !found.empty();
    if (!has_aligned_) return;
    const std::optional<BlasChoice> best = found.empty() ? any_ : fastest(context, found);
    aligned_ = best ? *best : found[0];
    chosen_ = (best ? "fastest of " : "untimed, first of ") + std::to_string(std::max<size_t>(found.size(), 1));
    BlasChoice agreed = cache.add(request_.key(), aligned_, best.has_value());
    if (usable(context, agreed)) aligned_ = agreed;
}

void BlasPlan::place(bool aligned) const {
    const auto* const placeholder = reinterpret_cast<const void*>(blas_placeholder(request_.y, aligned));
    if (request_.bias_pointer()) set(product_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, placeholder);
    if (request_.aux()) set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, placeholder);
}

bool BlasPlan::usable(Context& context, BlasChoice& choice) const {
    place(true);
    cublasLtMatmulHeuristicResult_t checked{};
    if (cublasLtMatmulAlgoCheck(context.blas(), product_.get(), left_.get(), right_.get(), result_.get(), result_.get(),
                                &choice.algorithm, &checked) != CUBLAS_STATUS_SUCCESS)
        return false;
    choice.workspace = static_cast<i64>(checked.workspaceSize);
    return true;
}

std::string BlasPlan::how() const {
    const auto because = [](const std::string& why) { return why.empty() ? "" : ": " + why; };
    if (!has_aligned_) return "own kernel: cuBLASLt has no algorithm for it" + because(why_not_aligned_);
    std::string text = "cuBLASLt, " + chosen_;
    if (!has_any_) text += "; ours where an operand is not aligned to 16 bytes" + because(why_not_any_);
    return text;
}

unsigned blas_reductions(Type result, bool deterministic) {
    unsigned schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (result == Type::f32 && !deterministic) schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    return schemes;
}

std::uintptr_t blas_placeholder(Type type, bool aligned) {
    return 4096 + (aligned ? 0 : static_cast<std::uintptr_t>(size_of(type)));
}

i64 BlasPlan::workspace() const { return std::max(aligned_.workspace, any_.workspace); }

std::vector<BlasChoice> BlasPlan::candidates(Context& context, bool aligned, int most, std::string& said) const {
    place(aligned);
    cublasLtMatmulPreference_t handle = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&handle), "asking for algorithms");
    const Preference preference(handle);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(most_workspace));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        std::uint32_t{blas_reductions(request_.y, context.deterministic)});
    const auto in = static_cast<std::uint32_t>(aligned ? 16 : size_of(request_.in));
    const auto out = static_cast<std::uint32_t>(aligned ? 16 : size_of(request_.y));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, in);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, in);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out);
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(context.blas(), product_.get(), left_.get(), right_.get(), result_.get(),
                                       result_.get(), handle, most, results.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS) {
        said = cublasLtGetStatusName(status);
        return {};
    }
    std::vector<BlasChoice> choices;
    for (int i = 0; i < count; ++i) {
        const auto& result = results[static_cast<size_t>(i)];
        if (result.state == CUBLAS_STATUS_SUCCESS)
            choices.push_back({result.algo, static_cast<i64>(result.workspaceSize)});
    }
    return choices;
}

cublasStatus_t BlasPlan::run_with(Context& context, const BlasChoice& choice, const BlasOperands& o, void* workspace) {
    if (request_.bias_pointer()) set(product_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
    if (request_.aux()) set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.pre);
    const float alpha = 1, beta = request_.sizes.accumulate ? 1 : 0;
    return cublasLtMatmul(context.blas(), product_.get(), &alpha, o.b, left_.get(), o.a, right_.get(), &beta, o.y,
                          result_.get(), o.y, result_.get(), &choice.algorithm, workspace,
                          static_cast<size_t>(choice.workspace), context.stream());
}

void BlasPlan::run(Context& context, const BlasOperands& operands, void* workspace) {
    check_blas(run_with(context, operands.aligned() ? aligned_ : any_, operands, workspace), "cublasLtMatmul");
}

float BlasPlan::seconds(Context& context, const BlasChoice& choice, const BlasOperands& o, void* workspace) {
    constexpr int repeats = 4;
    const Event begin = event(), end = event();
    float best = -1;
    for (int round = 0; round < 3; ++round) {  // the first round warms up
        check(cudaEventRecord(begin.get(), context.stream()), "timing a product");
        bool good = true;
        for (int i = 0; i < repeats; ++i)
            good = good && run_with(context, choice, o, workspace) == CUBLAS_STATUS_SUCCESS;
        check(cudaEventRecord(end.get(), context.stream()), "timing a product");
        check(cudaEventSynchronize(end.get()), "timing a product");
        if (!good) break;
        float now = 0;
        check(cudaEventElapsedTime(&now, begin.get(), end.get()), "timing a product");
        if (round > 0) best = best < 0 ? now : std::min(best, now);
    }
    return best;
}

std::optional<BlasChoice> BlasPlan::fastest(Context& context, const std::vector<BlasChoice>& candidates) {
    if (candidates.size() == 1) return candidates[0];
    const Matmul& s = request_.sizes;
    const i64 na = s.batch * s.m * s.k, nb = (s.shared_b ? 1 : s.batch) * s.k * s.n, ny = s.batch * s.m * s.n;
    i64 workspace = 0;
    for (const BlasChoice& choice : candidates) workspace = std::max(workspace, choice.workspace);
    const i64 in = size_of(request_.in), out = size_of(request_.y);
    const Temporary a(na * in), b(nb * in), y(ny * out), bias(s.n * out), pre(request_.aux() ? ny * out : 1),
        work(workspace), seed(4);
    for (const Temporary* t : {&a, &b, &y, &bias, &pre, &work, &seed}) {
        if (t->data == nullptr) return std::nullopt;
    }
    check(cudaMemsetAsync(seed.data, 7, 4, context.stream()), "filling operands");
    randomize(context, a, request_.in, na, seed);
    randomize(context, b, request_.in, nb, seed);
    randomize(context, bias, request_.y, s.n, seed);
    randomize(context, y, request_.y, ny, seed);
    if (request_.aux()) randomize(context, pre, request_.y, ny, seed);
    const BlasOperands operands{a.data, b.data, bias.data, y.data, pre.data};
    std::optional<BlasChoice> best;
    float least = -1;
    for (const BlasChoice& candidate : candidates) {
        const float time = seconds(context, candidate, operands, work.data);
        if (time > 0 && (least < 0 || time < least)) {
            least = time;
            best = candidate;
        }
    }
    return best;
}

}  // namespace orrery::kernels::cuda
