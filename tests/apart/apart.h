// A device whose memory host code cannot touch, and whose queues run behind it: what CUDA does, without a GPU.
//
// Arenas are addresses that fault when they are read or written; the device keeps the bytes elsewhere. Work runs on
// threads of its own, late. So a copy or a wait that the core forgets crashes a test, or gives it other numbers.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "orrery/registry.h"

namespace orrery::apart {

/// How long work lasts on a machine that nobody has, and when all that a rank's host has waited for is done there, in
/// ns from the start. Kernels start when their queue is free, collectives when all members' are.
struct Timeline {
    std::function<int64_t(const KernelSpec&)> kernel;
    std::function<int64_t(std::string_view collective, int64_t bytes)> message;  ///< bytes of the larger tensor
    int64_t host = 0;                                                            ///< of the rank's own thread
};

/// Gets the time of the queue it runs on, and moves it.
using Work = std::function<void(int64_t& now)>;

/// Runs work in order, on a thread of its own, now and then after a pause.
class Queue {
public:
    Queue();
    ~Queue();
    /// `since`: it starts no earlier.
    void add(Work work, int64_t since = 0);
    /// Returns the time when all is done.
    int64_t drain();

private:
    void run();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::pair<Work, int64_t>> work_;
    bool busy_ = false, over_ = false;
    std::exception_ptr failure_;
    int64_t now_ = 0;
    uint32_t pauses_ = 1;
    std::thread thread_;
};

class Mark;

/// What is recorded of a step: each queue's work, to be run there again.
class Recording {
public:
    explicit Recording(Queue& origin) : origin_(origin) { clocks_[&origin]; }
    /// A queue takes part once it has waited for what is recorded.
    bool takes_part(Queue& queue) const { return !over && clocks_.count(&queue) != 0; }
    void add(Queue& queue, Work work);
    void set(Queue& queue, const std::shared_ptr<Mark>& mark);
    void wait(Queue& queue, const std::shared_ptr<Mark>& mark);
    /// The origin does not wait for all that takes part.
    bool loose() const;
    /// Behind what the origin does before, as one piece of its work.
    void replay(int64_t since);
    bool over = false;  ///< nothing is recorded any more

    using Clock = std::map<Queue*, uint64_t>;  ///< by queue: how much of its work is done

private:
    struct Item {
        Queue* queue;
        Work work;
    };
    Queue& origin_;
    std::vector<Item> items_;
    std::vector<std::shared_ptr<Mark>> marks_;
    std::map<Queue*, Clock> clocks_;  ///< by queue: what is done before its next work
};

/// A point of a queue. Work of other queues may wait for it: it is what Event::native() points to.
class Mark : public std::enable_shared_from_this<Mark> {
public:
    void set(int64_t time, std::exception_ptr failure = nullptr);
    void reset();
    /// For a queue: returns the time when it was set.
    int64_t join();
    /// For the host, which cannot wait for what is only recorded.
    int64_t wait();
    bool done();
    bool recorded = false;               ///< it will be only when that is replayed:
    std::weak_ptr<Recording> recording;  ///< which owns it
    Recording::Clock clock;              ///< what is done by then

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    int64_t time_ = 0;
    std::exception_ptr failure_;
};

/// Kernels are the CPU device's. Keys: threads, reference, capture (true), scratch (bytes that each launch writes
/// over), replay_fails (false).
std::unique_ptr<Device> make_device(Config& config, std::shared_ptr<Timeline> timeline = nullptr);

/// Where the bytes of an address of these arenas are; other addresses stand for themselves.
void* real(std::span<const Memory> arenas, void* data);

/// Communicators on a queue of their own whose events queues can wait for, as NCCL's: over those of the transport
/// "threads". Its calls may be captured, if they come behind what is. `timelines`: by rank; for collectives alone.
std::unique_ptr<Transport> make_transport(std::unique_ptr<Transport> threads,
                                          std::vector<std::shared_ptr<Timeline>> timelines = {});

}  // namespace orrery::apart
