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
    step,   ///< the job's timeout, or a step's bound once that is known: for work that takes equally long on all ranks
    files,  ///< an hour: the rank reads or writes files, which may take any time; a lost rank ends the wait at once
};

/// An error of Fault::peer that names the rank that did not arrive.
class Absent : public Error {
public:
    Absent(int64_t rank, const std::string& text) : Error(text, Fault::peer), rank(rank) {}
    const int64_t rank;
};

/// Rounds in which ranks exchange texts of up to 64 MiB through the rendezvous store. Every rank takes part in the same
/// rounds in the same order. Rank r's children in the tree are ranks 4 r + 1 to 4 r + 4: texts go up the tree, and rank
/// 0's result comes down as one text. A rank sends the store a few messages and one for each child, whatever the number
/// of ranks; up to eight ranks read each other directly. The texts of a round are erased after the next `all`, so the
/// store does not grow.
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

    /// Sets the timeout from now on, and the configuration key that sets it, for messages.
    void wait_for(std::chrono::milliseconds timeout, std::string setting) {
        timeout_ = timeout;
        setting_ = std::move(setting);
    }
    /// Returns every rank's text in rank order. Throws Absent for a rank that does not arrive, Fault::peer naming a
    /// rank that is lost.
    std::vector<std::string> all(const std::string& topic, const std::string& mine, WaitLimit limit);
    /// Like all(), but only rank 0 waits for all ranks and returns the texts. Other ranks send their text, wait at most
    /// for their children, and return nothing.
    std::vector<std::string> to_first(const std::string& topic, const std::string& mine, WaitLimit limit);
    /// Returns rank 0's text on every rank; other ranks' texts are ignored. Rank 0 does not wait.
    std::string from_first(const std::string& topic, const std::string& mine, WaitLimit limit);

    /// The first rank with another text than rank 0, with the texts of both.
    struct Difference {
        int64_t rank = 0;
        std::string first, other;
    };
    /// Whether all ranks have the same `text`; only digests are sent. If a rank's text differs, that rank and rank 0
    /// send their `told` to all ranks.
    std::optional<Difference> compare(const std::string& topic, const std::string& text, const std::string& told,
                                      WaitLimit limit);

private:
    struct Round {
        std::string key;    ///< exchange/NAME/NUMBER/TOPIC
        std::string topic;  ///< the round's topic, for messages
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
    /// The children of a rank are [first_below, behind_below).
    int64_t first_below(int64_t rank) const { return std::min(4 * rank + 1, ranks_); }
    int64_t behind_below(int64_t rank) const { return std::min(4 * rank + 5, ranks_); }

    Rendezvous& rendezvous_;
    std::string name_;
    int64_t rank_, ranks_;
    std::chrono::milliseconds timeout_;
    std::string setting_ = "run.join_timeout_s";
    int64_t rounds_ = 0;
    std::vector<std::string> given_;  ///< keys of this rank that are not yet erased
};

}  // namespace orrery
