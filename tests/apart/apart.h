// A device whose memory host code cannot touch, and whose queue runs behind it: what CUDA does, without a GPU.
//
// Arenas are addresses that fault when they are read or written; the device keeps the bytes elsewhere. Work runs on a
// thread of its own, late. So a copy or a wait that the core forgets crashes a test, or gives it other numbers.
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

using Work = std::function<void()>;

/// What is recorded of a step.
struct Recording {
    std::vector<Work> work;
    /// By queue other than 0: the last work that is recorded, and the last that queue 0 waits for.
    struct Order {
        uint64_t issued = 0, joined = 0;
    };
    std::map<const void*, Order> queues;
};

/// A point of a queue. Work of other queues may wait for it: it is what Event::native() points to.
class Mark {
public:
    void set(std::exception_ptr failure = nullptr);
    void wait();
    bool done();
    Recording* recording = nullptr;  ///< not null: it will be only when that is replayed
    const void* queue = nullptr;     ///< and its place there, when it is another's than queue 0
    uint64_t place = 0;

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::exception_ptr failure_;
};

/// Runs work in order, on a thread of its own, now and then after a pause.
class Queue {
public:
    Queue();
    ~Queue();
    void add(Work work);
    void drain();

private:
    void run();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> work_;
    bool busy_ = false, over_ = false;
    std::exception_ptr failure_;
    uint32_t pauses_ = 1;
    std::thread thread_;
};

/// Kernels are the CPU device's. Keys: threads, reference, capture (true), scratch (bytes that each launch writes
/// over), replay_fails (false).
std::unique_ptr<Device> make_device(Config& config);

/// Where the bytes of an address of these arenas are; other addresses stand for themselves.
void* real(std::span<const Memory> arenas, void* data);

/// Communicators on a queue of their own whose events queues can wait for, as NCCL's: over those of the transport
/// "threads". Its calls may be captured, if they come behind what is.
std::unique_ptr<Transport> make_transport(std::unique_ptr<Transport> threads);

}  // namespace orrery::apart
