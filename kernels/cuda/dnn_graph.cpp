#ifdef ORRERY_CUDNN
#include "kernels/cuda/dnn_graph.h"

#include <algorithm>

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

void DnnGraph::reduce(cudnnReduceTensorOp_t op, DnnTensor x, DnnTensor y) {
    DnnDescriptor& what = made(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    what.one(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    what.one(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
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

/// Properties that an engine reports.
struct Engine {
    i64 number = -1;
    bool wavers = false;  ///< repetitions may differ
    std::string notes;
};

/// cuDNN's last message; reading it clears it.
std::string last_words() {
    char message[512] = "";
    cudnnGetLastErrorString(message, sizeof message);
    std::string text = message[0] ? ": " + std::string(message) : "";
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

Engine engine_of(const DnnDescriptor& config) {
    DnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t got = engine.get();
    i64 count = 0;
    check_dnn(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &count, &got),
              "cuDNN engine");
    Engine said;
    check_dnn(cudnnBackendGetAttribute(got, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &said.number),
              "cuDNN engine");
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    check_dnn(cudnnBackendGetAttribute(got, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                       CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
              "cuDNN engine");
    for (i64 i = 0; i < count; ++i) {
        said.wavers = said.wavers || notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        said.notes += (i > 0 ? "," : ", notes ") + std::to_string(static_cast<int>(notes[i]));
    }
    return said;
}

}  // namespace

bool DnnGraph::plan_with(const DnnTarget& target, const DnnWish& wish, std::unique_ptr<DnnDescriptor> config) {
    std::string name = "an engine";
    try {
        const Engine engine = engine_of(*config);
        name = "engine " + std::to_string(engine.number) + engine.notes;
        if (wish.repeats && engine.wavers) throw Failure("says that repetitions may differ");
        auto plan = std::make_unique<DnnDescriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan->descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *config);
        if (chip_) {
#if CUDNN_VERSION >= 90800
            plan->descriptor(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *chip_);
#endif
        } else {
            plan->one(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
        }
        plan->finalize();
        i64 count = 0, workspace = 0;
        check_dnn(cudnnBackendGetAttribute(plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                           &count, &workspace),
                  "cuDNN workspace");
        if (workspace > wish.most_workspace)
            throw Failure("wants a workspace of " + std::to_string(workspace) + " bytes, the most is " +
                          std::to_string(wish.most_workspace));
        workspace_ = workspace;
        config_ = std::move(config);
        plan_ = std::move(plan);
        chosen_ = name + ", workspace " + std::to_string(workspace);
        return true;
    } catch (const Failure& failure) {  // try the next one
        rejected_ += (rejected_.empty() ? "" : "; ") + name + ": " + failure.what();
        return false;
    }
}

bool DnnGraph::from_engine(const DnnTarget& target, const DnnWish& wish) {
    auto config = std::make_unique<DnnDescriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    try {
        DnnDescriptor& engine = made(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        engine.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, *graph_);
        engine.one(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, i64{wish.engine});
#if CUDNN_VERSION >= 90800
        if (chip_) engine.descriptor(CUDNN_ATTR_ENGINE_DEVICEPROP, *chip_);
#endif
        engine.finalize();
        std::vector<cudnnBackendDescriptor_t> choices;
        for (const auto& [knob, value] : wish.knobs) {
            DnnDescriptor& choice = made(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
            choice.one(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, knob);
            choice.one(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value);
            choice.finalize();
            choices.push_back(choice.get());
        }
        config->descriptor(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
        config->set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<i64>(choices.size()),
                    choices.data());
        config->finalize();
    } catch (const Failure& failure) {
        rejected_ += "engine " + std::to_string(wish.engine) + ": " + failure.what();
        return false;
    }
    return plan_with(target, wish, std::move(config));
}

bool DnnGraph::from_heuristics(const DnnTarget& target, const DnnWish& wish, cudnnBackendHeurMode_t mode) {
    constexpr i64 most = 16;
    std::vector<std::unique_ptr<DnnDescriptor>> configs;
    cudnnBackendDescriptor_t raw[most];
    i64 count = 0;
    last_words();
    try {
        DnnDescriptor& heuristics = made(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        heuristics.descriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph_);
        heuristics.one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
#if CUDNN_VERSION >= 90800
        if (chip_) heuristics.descriptor(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *chip_);
#endif
        heuristics.finalize();
        for (auto& r : raw) {
            configs.push_back(std::make_unique<DnnDescriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
            r = configs.back()->get();
        }
        check_dnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, raw),
                  "cuDNN heuristics");
        if (count == 0) throw Failure("no engine" + last_words());
    } catch (const Failure& failure) {
        rejected_ += (rejected_.empty() ? "" : "; ") + std::string("heuristics: ") + failure.what();
        return false;
    }
    for (i64 i = 0; i < count && i < most; ++i) {
        if (plan_with(target, wish, std::move(configs[static_cast<size_t>(i)]))) return true;
    }
    return false;
}

void DnnGraph::build(const DnnTarget& target, const DnnWish& wish) {
#if CUDNN_VERSION >= 90800
    if (!target.described.empty()) {
        chip_ = std::make_unique<DnnDescriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
        chip_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                   static_cast<i64>(target.described.size()), target.described.data());
        chip_->finalize();
    }
#endif
    graph_ = std::make_unique<DnnDescriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph_->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<i64>(operations_.size()),
                operations_.data());
    if (!chip_) graph_->one(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    graph_->finalize();
    const bool found = wish.engine >= 0 ? from_engine(target, wish)
                                        : from_heuristics(target, wish, CUDNN_HEUR_MODE_A) ||
                                              from_heuristics(target, wish, CUDNN_HEUR_MODE_FALLBACK);
    if (!found) throw Failure(rejected_.empty() ? "cuDNN has no engine" : rejected_);
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
