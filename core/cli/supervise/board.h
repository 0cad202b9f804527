#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "orrery/error.h"

namespace orrery {

/// Progress of a rank in shared memory, which its launcher reads without system calls. Times are nanoseconds of the
/// host's monotonic clock; 0: not yet.
struct RankTells {
    std::atomic<int64_t> step;         ///< the last finished step; before there is one, the step resumed from
    std::atomic<int64_t> resumed;      ///< the step resumed from; 0: none. Written before `began_ns`
    std::atomic<int64_t> began_ns;     ///< when the first step began, after the state was loaded
    std::atomic<int64_t> repeated_ns;  ///< end of the last step that an earlier start of the job had already finished
    std::atomic<int64_t> last_ns;      ///< when the last step ended
    std::atomic<int32_t> end;          ///< 0: running; 1: completed; 2: failed, see `loss`
    char loss[976];                    ///< text of encode() for the loss; truncated if longer
};

/// Shared memory with the RankTells of each local rank. A launcher creates it for each generation (start of the job).
class Board {
public:
    explicit Board(int64_t ranks);
    ~Board();
    Board(const Board&) = delete;

    /// Returns an environment variable, "NAME=VALUE", by which local rank `local` finds its RankTells. `best`: the
    /// newest step that any generation has finished.
    std::string variable(int64_t local, int64_t best) const;
    RankTells& of(int64_t local) { return tells_[local]; }

private:
    int file_ = -1;
    size_t bytes_ = 0;
    RankTells* tells_ = nullptr;
};

class OwnPlace {
public:
    /// Maps this rank's RankTells; nullptr if its launcher has none. Throws Error for an invalid environment variable.
    static std::unique_ptr<OwnPlace> of_environment();
    ~OwnPlace();
    OwnPlace(const OwnPlace&) = delete;

    /// Whether the same launcher's earlier generation (start of the job) has finished a step.
    bool again() const { return best_ > 0; }
    void resumed(int64_t step);
    void finished(int64_t step);
    void failed(const Loss& how);
    void done();

private:
    OwnPlace(void* memory, size_t bytes, RankTells& tells, int64_t best)
        : memory_(memory), bytes_(bytes), tells_(tells), best_(best) {}
    void* const memory_;
    const size_t bytes_;
    RankTells& tells_;
    const int64_t best_;
};

int64_t monotonic_ns();
inline double now_s() { return static_cast<double>(monotonic_ns()) * 1e-9; }

}  // namespace orrery
