#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "orrery/error.h"

namespace orrery {

/// What a rank tells its launcher without a call of the system: its place in memory that both map. Times are of the
/// host's monotonic clock, in nanoseconds, 0: not yet.
struct RankTells {
    std::atomic<int64_t> step;         ///< the last that it has finished, or goes on from
    std::atomic<int64_t> resumed;      ///< the step that it goes on from, 0: none; told before `began_ns`
    std::atomic<int64_t> began_ns;     ///< the state was there, and the first step began
    std::atomic<int64_t> repeated_ns;  ///< the last step ended that an earlier generation had finished, too
    std::atomic<int64_t> last_ns;      ///< the last step ended
    std::atomic<int32_t> end;          ///< 0: none; 1: it came to its end; 2: it gave up, by `loss`
    char loss[976];                    ///< as encode() has it, cut where it is longer
};

/// The memory itself, made by a launcher for one generation of its host's ranks.
class Board {
public:
    explicit Board(int64_t ranks);
    ~Board();
    Board(const Board&) = delete;

    /// What finds it again in rank number `local` of the host; `best`: the newest step that any generation has
    /// finished.
    std::string variable(int64_t local, int64_t best) const;
    RankTells& of(int64_t local) { return tells_[local]; }

private:
    int file_ = -1;
    size_t bytes_ = 0;
    RankTells* tells_ = nullptr;
};

/// A rank's place on its launcher's board.
class OwnPlace {
public:
    /// nullptr where the launcher keeps no board. Throws Error for a variable that names none.
    static std::unique_ptr<OwnPlace> of_environment();
    ~OwnPlace();
    OwnPlace(const OwnPlace&) = delete;

    /// Whether an earlier generation of this launch has finished a step.
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

/// Of the clock of RankTells.
int64_t monotonic_ns();
inline double now_s() { return static_cast<double>(monotonic_ns()) * 1e-9; }

}  // namespace orrery
