#ifdef ORRERY_CUDNN
#include "kernels/cuda/dnn_graph.h"

#include "kernels/cuda/check.h"

namespace orrery::kernels::cuda {

DnnDescriptor::DnnDescriptor(cudnnBackendDescriptorType_t type) {
    check_dnn(cudnnBackendCreateDescriptor(type, &made_), "cuDNN descriptor");
}

DnnDescriptor::~DnnDescriptor() {
    if (made_ != nullptr) cudnnBackendDestroyDescriptor(made_);
}

void DnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, i64 count,
                        const void* values) {
    check_dnn(cudnnBackendSetAttribute(made_, name, type, count, values), "cuDNN attribute");
}

void DnnDescriptor::descriptor(cudnnBackendAttributeName_t name, const DnnDescriptor& value) {
    one(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.made_);
}

void DnnDescriptor::finalize() { check_dnn(cudnnBackendFinalize(made_), "cuDNN graph"); }

DnnShape dense_shape(i64 a, i64 b, i64 c, i64 d) { return {{a, b, c, d}, {b * c * d, c * d, d, 1}}; }

DnnDescriptor& DnnGraph::made(cudnnBackendDescriptorType_t type) {
    descriptors_.push_back(std::make_unique<DnnDescriptor>(type));
    return *descriptors_.back();
}

DnnTensor DnnGraph::tensor(i64 id, const DnnShape& shape, cudnnDataType_t type, bool inner, bool by_value) {
    DnnDescriptor& t = made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    t.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape.size);
    t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape.step);
    t.one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    t.one(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, i64{16});
    t.one(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, inner);
    t.one(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    t.finalize();
    return &t;
}

DnnTensor DnnGraph::operand(i64 id, const DnnShape& shape, cudnnDataType_t type) {
    return tensor(id, shape, type, false, false);
}

DnnTensor DnnGraph::scalar(i64 id) { return tensor(id, dense_shape(1, 1, 1, 1), CUDNN_DATA_FLOAT, false, true); }

DnnTensor DnnGraph::inner(const DnnShape& shape, cudnnDataType_t type) {
    return tensor(next_++, shape, type, true, false);
}

void DnnGraph::pointwise(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y, cudnnDataType_t compute,
                         DnnTensor t, i64 axis) {
    DnnDescriptor& what = made(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    what.one(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    what.one(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
    if (axis >= 0) what.one(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    what.finalize();
    DnnDescriptor& operation = made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x);
    if (b != nullptr) operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    if (t != nullptr) operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t);
    operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y);
    operation.finalize();
    operations_.push_back(operation.get());
}

void DnnGraph::matmul(DnnTensor a, DnnTensor b, DnnTensor c) {
    DnnDescriptor& what = made(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    what.one(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    what.finalize();
    DnnDescriptor& operation = made(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.descriptor(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a);
    operation.descriptor(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b);
    operation.descriptor(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c);
    operation.descriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
    operation.finalize();
    operations_.push_back(operation.get());
}

void DnnGraph::reduce(cudnnReduceTensorOp_t op, DnnTensor x, DnnTensor y, [[maybe_unused]] bool fixed) {
    DnnDescriptor& what = made(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    what.one(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    what.one(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
#if CUDNN_VERSION >= 91900
    if (fixed) what.one(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, true);
#endif
    what.finalize();
    DnnDescriptor& operation = made(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x);
    operation.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y);
    operation.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    operation.finalize();
    operations_.push_back(operation.get());
}

void DnnGraph::reshape(DnnTensor x, DnnTensor y) {
    DnnDescriptor& operation = made(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.descriptor(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x);
    operation.descriptor(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y);
    operation.finalize();
    operations_.push_back(operation.get());
}

namespace {

/// Whether an engine says that repetitions may differ.
bool wavers(const DnnDescriptor& config) {
    DnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t got = engine.get();
    i64 count = 0;
    check_dnn(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &count, &got),
              "cuDNN engine");
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    check_dnn(cudnnBackendGetAttribute(got, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
              "cuDNN engine");
    for (i64 i = 0; i < count; ++i) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
    }
    return false;
}

}  // namespace

bool DnnGraph::plan_with(cudnnHandle_t handle, const DnnDescriptor& config, bool deterministic) {
    try {
        if (deterministic && wavers(config)) return false;
        auto plan = std::make_unique<DnnDescriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan->one(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
        plan->descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
        plan->finalize();
        i64 count = 0;
        check_dnn(cudnnBackendGetAttribute(plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                           &count, &workspace_),
                  "cuDNN workspace");
        plan_ = std::move(plan);
        return true;
    } catch (const Failure&) {
        return false;  // the next one may do
    }
}

void DnnGraph::build(cudnnHandle_t handle, bool deterministic) {
    DnnDescriptor& graph = made(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<i64>(operations_.size()),
              operations_.data());
    graph.one(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    graph.finalize();
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        DnnDescriptor& heuristics = made(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        heuristics.descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
        heuristics.one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
        heuristics.finalize();
        constexpr i64 most = 16;
        std::vector<std::unique_ptr<DnnDescriptor>> configs;
        cudnnBackendDescriptor_t raw[most];
        for (auto& r : raw) {
            configs.push_back(std::make_unique<DnnDescriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
            r = configs.back()->get();
        }
        i64 count = 0;
        check_dnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, raw),
                  "cuDNN heuristics");
        for (i64 i = 0; i < count && i < most; ++i) {
            if (plan_with(handle, *configs[static_cast<size_t>(i)], deterministic)) return;
        }
    }
    throw Failure(deterministic ? "cuDNN has no engine that repeats its bits" : "cuDNN has no engine");
}

void DnnGraph::run(cudnnHandle_t handle, const std::vector<std::pair<i64, const void*>>& operands,
                   void* workspace) const {
    std::vector<i64> ids;
    std::vector<const void*> addresses;
    for (const auto& [id, address] : operands) {
        ids.push_back(id);
        addresses.push_back(address);
    }
    DnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const auto n = static_cast<i64>(ids.size());
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, addresses.data());
    pack.one(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.finalize();
    check_dnn(cudnnBackendExecute(handle, plan_->get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace orrery::kernels::cuda
#endif
