// NCCL and CUDA's runtime as far as plugins/transport/nccl calls them. They move nothing: work is done, and calls come
// to their end, when a test says so.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>

namespace orrery::nccl_standin {

struct State {
    // What a test sets.
    std::atomic<bool> starts{true};     ///< other members come
    std::atomic<bool> runs{true};       ///< what is queued is done; otherwise what was queued before
    std::atomic<bool> finalizes{true};  ///< nothing holds the communicator's kernels
    std::atomic<bool> destroys{true};   ///< the other members of the host have let go
    std::atomic<int> error{ncclSuccess};
    // What it reads.
    std::atomic<int> streams{0}, events{0}, communicators{0};  ///< that exist
    std::atomic<int> finalized{0}, destroyed{0}, aborted{0};   ///< calls
    // Work in order: events stand for all that was queued before them.
    std::atomic<uint64_t> queued{0}, done{0};
    void hold() {
        done = queued.load();
        runs = false;
    }
};

/// One for the program, as C's calls have no other way to it.
State& state();

/// Everything as it was at first. Waits until no communicator is left.
void reset();

}  // namespace orrery::nccl_standin
