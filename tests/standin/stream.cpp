#include "standin/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>
#include <string_view>

#include "standin/memory.h"

namespace orrery::standin {

namespace {

constexpr auto longest_wait = std::chrono::minutes(1);

struct Streams {
    std::mutex mutex;
    std::set<CUstream_st*> all;
};

Streams& streams() {
    static Streams& one = *new Streams;
    return one;
}

std::array<std::atomic<int>, gpus>& faults() {
    static auto& all = *new std::array<std::atomic<int>, gpus>{};
    return all;
}

/// Work is late now and then, so that whoever does not wait for it is found out.
void be_late() {
    thread_local uint32_t draws = static_cast<uint32_t>(std::hash<std::thread::id>()(std::this_thread::get_id()));
    draws = draws * 1664525u + 1013904223u;
    if (draws >> 28 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

/// One run of a graph. Its lanes wait for each other's nodes.
class Run {
public:
    explicit Run(const Graph& graph) : graph_(graph), done_(graph.nodes.size()) {}

    void all() {
        std::vector<std::thread> others;
        for (size_t l = 1; l < graph_.lanes; ++l) others.emplace_back([this, l] { lane(l); });
        lane(0);
        for (std::thread& other : others) other.join();
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    void lane(size_t which) {
        for (size_t i = 0; i < graph_.nodes.size(); ++i) {
            const Node& node = graph_.nodes[i];
            if (node.lane != which) continue;
            const bool works = await(node);
            std::exception_ptr failure;
            try {
                be_late();
                if (works) node.work();
            } catch (...) {
                failure = std::current_exception();
            }
            const std::lock_guard lock(mutex_);
            if (!failure_) failure_ = failure;
            done_[i] = true;
            changed_.notify_all();
        }
    }

    /// false: one of the nodes has failed, and nothing runs any more.
    bool await(const Node& node) {
        std::unique_lock lock(mutex_);
        for (const size_t before : node.after) changed_.wait(lock, [&] { return done_[before]; });
        return !failure_;
    }

    const Graph& graph_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<bool> done_;
    std::exception_ptr failure_;
};

}  // namespace

void Point::set() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    time_ = Clock::now();
    changed_.notify_all();
}

void Point::wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, longest_wait, [&] { return done_; }))
        throw KernelFault(cudaErrorLaunchTimeout, "queued work hangs");
}

bool Point::done() {
    const std::lock_guard lock(mutex_);
    return done_;
}

Clock::time_point Point::time() {
    const std::lock_guard lock(mutex_);
    return time_;
}

void Graph::run() const { Run(*this).all(); }

std::mutex& captures() {
    static std::mutex& one = *new std::mutex;
    return one;
}

cudaError_t fault_of(int device) { return static_cast<cudaError_t>(faults()[static_cast<size_t>(device)].load()); }

void break_gpu(int device, cudaError_t status, const std::string& why) {
    int none = cudaSuccess;
    if (!faults()[static_cast<size_t>(device)].compare_exchange_strong(none, status)) return;
    std::fprintf(stderr, "stand-in: GPU %d is broken: %s\n", device, why.c_str());
}

void drain(int device) {
    std::vector<std::shared_ptr<Point>> points;
    {
        Streams& s = streams();
        const std::lock_guard lock(s.mutex);
        for (CUstream_st* stream : s.all)
            if (stream->device == device) points.push_back(stream->mark());
    }
    for (const auto& point : points) point->wait();
}

bool planted(const char* name) {
    const char* const wanted = std::getenv("ORRERY_STANDIN_PLANT");
    return wanted && std::string_view(wanted) == name;
}

}  // namespace orrery::standin

using namespace orrery::standin;

CUstream_st::CUstream_st(int device) : device(device), thread_([this] { run(); }) {
    Streams& s = streams();
    const std::lock_guard lock(s.mutex);
    s.all.insert(this);
}

CUstream_st::~CUstream_st() {
    {
        Streams& s = streams();
        const std::lock_guard lock(s.mutex);
        s.all.erase(this);
    }
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

cudaError_t CUstream_st::add(Work work) {
    {
        const std::lock_guard lock(captures());
        if (capture) {
            if (capture->broken) return cudaErrorStreamCaptureInvalidated;
            std::vector<Node>& nodes = capture->graph.nodes;
            nodes.push_back({std::move(work), std::move(frontier), lane});
            frontier = {nodes.size() - 1};
            return cudaSuccess;
        }
    }
    if (const cudaError_t fault = fault_of(device); fault != cudaSuccess) return fault;
    push(std::move(work));
    return cudaSuccess;
}

std::shared_ptr<Point> CUstream_st::mark() {
    auto point = std::make_shared<Point>();
    push([point] { point->set(); });
    return point;
}

void CUstream_st::push(Work work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
}

/// A broken GPU goes on, so that whoever waits does: every call says that it is broken.
void CUstream_st::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return over_ || !work_.empty(); });
        if (work_.empty()) return;
        Work work = std::move(work_.front());
        work_.pop_front();
        lock.unlock();
        try {
            be_late();
            work();
        } catch (const KernelFault& fault) {
            break_gpu(device, fault.status, fault.what());
        } catch (const std::exception& failure) {
            break_gpu(device, cudaErrorLaunchFailure, failure.what());
        }
        work = nullptr;
        lock.lock();
    }
}
