#pragma once
#include <vector>

#include "compile/ids.h"
#include "run/data/data.h"
#include "run/executor.h"
#include "run/session.h"

namespace orrery {

/// Fills the data inputs of a program, all but "step" and "seed", for this rank: each holder reads its own block of
/// each sample, nobody scatters. One block per micro-batch, in order.
class InputFeed {
public:
    /// Throws Error as check_inputs does.
    InputFeed(const Program& program, const Mesh& mesh, int64_t rank, const Dataset& data,
              const std::map<std::string, IdRange>& ids);

    /// Host bytes for the global samples [first, first + batch), one buffer per data input.
    void fill(Split split, int64_t first, Prefetch::Batch& batch) const;
    void upload(Session& session, Executor& executor, const Prefetch::Batch& batch) const;
    int64_t batch() const { return batch_; }

private:
    struct Input {
        ValueId id;
        Value value;       ///< as the program has it
        size_t array = 0;  ///< of the source
        IdRange allowed;
        TensorType local;            ///< of one micro-batch: [samples, ...]
        std::vector<Shape> offsets;  ///< in the global array, one per micro-batch
    };

    const Dataset& data_;
    std::vector<Input> inputs_;
    int64_t batch_ = 0;
};

/// The input is set by the host, or by a data source?
bool is_data_input(const Value& value);
/// Which array of the source fills a data input. Throws Error at the input, naming what the source offers, where none
/// does or where its type or dims differ.
size_t array_of(const Value& input, const DataSource& source);
/// Throws Error at an input of a program that nothing fills.
void check_inputs(const Program& program, const DataSource& source);
/// Writes samples [first, first + local.shape[0]) of an input, which is `array` of the source, the part of each that
/// begins at offset[1..]. Throws Fault::failed where one has an id that is not allowed.
void read_block(const Dataset& data, Split split, int64_t first, const Value& input, size_t array,
                const IdRange& allowed, const Shape& offset, const TensorType& local, std::byte* to);

/// The seed word of a step: the same on every rank and mesh.
uint32_t step_seed(uint64_t run_seed, int64_t step);
/// Sets "step" (f32) and "seed" (u32), where the program has them.
void set_step(Session& session, Executor& executor, const Program& program, uint64_t run_seed, int64_t step);

}  // namespace orrery
