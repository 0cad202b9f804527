#pragma once
#include <map>
#include <string>
#include <vector>

#include "compile/ids.h"
#include "compile/passes/status_word.h"
#include "plan/host_places.h"
#include "run/data/data.h"

namespace orrery {

/// Fills the inputs of a program that this rank holds, in host memory laid out as they lie on the device: each holder
/// reads its own block of each sample, nobody scatters. One block per micro-batch, in order.
class InputFeed {
public:
    /// Throws Error as check_inputs does. Plan and data must outlive it.
    InputFeed(const Plan& plan, int64_t rank, const Dataset& data, const std::map<std::string, IdRange>& ids);

    /// Of the memory that `fill` and `set_step` write: Executor::inputs().
    int64_t bytes() const { return places_.bytes; }
    /// The global samples [first, first + batch). Allocates nothing; one thread at a time.
    void fill(Split split, int64_t first, std::byte* to) const;
    void set_step(uint64_t run_seed, int64_t step, std::byte* to) const;
    /// What this rank tells the others, where the program has a status word.
    void set_status(Status status, std::byte* to) const;
    int64_t batch() const { return batch_; }

private:
    struct Input {
        const Value& value;
        size_t array = 0;  ///< of the source
        IdRange allowed;
        int64_t at = 0;                ///< in the memory
        TensorType local;              ///< of one micro-batch: [samples, ...]
        std::vector<int64_t> samples;  ///< of each micro-batch the first, behind that of the batch
        std::vector<Shape> offsets;    ///< of each micro-batch, in a sample
        mutable Tensor sample;         ///< fill's
    };

    const Program& program_;
    const Dataset& data_;
    const HostPlaces places_;
    std::vector<Input> inputs_;
    int64_t batch_ = 0;
};

/// The input is set by the host, or by a data source?
bool is_data_input(const Value& value);
/// "the model has ids 0 to 63, and ignores -1"
std::string text_of(const IdRange& allowed);
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
/// Writes "step" (f32) and "seed" (u32) where the block of inputs has them.
void set_step(const Program& program, const HostPlaces& places, uint64_t run_seed, int64_t step, std::byte* to);

}  // namespace orrery
