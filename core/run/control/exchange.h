#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "orrery/communicator.h"

namespace orrery {

/// How long to wait for a rank that is alive.
enum class WaitLimit : uint8_t {
    step,   ///< the job's timeout, and a step's bound once that is known: everyone computes the same
    files,  ///< an hour: it writes or reads files, which may take any time; a lost rank ends the wait at once
};

/// An error of Fault::peer that knows which rank did not come.
class Absent : public Error {
public:
    Absent(int64_t rank, const std::string& text) : Error(text, Fault::peer), rank(rank) {}
    const int64_t rank;
};

/// Rounds in which all ranks tell each other texts of up to 64 MiB, through the store. Every rank takes part in the
/// same rounds in the same order. Texts go up a tree in which each rank has four others below it, and come down as one
/// text of rank 0's: so many of the store's messages a rank as it has below it, and a few, whatever the ranks; up to
/// eight ranks read each other. A round's texts are erased after the next `all`, so the store does not grow.
class Exchange {
public:
    /// `name` is this exchange's own within the job.
    Exchange(Rendezvous& rendezvous, std::string name, int64_t rank, int64_t ranks, std::chrono::milliseconds timeout);

    /// Another timeout from now on, and the key of the configuration that sets it, for messages.
    void wait_for(std::chrono::milliseconds timeout, std::string setting) {
        timeout_ = timeout;
        setting_ = std::move(setting);
    }
    /// Every rank's text in rank order. Throws Absent of a rank that does not come, Fault::peer naming one that is
    /// lost.
    std::vector<std::string> all(const std::string& topic, const std::string& mine, WaitLimit limit);
    /// The same on rank 0; the others give their text, wait for those below them at most, and get nothing.
    std::vector<std::string> to_first(const std::string& topic, const std::string& mine, WaitLimit limit);
    /// Rank 0's text on every rank; the others give none. Rank 0 does not wait.
    std::string from_first(const std::string& topic, const std::string& mine, WaitLimit limit);

    /// The first rank whose text is another one than rank 0's, with both as they tell them.
    struct Difference {
        int64_t rank = 0;
        std::string first, other;
    };
    /// Whether all have the same `text`; only digests of it are sent. Where one differs, rank 0 and that one tell
    /// `told`, to all.
    std::optional<Difference> compare(const std::string& topic, const std::string& text, const std::string& told,
                                      WaitLimit limit);

private:
    struct Round {
        std::string key;    ///< exchange/NAME/NUMBER/TOPIC
        std::string topic;  ///< for messages
        WaitLimit limit;
    };
    Round begin(const std::string& topic, WaitLimit limit);
    void come(const Round& round);
    void give(const Round& round, const std::string& part, const std::string& text, size_t most);
    std::string take(const Round& round, const std::string& part, int64_t rank, size_t most);
    std::string wait(const Round& round, const std::string& key, int64_t rank);
    std::vector<std::string> gather(const Round& round, const std::string& mine);
    int64_t missing(const Round& round, int64_t rank);
    void forget(std::vector<std::string> keys);
    /// Ranks below one: from 4 r + 1 on.
    int64_t first_below(int64_t rank) const { return std::min(4 * rank + 1, ranks_); }
    int64_t behind_below(int64_t rank) const { return std::min(4 * rank + 5, ranks_); }

    Rendezvous& rendezvous_;
    std::string name_;
    int64_t rank_, ranks_;
    std::chrono::milliseconds timeout_;
    std::string setting_ = "run.join_timeout_s";
    int64_t rounds_ = 0;
    std::vector<std::string> given_;  ///< keys of this rank that are not erased yet
};

}  // namespace orrery
