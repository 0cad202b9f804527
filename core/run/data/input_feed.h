#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compile/passes/status_word.h"
#include "plan/host_places.h"
#include "run/data/row_reader.h"

namespace orrery {

/// Fills a rank's part of a program's inputs in host memory, laid out as on the device. Each rank reads from the data
/// only its own block of each sample. Micro-batches are stored one after the other.
class InputFeed {
public:
    /// Throws Error as check_inputs does. `plan` and `data` must outlive this object.
    InputFeed(const Plan& plan, int64_t rank, const Dataset& data, const std::map<std::string, IdRange>& ids);

    /// Number of bytes that `fill` and `set_step` write: the size of Executor::inputs().
    int64_t bytes() const { return places_.bytes; }
    /// Writes this rank's part of drawn samples [first, first + batch), in the order of Dataset::rows, their tokens in
    /// the order of the program. One thread at a time.
    void fill(Split split, int64_t first, std::byte* to) const;
    void set_step(uint64_t run_seed, int64_t step, std::byte* to) const;
    /// Writes this rank's stop status for StopVote, if the program has an input for it.
    void set_status(Status status, std::byte* to) const;
    int64_t batch() const { return batch_; }
    /// Whether the inputs of both programs have the same names, places and blocks, so that one fill serves both.
    bool same_places(const InputFeed& other) const;

private:
    struct Input {
        RowReader reader;
        int64_t at = 0;                ///< byte offset of the input in the host memory
        int64_t rows = 0;              ///< samples of this rank in a micro-batch
        TensorType row;                ///< type of this rank's block of a sample
        std::vector<int64_t> samples;  ///< index in the batch of each micro-batch's first sample
        std::vector<Shape> offsets;    ///< offset within a sample of this rank's block, by micro-batch
    };

    const Program& program_;
    const Dataset& data_;
    const HostPlaces places_;
    const std::shared_ptr<const RowOrders> orders_;
    std::vector<Input> inputs_;
    int64_t batch_ = 0;
    int64_t island_ = 0;                  ///< index of this rank's island; each has random numbers of its own
    mutable std::vector<int64_t> draws_;  ///< scratch list of fill(): the draw of each row of the batch
};

/// Writes the whole of an input to `to`: the batch of drawn samples that begins with `first`, their tokens in `order`.
/// Throws Fault::failed if a sample has a token id that is not allowed.
void read_batch(const Dataset& data, Split split, int64_t first, const Value& input, const IdRange& allowed,
                const TokenOrder& order, std::byte* to);

/// Returns the random seed of a step, which is the same on every rank and mesh.
uint32_t step_seed(uint64_t run_seed, int64_t step);
/// Returns the seed of an island's random numbers; that of the first, or of a run without islands, is the run's.
constexpr uint64_t island_seed(uint64_t run_seed, int64_t island) { return run_seed + (uint64_t(island) << 32); }
/// Writes the inputs "step" (f32) and "seed" (u32), if the program has them.
void set_step(const Program& program, const HostPlaces& places, uint64_t run_seed, int64_t step, std::byte* to);
/// Writes this rank's stop status for StopVote, if the program has an input for it.
void set_status(const Program& program, const HostPlaces& places, Status status, std::byte* to);

}  // namespace orrery
