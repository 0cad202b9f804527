#pragma once
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/commit.h"

/// Saves in a made world: ranks with a Commit each, a store that fails, lies and fences, rounds with delays, ranks that
/// are killed, sleep and wake, and generations that take over, all drawn from a seed. Whatever acts on the store is
/// held to what a save promises.
namespace orrery::test {

class CommitWorld {
public:
    /// `calm`: nothing goes wrong.
    CommitWorld(uint32_t seed, bool calm);
    ~CommitWorld();
    /// Until nothing is left to happen.
    void run();

    /// What was seen that must not be, by seed the same; empty: all is as it must be.
    std::vector<std::string> problems;
    using Ends = std::array<int64_t, static_cast<size_t>(CommitEnd::good) + 1>;
    Ends ends{};                                         ///< verdicts of ranks, by end
    int64_t kills = 0, generations = 0, superseded = 0;  ///< the last: what a store refused to an older generation

private:
    using Save = std::pair<int64_t, int64_t>;  ///< generation and step
    struct Part {
        int64_t state = 0;  ///< what it is of: replicas have the same
        bool durable = false, damaged = false;
    };
    struct Step {
        int64_t generation = 0;
        std::vector<Part> parts;  ///< by rank
    };
    struct Rank;
    struct Round;
    struct Job;

    int64_t pick(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
    bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
    void at(double delay, std::function<void()> what);
    double delay();
    void must(bool holds, const std::string& what);

    void take_over();
    void begin(Job& job, Rank& rank);
    void go_on(Job& job, Rank& rank);
    void give(Job& job, Rank& rank, const CommitAction& action);
    void act(Job& job, Rank& rank, const CommitAction& action, CommitAnswer& answer);
    void write(Job& job, Rank& rank, CommitAnswer& answer);
    void publish(Job& job, Rank& rank, CommitAnswer& answer);
    void read_back(Job& job, Rank& rank, CommitAnswer& answer);
    void retire(Job& job, Rank& rank, CommitAnswer& answer);
    void make_way(Job& job, Rank& rank, CommitAnswer& answer);
    void kill(Job& job, Rank& rank);
    void ended(Job& job, Rank& rank);
    void judge();
    bool fails(const Job& job, const Rank& rank, CommitEnd end, CommitAnswer& answer);
    bool whole(int64_t step) const;
    int64_t whole_steps() const;

    std::mt19937 random_;
    const bool calm_;
    double now_ = 0, failing_ = 0, lying_ = 0, differing_ = 0, killing_ = 0, sleeping_ = 0;
    int64_t ranks_ = 1, saves_ = 1, most_generations_ = 1;
    uint64_t order_ = 0;
    std::map<std::pair<double, uint64_t>, std::function<void()>> queue_;
    std::vector<std::unique_ptr<Job>> jobs_;

    // The store.
    int64_t claimed_ = 0;
    std::map<Save, std::map<int64_t, Part>> partial_;  ///< by rank
    std::map<int64_t, Step> visible_;

    // What has happened, for judging.
    std::map<Save, std::set<std::pair<CommitEnd, int64_t>>> faults_;  ///< what went wrong, and on which rank
    std::map<Save, std::set<int64_t>> read_;                          ///< ranks that have read their part back
    std::set<Save> published_, taken_back_;
    std::map<Save, std::vector<CommitVerdict>> verdicts_;
};

}  // namespace orrery::test
