#pragma once
#include <cstdint>
#include <string_view>

#include "compile/passes/join_axes.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// The status that ranks exchange in each train step, in ascending order of importance: all act on the largest one.
enum class Status : uint8_t {
    go_on,
    saving,       ///< a rank is writing a checkpoint, so none can begin
    stop,         ///< a rank was asked to stop: all save this step and stop
    save_failed,  ///< a rank failed to write the checkpoint: all stop after this step
    leave,        ///< there is no time for another save: all stop after this step
};

/// Name of the input and of the result that carry the status.
constexpr std::string_view status_name = "run.status";

/// What a rank contributes for its status. Contributions are summed, so the message of the loss can carry them. Each
/// status is 2^24 times the one before, so the largest decides the sum of fewer than 2^22 ranks.
float word_of(Status status);
/// The largest status in a sum of the ranks' contributions (word_of). Throws Error if the sum is invalid.
Status status_of(float sum);

/// Adds the status word to a distributed program: an input f32[n], to which each rank contributes, and a result f32[],
/// its sum over all axes. n is the number of micro-batches that the loss is summed over; the word is in the first
/// element. If messages are joined (`bucket`), the word shares the messages of the loss; other axes have a message of 4
/// bytes, or share one. No effect on a mesh of one rank. For dp=2:
///
///     %8 run.status = input                  f32[1]  dp:P(sum)
///     %9  = sum %8                           f32[]   dp:P(sum)
///     %10 = all_reduce %9 {axis=dp, op=sum}  f32[]   dp:R        result run.status
void add_status(Program& program, const Mesh& mesh, const AxisCarriers& carriers = {});

}  // namespace orrery
