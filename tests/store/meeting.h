#pragma once
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "orrery/error.h"
#include "orrery/mesh.h"

namespace orrery {

/// The exchange of ranks that are threads. Also checks that all ask for the same topic.
class Meeting {
public:
    explicit Meeting(int64_t ranks) : texts_(static_cast<size_t>(ranks)) {}

    std::vector<std::string> gather(int64_t rank, const std::string& topic, const std::string& mine) {
        std::unique_lock lock(mutex_);
        if (arrived_ == 0) topic_ = topic;
        same_ = same_ && topic_ == topic;
        texts_[static_cast<size_t>(rank)] = mine;
        const int64_t round = round_;
        if (++arrived_ == static_cast<int64_t>(texts_.size())) {
            last_ = texts_;
            arrived_ = 0;
            ++round_;
            all_.notify_all();
        } else if (!all_.wait_for(lock, std::chrono::seconds(120), [&] { return round_ != round; })) {
            throw Error("a rank did not come to " + topic, Fault::peer);
        }
        return last_;
    }
    bool same() const { return same_; }

private:
    std::mutex mutex_;
    std::condition_variable all_;
    std::vector<std::string> texts_, last_;
    std::string topic_;
    int64_t arrived_ = 0, round_ = 0;
    bool same_ = true;
};

/// Runs `work(rank, gather)` on a thread per rank; what each threw, "" when nothing.
template <class Work>
std::vector<std::string> on_ranks(const Mesh& mesh, Work work) {
    Meeting meeting(mesh.ranks());
    std::vector<std::string> problems(static_cast<size_t>(mesh.ranks()));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
        threads.emplace_back([&, rank] {
            try {
                work(rank, [&, rank](const std::string& topic, const std::string& mine) {
                    return meeting.gather(rank, topic, mine);
                });
            } catch (const std::exception& problem) {
                problems[static_cast<size_t>(rank)] = problem.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(meeting.same());
    return problems;
}

inline std::vector<std::string> quiet(const Mesh& mesh) {
    return std::vector<std::string>(static_cast<size_t>(mesh.ranks()));
}

}  // namespace orrery
