#pragma once
#include <cstdint>
#include <string_view>

#include "compile/passes/join_axes.h"
#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// What every rank tells all others with each train step; the largest wins.
enum class Status : uint8_t {
    go_on,
    saving,       ///< a save is under way on a rank: another one cannot begin
    stop,         ///< after this step, with a checkpoint of it: a rank was asked to
    save_failed,  ///< the save under way failed on a rank: all end after this step
    leave,        ///< after this step, with no checkpoint but the one under way: there is no time for it
};

/// Of the input and the result.
constexpr std::string_view status_name = "run.status";

/// As a rank gives it. The ranks' words are added, since a sum is what carries the loss, and the largest still wins: a
/// word is 2^24 times the one below it, and fewer ranks than 2^22 never add up to that, whatever order f32 adds in.
float word_of(Status status);
/// From the sum of all ranks' words. Throws Error where it is none.
Status status_of(float sum);

/// Adds the status word to a distributed program: the input, f32[n], of which each rank gives its own part (n: the
/// micro-batches that the program's loss is summed over, the word being the first), and the result f32[], summed over
/// every axis. Where the loss is summed over the same axis, both go in one message if messages are joined (`bucket`);
/// any other axis has one of 4 bytes, and those that can share one have it together. Nothing for a mesh of one rank.
void add_status(Program& program, const Mesh& mesh, const AxisCarriers& carriers = {});

}  // namespace orrery
