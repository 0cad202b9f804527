// The stand-in itself: what would hide a mistake of the plugins must not be possible on it.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "standin/memory.h"
#include "standin/stream.h"

using namespace orrery;
using namespace std::chrono_literals;

namespace {

void good(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorName(status));  // in threads, too
}

/// A stream and an event of GPU `device`.
struct Lane {
    explicit Lane(int device = 0) {
        good(cudaSetDevice(device));
        good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    ~Lane() {
        cudaEventDestroy(event);
        cudaStreamDestroy(stream);
    }
    Lane(const Lane&) = delete;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
};

/// Work of a stream that a test holds.
struct Held {
    std::atomic<bool> go{false}, came{false};
    static void wait(void* self) {
        auto* const held = static_cast<Held*>(self);
        held->came = true;
        while (!held->go) std::this_thread::sleep_for(100us);
    }
    static void pass(void* self) { static_cast<Held*>(self)->came = true; }
};

void soon(const std::atomic<bool>& flag) {
    for (int i = 0; i < 50'000 && !flag; ++i) std::this_thread::sleep_for(100us);
    REQUIRE(flag);
}

/// Long enough for work that nothing holds.
void a_while() { std::this_thread::sleep_for(30ms); }

struct Capture {
    explicit Capture(Lane& lane) : lane(lane) {
        good(cudaStreamBeginCapture(lane.stream, cudaStreamCaptureModeThreadLocal));
    }
    cudaError_t end() { return cudaStreamEndCapture(lane.stream, &graph); }
    ~Capture() {
        if (graph) cudaGraphDestroy(graph);
        cudaGetLastError();
    }
    Lane& lane;
    cudaGraph_t graph = nullptr;
};

}  // namespace

TEST_CASE("stand-in: the host cannot touch a GPU's memory, and can touch pinned memory") {
    void *there = nullptr, *pinned = nullptr;
    good(cudaSetDevice(0));
    good(cudaMalloc(&there, 64));
    good(cudaHostAlloc(&pinned, 64, cudaHostAllocPortable));
    const pid_t child = ::fork();
    if (child == 0) {
        std::signal(SIGSEGV, SIG_DFL);  // Catch2 would report a failure
        static_cast<volatile char*>(pinned)[0] = 1;
        const char seen = static_cast<volatile char*>(there)[0];
        ::_exit(seen == 0 ? 1 : 2);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    CHECK(cudaFree(pinned) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    good(cudaFree(there));
    good(cudaFreeHost(pinned));
}

TEST_CASE("stand-in: a stream waits for an event as it was recorded, and for nothing else") {
    Lane a, b;
    Held first, second, after;
    good(cudaLaunchHostFunc(a.stream, Held::wait, &first));
    good(cudaEventRecord(a.event, a.stream));
    good(cudaLaunchHostFunc(a.stream, Held::wait, &second));
    good(cudaStreamWaitEvent(b.stream, a.event));
    good(cudaEventRecord(a.event, a.stream));  // b goes on waiting for the first
    good(cudaLaunchHostFunc(b.stream, Held::pass, &after));
    soon(first.came);
    a_while();
    CHECK_FALSE(after.came);
    CHECK(cudaEventQuery(a.event) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaSuccess);  // not ready is no error
    first.go = true;
    soon(after.came);
    CHECK(cudaEventQuery(a.event) == cudaErrorNotReady);
    second.go = true;
    good(cudaEventSynchronize(a.event));
    good(cudaStreamSynchronize(b.stream));
}

TEST_CASE("stand-in: calls that a capture forbids break it") {
    Lane a, other;
    void* memory = nullptr;
    good(cudaMalloc(&memory, 64));
    good(cudaEventRecord(other.event, other.stream));
    char ordinary[64] = {};
    int other_gpus = 0;
    const std::function<cudaError_t()> calls[] = {
        [&] { return cudaStreamSynchronize(a.stream); },
        [&] { return cudaStreamSynchronize(other.stream); },
        [&] { return cudaEventSynchronize(other.event); },
        [&] { return cudaEventQuery(other.event); },
        [&] { return cudaDeviceSynchronize(); },
        [&] { return cudaFree(memory); },
        [&] { return cudaMemcpyAsync(memory, ordinary, 64, cudaMemcpyDefault, a.stream); },
        [&] { return cudaMemcpy(memory, ordinary, 64, cudaMemcpyHostToDevice); },
        [&] {
            void* more = nullptr;
            return cudaMalloc(&more, 64);
        },
        [&] { return cudaEventRecord(a.event, a.stream), cudaEventQuery(a.event); },
        [&] { return cudaStreamWaitEvent(a.stream, other.event); },  // which is of no capture
    };
    for (const auto& call : calls) {
        Capture capture(a);
        CHECK(call() != cudaSuccess);
        CHECK(capture.end() == cudaErrorStreamCaptureInvalidated);
    }
    {
        Capture capture(a);
        good(cudaGetDeviceCount(&other_gpus));
        good(cudaMemsetAsync(memory, 0, 64, a.stream));
        CHECK(capture.end() == cudaSuccess);
    }
    std::thread([&] {  // another thread's calls do not count
        good(cudaSetDevice(0));
        good(cudaStreamSynchronize(other.stream));
    })
        .join();
    good(cudaFree(memory));
}

TEST_CASE("stand-in: a capture that leaves a stream's work behind is none") {
    Lane a, b;
    for (const bool joins : {false, true}) {
        Held held;
        held.go = true;
        Capture capture(a);
        good(cudaEventRecord(a.event, a.stream));
        good(cudaStreamWaitEvent(b.stream, a.event));
        good(cudaLaunchHostFunc(b.stream, Held::wait, &held));
        if (joins) {
            good(cudaEventRecord(b.event, b.stream));
            good(cudaStreamWaitEvent(a.stream, b.event));
        }
        CHECK(capture.end() == (joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
        good(cudaStreamSynchronize(b.stream));
        CHECK_FALSE(held.came);  // recorded, not run
    }
}

TEST_CASE("stand-in: a graph's streams go side by side, and wait where the capture did") {
    Lane a, b;
    for (const bool waits : {false, true}) {
        Held held, passes;
        Capture capture(a);
        good(cudaEventRecord(a.event, a.stream));
        good(cudaStreamWaitEvent(b.stream, a.event));
        good(cudaLaunchHostFunc(b.stream, Held::wait, &held));
        good(cudaEventRecord(b.event, b.stream));
        if (waits) good(cudaStreamWaitEvent(a.stream, b.event));
        good(cudaLaunchHostFunc(a.stream, Held::pass, &passes));
        if (!waits) good(cudaStreamWaitEvent(a.stream, b.event));
        good(capture.end());
        cudaGraphExec_t ready = nullptr;
        good(cudaGraphInstantiate(&ready, capture.graph, 0));
        for (int round = 0; round < 3; ++round) {
            held.go = held.came = passes.came = false;
            good(cudaGraphLaunch(ready, a.stream));
            soon(held.came);
            if (waits)
                a_while();
            else
                soon(passes.came);
            CHECK(passes.came == !waits);
            held.go = true;
            good(cudaStreamSynchronize(a.stream));
            CHECK(passes.came);
        }
        good(cudaGraphExecDestroy(ready));
    }
}

TEST_CASE("stand-in: a copy beyond an allocation is refused, and a failed kernel breaks its GPU alone") {
    Lane broken(7), well(0);
    void* memory = nullptr;
    good(cudaMalloc(&memory, 64));
    CHECK(cudaMemsetAsync(memory, 0, 65, well.stream) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    good(broken.stream->add([] { throw standin::KernelFault(cudaErrorIllegalAddress, "of a test"); }));
    CHECK(cudaStreamSynchronize(broken.stream) == cudaErrorIllegalAddress);
    CHECK(cudaEventRecord(broken.event, broken.stream) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    good(cudaStreamSynchronize(well.stream));
    good(cudaFree(memory));
}

namespace {

/// Members as threads, each with a GPU, memory of `floats` of them, and a communicator.
class Members {
public:
    static constexpr size_t floats = 100'000;  // more than a channel holds
    struct Member {
        int me;
        Lane lane;
        ncclComm_t comm;
        float* memory;
        explicit Member(int me) : me(me), lane(me) {}
        /// Until the communicator has taken a call, or says why not.
        ncclResult_t settled(ncclResult_t status) const {
            while (status == ncclInProgress) {
                std::this_thread::sleep_for(100us);
                ncclCommGetAsyncError(comm, &status);
            }
            return status;
        }
        /// Waits until a kernel ends or is known to fail.
        ncclResult_t ended() const {
            cudaEventRecord(lane.event, lane.stream);
            ncclResult_t status = ncclSuccess;
            while (cudaEventQuery(lane.event) == cudaErrorNotReady && status == ncclSuccess) {
                std::this_thread::sleep_for(100us);
                ncclCommGetAsyncError(comm, &status);
            }
            ncclCommGetAsyncError(comm, &status);
            return status;
        }
    };

    template <class Body>
    static void run(int size, Body body) {
        ncclUniqueId id{};
        REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        std::vector<std::thread> threads;
        for (int me = 0; me < size; ++me)
            threads.emplace_back([&, me] {
                Member m(me);
                void* memory = nullptr;
                cudaHostAlloc(&memory, floats * 4, cudaHostAllocPortable);
                m.memory = static_cast<float*>(memory);
                std::iota(m.memory, m.memory + floats, static_cast<float>(me) * 1000);
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = 0;
                m.settled(ncclCommInitRankConfig(&m.comm, size, id, me, &config));
                body(m);
                ncclCommAbort(m.comm);
                cudaFreeHost(memory);
            });
        for (std::thread& thread : threads) thread.join();
    }
};

}  // namespace

TEST_CASE("stand-in: members that do not agree are told") {
    ncclResult_t ends[2] = {};
    Members::run(2, [&](Members::Member& m) {
        const size_t count = m.me == 0 ? 10 : 11;
        m.settled(ncclAllReduce(m.memory, m.memory, count, ncclFloat32, ncclSum, m.comm, m.lane.stream));
        ends[m.me] = m.ended();
    });
    CHECK(ends[0] == ncclInvalidUsage);
    CHECK(ends[1] == ncclInvalidUsage);
    CHECK_THAT(ncclGetLastError(nullptr), Catch::Matchers::Contains("all_reduce of 11"));
}

TEST_CASE("stand-in: a send is done when it is received, in a group or not") {
    std::atomic<bool> early{false}, receives{false};
    ncclResult_t ends[2] = {};
    Members::run(2, [&](Members::Member& m) {
        if (m.me == 0) {
            m.settled(ncclSend(m.memory, 1, ncclFloat32, 1, m.comm, m.lane.stream));  // makes the connection
            m.settled(ncclSend(m.memory, 1, ncclFloat32, 1, m.comm, m.lane.stream));
            cudaEventRecord(m.lane.event, m.lane.stream);
            std::this_thread::sleep_for(20ms);
            early = cudaEventQuery(m.lane.event) == cudaSuccess;
            receives = true;
        } else {
            m.settled(ncclRecv(m.memory, 1, ncclFloat32, 0, m.comm, m.lane.stream));
            while (!receives) std::this_thread::sleep_for(100us);
            m.settled(ncclRecv(m.memory, 1, ncclFloat32, 0, m.comm, m.lane.stream));
        }
        ends[m.me] = m.ended();
    });
    CHECK_FALSE(early);
    CHECK(ends[0] == ncclSuccess);
    CHECK(ends[1] == ncclSuccess);
}

TEST_CASE("stand-in: messages of a group of any order pass each other") {
    bool right[3] = {};
    Members::run(3, [&](Members::Member& m) {
        const int next = (m.me + 1) % 3, before = (m.me + 2) % 3;
        const size_t half = Members::floats / 2;
        ncclGroupStart();
        ncclSend(m.memory, half, ncclFloat32, next, m.comm, m.lane.stream);
        ncclSend(m.memory + 1, 5, ncclFloat32, next, m.comm, m.lane.stream);
        ncclRecv(m.memory + half, half - 5, ncclFloat32, before, m.comm, m.lane.stream);
        ncclRecv(m.memory, 5, ncclFloat32, m.me, m.comm, m.lane.stream);
        ncclSend(m.memory + 7, 5, ncclFloat32, m.me, m.comm, m.lane.stream);
        const ncclResult_t status = m.settled(ncclGroupEnd());
        right[m.me] = status == ncclSuccess && m.ended() == ncclInvalidUsage;  // half is not half - 5
    });
    for (const bool one : right) CHECK(one);
    Members::run(3, [&](Members::Member& m) {
        const int next = (m.me + 1) % 3, before = (m.me + 2) % 3;
        const size_t half = Members::floats / 2;
        ncclGroupStart();
        ncclRecv(m.memory + half, half, ncclFloat32, before, m.comm, m.lane.stream);
        ncclSend(m.memory, half, ncclFloat32, next, m.comm, m.lane.stream);
        const ncclResult_t status = m.settled(ncclGroupEnd());
        right[m.me] = status == ncclSuccess && m.ended() == ncclSuccess &&
                      m.memory[Members::floats - 1] == static_cast<float>(before * 1000) + static_cast<float>(half - 1);
    });
    for (const bool one : right) CHECK(one);
}
