#pragma once
#include <map>
#include <string>
#include <vector>

#include "compile/ids.h"
#include "compile/passes/status_word.h"
#include "plan/host_places.h"
#include "run/data/data.h"

namespace orrery {

/// Fills the inputs of a program that this rank holds, in host memory with the device's layout. Each rank reads its own
/// block of each sample; nothing is scattered. Micro-batches are stored one after the other.
class InputFeed {
public:
    /// Throws Error as check_inputs does. `plan` and `data` must outlive this object.
    InputFeed(const Plan& plan, int64_t rank, const Dataset& data, const std::map<std::string, IdRange>& ids);

    /// Bytes that `fill` and `set_step` write: Executor::inputs().
    int64_t bytes() const { return places_.bytes; }
    /// Writes the global samples [first, first + batch). Allocates nothing; one thread at a time.
    void fill(Split split, int64_t first, std::byte* to) const;
    void set_step(uint64_t run_seed, int64_t step, std::byte* to) const;
    /// Writes this rank's status, if the program has a status word.
    void set_status(Status status, std::byte* to) const;
    int64_t batch() const { return batch_; }

private:
    struct Input {
        const Value& value;
        size_t array = 0;  ///< index of the source's array
        IdRange allowed;
        int64_t at = 0;                ///< offset in the host memory, in bytes
        TensorType local;              ///< type of the block for one micro-batch: [samples, ...]
        std::vector<int64_t> samples;  ///< first sample of each micro-batch, relative to the batch
        std::vector<Shape> offsets;    ///< offset of each micro-batch's block within a sample
        mutable Tensor sample;         ///< scratch tensor of fill()
    };

    const Program& program_;
    const Dataset& data_;
    const HostPlaces places_;
    std::vector<Input> inputs_;
    int64_t batch_ = 0;
};

/// Whether a data source fills the input, not the host.
bool is_data_input(const Value& value);
/// Describes the allowed ids: "the model has ids 0 to 63, and ignores -1".
std::string text_of(const IdRange& allowed);
/// Index of the source's array that fills a data input. Throws Error at the input, listing what the source offers, if
/// there is none or its type or dims differ.
size_t array_of(const Value& input, const DataSource& source);
/// Throws Error at an input of a program that nothing fills.
void check_inputs(const Program& program, const DataSource& source);
/// Writes samples [first, first + local.shape[0]) of an input, read from `array` of the source. Of each sample it
/// writes the block that begins at offset[1..]. Throws Fault::failed if a sample has an id that is not allowed.
void read_block(const Dataset& data, Split split, int64_t first, const Value& input, size_t array,
                const IdRange& allowed, const Shape& offset, const TensorType& local, std::byte* to);

/// Returns the seed of a step, which is the same on every rank and mesh.
uint32_t step_seed(uint64_t run_seed, int64_t step);
/// Writes "step" (f32) and "seed" (u32) if the program has these inputs.
void set_step(const Program& program, const HostPlaces& places, uint64_t run_seed, int64_t step, std::byte* to);

}  // namespace orrery
