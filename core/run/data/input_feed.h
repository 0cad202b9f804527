#pragma once
#include <map>
#include <string>
#include <vector>

#include "compile/ids.h"
#include "compile/passes/status_word.h"
#include "plan/host_places.h"
#include "run/data/data.h"

namespace orrery {

/// Fills a rank's part of a program's inputs in host memory, laid out as on the device. Each rank reads from the data
/// only its own block of each sample. Micro-batches are stored one after the other.
class InputFeed {
public:
    /// Throws Error as check_inputs does. `plan` and `data` must outlive this object.
    InputFeed(const Plan& plan, int64_t rank, const Dataset& data, const std::map<std::string, IdRange>& ids);

    /// Number of bytes that `fill` and `set_step` write: the size of Executor::inputs().
    int64_t bytes() const { return places_.bytes; }
    /// Writes this rank's part of drawn samples [first, first + batch), in the order of Dataset::rows. Allocates no
    /// memory unless they are ordered by their pairs; one thread at a time.
    void fill(Split split, int64_t first, std::byte* to) const;
    void set_step(uint64_t run_seed, int64_t step, std::byte* to) const;
    /// Writes this rank's stop status for StopVote, if the program has an input for it.
    void set_status(Status status, std::byte* to) const;
    int64_t batch() const { return batch_; }

private:
    struct Input {
        const Value& value;
        size_t array = 0;  ///< index of the array of the data source that fills the input
        IdRange allowed;
        int64_t at = 0;                ///< byte offset of the input in the host memory
        TensorType local;              ///< type of this rank's block of one micro-batch: [samples, ...]
        std::vector<int64_t> samples;  ///< index in the batch of each micro-batch's first sample
        std::vector<Shape> offsets;    ///< offset within a sample of this rank's block, by micro-batch
        mutable Tensor sample;         ///< scratch tensor of fill()
    };

    const Program& program_;
    const Dataset& data_;
    const HostPlaces places_;
    std::vector<Input> inputs_;
    int64_t batch_ = 0;
    mutable std::vector<int64_t> draws_;  ///< scratch list of fill(): the draw of each row of the batch
};

/// Whether a data source fills the input; otherwise the host does.
bool is_data_input(const Value& value);
/// Describes the token ids that an input may have: "the model has ids 0 to 63, and ignores -1".
std::string text_of(const IdRange& allowed);
/// Index of the source's array that fills a data input. Throws Error at the input, listing the source's arrays, if
/// there is none of its name or if its type or dims differ.
size_t array_of(const Value& input, const DataSource& source);
/// Throws Error at an input of a program that neither the data source nor the host fills.
void check_inputs(const Program& program, const DataSource& source);
/// Writes the whole of an input to `to`, from `array` of the source: the batch of drawn samples that begins with
/// `first`. Throws Fault::failed if a sample has a token id that is not allowed.
void read_batch(const Dataset& data, Split split, int64_t first, const Value& input, size_t array,
                const IdRange& allowed, std::byte* to);

/// Returns the random seed of a step, which is the same on every rank and mesh.
uint32_t step_seed(uint64_t run_seed, int64_t step);
/// Writes the inputs "step" (f32) and "seed" (u32), if the program has them.
void set_step(const Program& program, const HostPlaces& places, uint64_t run_seed, int64_t step, std::byte* to);

}  // namespace orrery
