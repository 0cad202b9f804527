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

/// How long to wait for another rank that is alive.
enum class WaitLimit : uint8_t {
    step,   ///< the job's timeout, or a step's bound once known: for work that takes all ranks equally long
    files,  ///< an hour: for ranks that read or write files, which may take long; a lost rank ends the wait
};

/// An error of Fault::peer that names a rank that did not arrive in time.
class Absent : public Error {
public:
    Absent(int64_t rank, const std::string& text) : Error(text, Fault::peer), rank(rank) {}
    const int64_t rank;
};

/// Exchanges texts of up to 64 MiB between ranks through the rendezvous store, in rounds. Every rank takes part in the
/// same rounds in the same order. Texts go up a tree, in which rank r's children are ranks 4 r + 1 to 4 r + 4, and rank
/// 0's result comes down as one text. A rank sends the store a few messages and one for each child, whatever the number
/// of ranks; up to eight ranks read each other directly. The texts of a round are erased after the next call of all(),
/// so that the store does not grow.
///
///       up: texts or digests        down: rank 0's text
///              0                          0 -> all
///         / / \ \          four children each
///        1  2  3  4
///       / \ ...
///      5 .. 8
class Exchange {
public:
    /// `name` must be unique within the job.
    Exchange(Rendezvous& rendezvous, std::string name, int64_t rank, int64_t ranks, std::chrono::milliseconds timeout);

    /// Sets the timeout of waits from now on, and the configuration key that sets it, for messages.
    void wait_for(std::chrono::milliseconds timeout, std::string setting) {
        timeout_ = timeout;
        setting_ = std::move(setting);
    }
    /// Returns every rank's text in rank order. Throws Absent for a rank that does not arrive in time, Fault::peer
    /// naming a rank that is lost.
    std::vector<std::string> all(const std::string& topic, const std::string& mine, WaitLimit limit);
    /// Returns every rank's text on rank 0, which waits for all ranks. Other ranks return nothing; they send their text
    /// and wait at most for their children in the tree.
    std::vector<std::string> to_first(const std::string& topic, const std::string& mine, WaitLimit limit);
    /// Returns rank 0's text on every rank; other ranks' texts are ignored. Rank 0 does not wait.
    std::string from_first(const std::string& topic, const std::string& mine, WaitLimit limit);

    /// The first rank with a text that differs from rank 0's, and both texts.
    struct Difference {
        int64_t rank = 0;
        std::string first, other;
    };
    /// Compares `text` of all ranks by digest; nullopt: all are equal. `told`: the text that rank 0 and the first rank
    /// that differs send to all ranks if they are not.
    std::optional<Difference> compare(const std::string& topic, const std::string& text, const std::string& told,
                                      WaitLimit limit);

private:
    struct Round {
        std::string key;  ///< prefix of the round's keys in the store: exchange/NAME/NUMBER/TOPIC
        std::string topic;
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
    /// The children of a rank in the tree are the ranks [first_below, behind_below).
    int64_t first_below(int64_t rank) const { return std::min(4 * rank + 1, ranks_); }
    int64_t behind_below(int64_t rank) const { return std::min(4 * rank + 5, ranks_); }

    Rendezvous& rendezvous_;
    std::string name_;
    int64_t rank_, ranks_;
    std::chrono::milliseconds timeout_;
    std::string setting_ = "run.join_timeout_s";
    int64_t rounds_ = 0;
    std::vector<std::string> given_;  ///< keys that this rank has set and not yet erased
};

}  // namespace orrery
