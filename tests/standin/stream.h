// Streams, events, captures and graphs of the stand-in.
//
// A stream is a thread that does what is queued in order, now and then after a pause. A capture keeps what streams are
// given as nodes, each behind those that its stream has done or waited for; a graph runs each stream's part on a thread
// of its own, so that a wait which the capture lacks is missing at every launch.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace orrery::standin {

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

/// A point of a stream.
class Point {
public:
    void set();
    /// Throws KernelFault when it takes longer than a minute.
    void wait();
    bool done();
    Clock::time_point time();  ///< of a point that is done

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    Clock::time_point time_;
};

struct Node {
    Work work;
    std::vector<size_t> after;  ///< nodes before it
    size_t lane = 0;            ///< of the stream that it was given to
};

struct Graph {
    std::vector<Node> nodes;
    size_t lanes = 0;
    /// Everything, once. Throws what the first of its nodes throws.
    void run() const;
};

/// From cudaStreamBeginCapture to cudaStreamEndCapture, and longer for events of it.
struct Capture {
    Graph graph;
    std::thread::id owner;
    CUstream_st* origin = nullptr;
    std::vector<CUstream_st*> streams;
    bool broken = false;  ///< a call that is illegal in it was made
    bool ended = false;
};

/// Guards captures, and what streams and events know of them.
std::mutex& captures();

/// Breaks the capture that the calling thread has begun and not ended, if there is one. For calls that are not allowed
/// in it whatever their stream (cudaStreamCaptureModeThreadLocal).
cudaError_t refuse_unsafe();

/// What a broken GPU answers to every call; cudaSuccess of one that works.
cudaError_t fault_of(int device);
void break_gpu(int device, cudaError_t status, const std::string& why);

/// All that is queued on a GPU is done.
void drain(int device);

/// ORRERY_STANDIN_PLANT=NAME: the mistake of this name is made for the plugin (README.md).
bool planted(const char* name);

}  // namespace orrery::standin

struct CUstream_st {
    explicit CUstream_st(int device);
    /// When all that is queued is done.
    ~CUstream_st();
    CUstream_st(const CUstream_st&) = delete;
    CUstream_st& operator=(const CUstream_st&) = delete;

    /// Queues work, or records it where the stream is captured. What it throws breaks the GPU.
    cudaError_t add(orrery::standin::Work work);
    /// A point behind all that is queued, never recorded.
    std::shared_ptr<orrery::standin::Point> mark();

    const int device;
    // Under captures().
    std::shared_ptr<orrery::standin::Capture> capture;
    std::vector<size_t> frontier;  ///< nodes that the next one comes behind
    size_t lane = 0;

private:
    void push(orrery::standin::Work work);
    void run();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<orrery::standin::Work> work_;
    bool over_ = false;
    std::thread thread_;
};

struct CUevent_st {
    int device = 0;
    bool timed = true;
    // Under captures(). Null: never recorded, so done.
    std::shared_ptr<orrery::standin::Point> point;
    std::shared_ptr<orrery::standin::Capture> capture;
    std::vector<size_t> frontier;
};

struct CUgraph_st {
    std::shared_ptr<const orrery::standin::Graph> graph;
};

struct CUgraphExec_st {
    std::shared_ptr<const orrery::standin::Graph> graph;
};
