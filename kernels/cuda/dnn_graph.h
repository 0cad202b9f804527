// Graphs of operations for cuDNN's backend API.
#pragma once

#include <cudnn.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/call.h"
#include "kernels/cuda/context.h"

namespace orrery::kernels::cuda {

/// One backend descriptor.
class DnnDescriptor {
public:
    explicit DnnDescriptor(cudnnBackendDescriptorType_t type);
    ~DnnDescriptor();
    DnnDescriptor(const DnnDescriptor&) = delete;
    DnnDescriptor& operator=(const DnnDescriptor&) = delete;

    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, i64 count, const void* values);
    template <class V>
    void one(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const V& value) {
        set(name, type, 1, &value);
    }
    void descriptor(cudnnBackendAttributeName_t name, const DnnDescriptor& value);
    void finalize();
    cudnnBackendDescriptor_t get() const { return made_; }

private:
    cudnnBackendDescriptor_t made_ = nullptr;
};

using DnnTensor = const DnnDescriptor*;

/// Sizes and steps of a tensor of four dims.
struct DnnShape {
    i64 size[4];
    i64 step[4];
};

/// Dense in the order of its dims.
DnnShape dense_shape(i64 a, i64 b, i64 c, i64 d);

/// Adds tensors and operations, then finds an engine for all of them. Throws Failure with cuDNN's words.
class DnnGraph {
public:
    /// An operand of the graph under a number of the caller's.
    DnnTensor operand(i64 id, const DnnShape& shape, cudnnDataType_t type);
    /// A number that comes with each run, from host memory.
    DnnTensor scalar(i64 id);
    /// A value between operations, never stored.
    DnnTensor inner(const DnnShape& shape, cudnnDataType_t type = CUDNN_DATA_FLOAT);

    /// y = a op b (b may be absent); t: the predicate of a selection; axis: of an index.
    void pointwise(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y,
                   cudnnDataType_t compute = CUDNN_DATA_FLOAT, DnnTensor t = nullptr, i64 axis = -1);
    void matmul(DnnTensor a, DnnTensor b, DnnTensor c);
    /// fixed: in an order that repeats its bits, where this cuDNN can be asked for it.
    void reduce(cudnnReduceTensorOp_t op, DnnTensor x, DnnTensor y, bool fixed = false);
    void reshape(DnnTensor x, DnnTensor y);

    /// The first engine of cuDNN's heuristics that can be built; with `deterministic` of those that repeat their bits.
    void build(cudnnHandle_t handle, bool deterministic);
    i64 workspace() const { return workspace_; }
    /// operands: (number, address) of every operand and scalar.
    void run(cudnnHandle_t handle, const std::vector<std::pair<i64, const void*>>& operands, void* workspace) const;

private:
    DnnDescriptor& made(cudnnBackendDescriptorType_t type);
    DnnTensor tensor(i64 id, const DnnShape& shape, cudnnDataType_t type, bool inner, bool by_value);
    bool plan_with(cudnnHandle_t handle, const DnnDescriptor& config, bool deterministic);

    std::vector<std::unique_ptr<DnnDescriptor>> descriptors_;
    std::vector<cudnnBackendDescriptor_t> operations_;
    std::unique_ptr<DnnDescriptor> plan_;
    i64 workspace_ = 0, next_ = 1000;
};

}  // namespace orrery::kernels::cuda
