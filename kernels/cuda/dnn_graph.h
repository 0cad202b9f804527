// Graphs of operations for cuDNN's backend API.
#pragma once

#include <cudnn.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/call.h"
#include "kernels/cuda/context.h"

namespace orrery::kernels::cuda {

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

/// The GPU that plans are made for: that of a handle, or one described in cuDNN's JSON (from 9.8 on; no GPU needed).
struct DnnTarget {
    cudnnHandle_t handle = nullptr;
    std::string described;
};

/// Restricts the engines. engine: one of them, with its knobs; -1: those of cuDNN's heuristics.
struct DnnWish {
    bool repeats = false;  ///< no engine whose notes say that repetitions may differ
    i64 most_workspace = 0;
    int engine = -1;
    std::vector<std::pair<cudnnBackendKnobType_t, i64>> knobs;
};

/// Sizes and strides of a tensor of four dims.
struct DnnShape {
    i64 size[4];
    i64 step[4];
};

/// Dense, in the order of its dims.
DnnShape dense_shape(i64 a, i64 b, i64 c, i64 d);

/// Collects tensors and operations, then finds an engine for all of them. Throws Failure with cuDNN's message.
class DnnGraph {
public:
    /// An operand of the graph, identified by a number of the caller's.
    DnnTensor operand(i64 id, const DnnShape& shape, cudnnDataType_t type);
    /// A number that each run passes in host memory.
    DnnTensor scalar(i64 id);
    /// A value between operations; it is never stored.
    DnnTensor inner(const DnnShape& shape, cudnnDataType_t type = CUDNN_DATA_FLOAT);

    /// y = a op b (b may be absent); t: the predicate of a selection; axis: of an index.
    void pointwise(cudnnPointwiseMode_t mode, DnnTensor x, DnnTensor b, DnnTensor y,
                   cudnnDataType_t compute = CUDNN_DATA_FLOAT, DnnTensor t = nullptr, i64 axis = -1);
    void matmul(DnnTensor a, DnnTensor b, DnnTensor c);
    void reduce(cudnnReduceTensorOp_t op, DnnTensor x, DnnTensor y);
    void reshape(DnnTensor x, DnnTensor y);

    /// Builds the first engine that works. Throws Failure with every engine's error.
    void build(const DnnTarget& target, const DnnWish& wish);
    /// "engine 5, notes tensor core, workspace 0".
    const std::string& chosen() const { return chosen_; }
    i64 workspace() const { return workspace_; }
    /// operands: (number, address) of every operand and scalar.
    void run(cudnnHandle_t handle, const std::vector<std::pair<i64, const void*>>& operands, void* workspace) const;

private:
    DnnDescriptor& made(cudnnBackendDescriptorType_t type);
    DnnTensor tensor(i64 id, const DnnShape& shape, cudnnDataType_t type, bool inner, bool by_value);
    /// Gets the configurations of one source and takes the first that works.
    bool from_heuristics(const DnnTarget& target, const DnnWish& wish, cudnnBackendHeurMode_t mode);
    bool from_engine(const DnnTarget& target, const DnnWish& wish);
    bool plan_with(const DnnTarget& target, const DnnWish& wish, std::unique_ptr<DnnDescriptor> config);

    std::vector<std::unique_ptr<DnnDescriptor>> descriptors_;
    std::vector<cudnnBackendDescriptor_t> operations_;
    std::unique_ptr<DnnDescriptor> chip_, graph_, config_, plan_;
    i64 workspace_ = 0, next_ = 1000;
    std::string chosen_, rejected_;
};

}  // namespace orrery::kernels::cuda
