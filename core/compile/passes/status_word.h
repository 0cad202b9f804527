#pragma once
#include <cstdint>
#include <string_view>

#include "compile/passes/join_axes.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// The status that ranks exchange with each train step; the largest one of all ranks is used.
enum class Status : uint8_t {
    go_on,
    saving,       ///< a rank has a save in progress, so no save can begin
    stop,         ///< stop after this step and save it: a rank was asked to stop
    save_failed,  ///< the save in progress failed on a rank: stop after this step
    leave,        ///< stop after this step without another save, because there is no time
};

/// Name of the status word, as an input and as a result of the program.
constexpr std::string_view status_name = "run.status";

/// The number that a rank contributes for its status. Contributions are summed, so the loss' message can carry them.
/// Each status is 2^24 times the one before: the largest wins for fewer than 2^22 ranks, in any order of additions.
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
