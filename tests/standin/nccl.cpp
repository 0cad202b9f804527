// NCCL: communicators that never block, groups of messages, and collectives as kernels of the caller's stream.
#include <nccl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "standin/calls.h"
#include "standin/memory.h"
#include "standin/reduce.h"
#include "standin/stream.h"
#include "standin/world.h"

namespace orrery::standin {

namespace {

/// What a call asks of all members, or of two. Members compare it before they move a byte.
struct Ask {
    enum What : uint32_t { all_reduce, all_gather, reduce_scatter, broadcast, message } what = message;
    uint32_t type = 0, op = 0, root = 0;
    uint64_t count = 0;

    bool operator==(const Ask&) const = default;
    std::string text() const {
        const char* const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "message"};
        return std::string(names[what]) + " of " + std::to_string(count) + " elements of type " + std::to_string(type);
    }
};

/// A call of a member. `peer`, `sends`: of messages.
struct Request {
    Ask ask;
    const char* from = nullptr;
    char* to = nullptr;
    int peer = 0;
    bool sends = false;
};

/// What goes to a stream as one kernel: a collective, or the messages of a group.
struct Kernel {
    std::vector<Request> requests;
    CUstream_st* stream = nullptr;
    bool collective() const { return requests.front().ask.what != Ask::message; }
};

/// What calls, kernels and captured steps hold of a communicator.
struct State {
    State(const std::string& name, int members, int me) : name(name), world(name), members(members), me(me) {}
    ~State() {
        if (!started && me == 0) World::forget(name);
    }

    const std::string name;
    World world;
    const int members, me;
    std::atomic<bool> over{false};
    std::atomic<int> queued{0};  ///< kernels on streams
    std::atomic<int> kept{0};    ///< kernels that captures and graphs hold
    std::mutex mutex;            // guards what is below
    bool started = false, finalizing = false;
    ncclResult_t error = ncclSuccess;
    std::optional<Kernel> coming;  ///< waits for the other side of a connection

    void fail(ncclResult_t why, const std::string& text);
    bool connected(const Kernel& kernel) const;
};

struct LastError {
    std::mutex mutex;
    std::string text;
};
LastError& last() {
    static LastError& one = *new LastError;
    return one;
}

ncclResult_t refuse(ncclResult_t why, const std::string& text) {
    const std::lock_guard lock(last().mutex);
    last().text = text;
    return why;
}

void State::fail(ncclResult_t why, const std::string& text) {
    refuse(why, text);
    const std::lock_guard lock(mutex);
    if (error == ncclSuccess) error = why;
}

/// Says that this member has come, and whether all others that it needs have.
bool State::connected(const Kernel& kernel) const {
    bool all = true;
    const auto side = [&](Kind kind, int from, int to, int mine) {
        std::atomic<int>& both = world->connection[static_cast<int>(kind)][from][to];
        all &= ((both.fetch_or(mine) | mine) == 3);
    };
    for (const Request& r : kernel.requests) {
        if (r.ask.what == Ask::message) {
            r.sends ? side(Kind::message, me, r.peer, 1) : side(Kind::message, r.peer, me, 2);
            continue;
        }
        for (int other = 0; other < members; ++other) {
            if (other == me) continue;
            side(Kind::collective, me, other, 1);
            side(Kind::collective, other, me, 2);
        }
    }
    return all;
}

/// A kernel at work. Each step returns false when the communicator is over, or the members do not agree.
class Running {
public:
    Running(State& state, const Kernel& kernel)
        : s_(state), kernel_(kernel), over_([this] { return s_.over.load(); }) {}

    void run() {
        if (s_.over) return;
        if (!kernel_.collective()) {
            messages();
            return;
        }
        const Request& r = kernel_.requests.front();
        if (!agree(r.ask)) return;
        switch (r.ask.what) {
            case Ask::all_reduce: all_reduce(r); return;
            case Ask::all_gather: all_gather(r); return;
            case Ask::reduce_scatter: reduce_scatter(r, r.to); return;
            case Ask::broadcast: broadcast(r); return;
            case Ask::message: return;
        }
    }

private:
    Transfers transfers() const { return {s_.world, kernel_.collective() ? Kind::collective : Kind::message, s_.me}; }
    template <class Each>
    void others(Each each) const {
        for (int other = 0; other < s_.members; ++other)
            if (other != s_.me) each(other);
    }

    /// NCCL would hang or mix up bytes. Here it is told.
    bool agree(const Ask& mine) {
        std::vector<Ask> asks(static_cast<size_t>(s_.members));
        Transfers t = transfers();
        others([&](int other) {
            t.send(other, &mine, sizeof mine);
            t.receive(other, &asks[static_cast<size_t>(other)], sizeof mine);
        });
        if (!t.run(over_)) return false;
        bool same = true;
        others([&](int other) { same = same && expect(mine, asks[static_cast<size_t>(other)], other); });
        return same;
    }
    bool expect(const Ask& mine, const Ask& other, int member) {
        if (mine == other) return true;
        s_.fail(ncclInvalidUsage, "member " + std::to_string(s_.me) + " calls " + mine.text() + ", member " +
                                      std::to_string(member) + " " + other.text());
        return false;
    }

    /// All of a group side by side, each behind what it says of itself.
    void messages() {
        std::vector<Ask> asks(kernel_.requests.size());
        Transfers t = transfers();
        for (size_t i = 0; i < asks.size(); ++i) {
            const Request& r = kernel_.requests[i];
            if (r.sends) {
                t.send(r.peer, &r.ask, sizeof r.ask);
                t.send(r.peer, r.from, bytes_of(r.ask));
            } else {
                t.receive(r.peer, &asks[i], sizeof r.ask,
                          [this, &r, &ask = asks[i]] { return expect(r.ask, ask, r.peer); });
                t.receive(r.peer, r.to, bytes_of(r.ask));
            }
        }
        t.run(over_);
    }

    static size_t bytes_of(const Ask& ask) { return ask.count * size_of(static_cast<ncclDataType_t>(ask.type)); }

    bool all_gather(const Request& r) {
        const size_t bytes = bytes_of(r.ask);
        std::memmove(r.to + static_cast<size_t>(s_.me) * bytes, r.from, bytes);
        Transfers t = transfers();
        others([&](int other) {
            t.send(other, r.to + static_cast<size_t>(s_.me) * bytes, bytes);
            t.receive(other, r.to + static_cast<size_t>(other) * bytes, bytes);
        });
        return t.run(over_);
    }

    /// Block `b` of `in` is bounds[b] .. bounds[b+1] in elements. Adds in the order of a ring that ends with its owner.
    bool scatter(const Request& r, const char* in, const std::vector<size_t>& bounds, char* out) {
        const auto type = static_cast<ncclDataType_t>(r.ask.type);
        const size_t size = size_of(type), me = static_cast<size_t>(s_.me);
        const size_t count = bounds[me + 1] - bounds[me];
        std::vector<std::vector<char>> blocks(static_cast<size_t>(s_.members), std::vector<char>(count * size));
        if (count > 0) std::memcpy(blocks[me].data(), in + bounds[me] * size, count * size);
        Transfers t = transfers();
        others([&](int other) {
            const auto o = static_cast<size_t>(other);
            t.send(other, in + bounds[o] * size, (bounds[o + 1] - bounds[o]) * size);
            t.receive(other, blocks[o].data(), count * size);
        });
        if (!t.run(over_)) return false;
        std::vector<char>& sum = blocks[(me + 1) % blocks.size()];
        for (size_t i = 2; i <= blocks.size(); ++i)
            combine(type, static_cast<ncclRedOp_t>(r.ask.op), sum.data(), blocks[(me + i) % blocks.size()].data(),
                    count);
        if (count > 0) std::memcpy(out, sum.data(), count * size);
        return true;
    }

    bool reduce_scatter(const Request& r, char* out) {
        std::vector<size_t> bounds;
        for (int i = 0; i <= s_.members; ++i) bounds.push_back(static_cast<size_t>(i) * r.ask.count);
        return scatter(r, r.from, bounds, out);
    }

    void all_reduce(const Request& r) {
        const size_t size = size_of(static_cast<ncclDataType_t>(r.ask.type));
        const auto members = static_cast<size_t>(s_.members);
        std::vector<size_t> bounds;
        for (size_t i = 0; i <= members; ++i) bounds.push_back(r.ask.count * i / members);
        const size_t me = static_cast<size_t>(s_.me), count = bounds[me + 1] - bounds[me];
        std::vector<char> mine(count * size);
        if (!scatter(r, r.from, bounds, mine.data())) return;
        Transfers t = transfers();
        others([&](int other) {
            const auto o = static_cast<size_t>(other);
            t.send(other, mine.data(), mine.size());
            t.receive(other, r.to + bounds[o] * size, (bounds[o + 1] - bounds[o]) * size);
        });
        if (t.run(over_) && count > 0) std::memcpy(r.to + bounds[me] * size, mine.data(), mine.size());
    }

    void broadcast(const Request& r) {
        const int root = static_cast<int>(r.ask.root);
        Transfers t = transfers();
        if (root != s_.me)
            t.receive(root, r.to, bytes_of(r.ask));
        else
            others([&](int other) { t.send(other, r.from, bytes_of(r.ask)); });
        if (t.run(over_) && root == s_.me && r.from != r.to) std::memmove(r.to, r.from, bytes_of(r.ask));
    }

    State& s_;
    const Kernel& kernel_;
    const std::function<bool()> over_;
};

/// A kernel on its way, or in a graph: counted until nobody holds it.
struct Held {
    Held(std::shared_ptr<State> state, Kernel kernel, bool captured)
        : state(std::move(state)), kernel(std::move(kernel)), captured(captured) {
        ++(captured ? this->state->kept : this->state->queued);
    }
    ~Held() { --(captured ? state->kept : state->queued); }
    const std::shared_ptr<State> state;
    const Kernel kernel;
    const bool captured;
};

ncclResult_t put(const std::shared_ptr<State>& state, Kernel kernel) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CUstream_st* const stream = kernel.stream;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) return ncclUnhandledCudaError;
    const auto held = std::make_shared<const Held>(state, std::move(kernel), status != cudaStreamCaptureStatusNone);
    const cudaError_t put = stream->add([held] { Running(*held->state, held->kernel).run(); });
    return put == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, cudaGetErrorString(put));
}

}  // namespace

}  // namespace orrery::standin

using namespace orrery::standin;

struct ncclComm {
    std::shared_ptr<State> state;
    int device = 0;
};

namespace {

/// Of the calling thread: what ncclGroupStart has opened.
struct OpenGroup {
    int depth = 0;
    std::vector<std::pair<ncclComm_t, Kernel>> kernels;  ///< in the order of their first calls
};
thread_local OpenGroup group;

ncclResult_t begin(ncclComm_t comm, Kernel kernel) {
    State& s = *comm->state;
    {
        const std::lock_guard lock(s.mutex);
        if (s.error != ncclSuccess) return s.error;
        if (!s.started || s.coming || s.finalizing)
            return refuse(ncclInvalidUsage, "a call while the communicator is busy with another");
        if (!s.connected(kernel)) {
            s.coming = std::move(kernel);
            return ncclInProgress;
        }
    }
    return put(comm->state, std::move(kernel));
}

/// Addresses of bytes, and in a group with the others of the communicator's messages.
ncclResult_t request(ncclComm_t comm, cudaStream_t stream, Request r, size_t bytes_in, size_t bytes_out) {
    if (!comm || !stream || stream->device != comm->device) return ncclInvalidArgument;
    if (r.peer < 0 || r.peer >= comm->state->members) return refuse(ncclInvalidArgument, "there is no such member");
    try {
        r.from = static_cast<const char*>(kept(r.from, bytes_in));
        r.to = static_cast<char*>(kept(r.to, bytes_out));
    } catch (const KernelFault& fault) {
        return refuse(ncclInvalidArgument, fault.what());
    }
    if (r.ask.what != Ask::message || group.depth == 0) return begin(comm, Kernel{{r}, stream});
    const auto same = [&](const auto& one) { return one.first == comm && one.second.stream == stream; };
    const auto found = std::find_if(group.kernels.begin(), group.kernels.end(), same);
    if (found != group.kernels.end())
        found->second.requests.push_back(r);
    else
        group.kernels.emplace_back(comm, Kernel{{r}, stream});
    return ncclSuccess;
}

Ask ask(Ask::What what, ncclDataType_t type, size_t count, ncclRedOp_t op = ncclSum, int root = 0) {
    return {what, static_cast<uint32_t>(type), static_cast<uint32_t>(op), static_cast<uint32_t>(root), count};
}

/// Starting: all members have come, each with a GPU of its own. Under the mutex.
ncclResult_t starting(State& s) {
    for (int i = 0; i < s.members; ++i)
        if (!s.world->member[i].here.load(std::memory_order_acquire)) return ncclInProgress;
    for (int i = 0; i < s.members; ++i)
        for (int j = 0; j < i; ++j)
            if (std::strcmp(s.world->member[i].gpu, s.world->member[j].gpu) == 0)
                return s.error = refuse(ncclInvalidUsage, "Duplicate GPU detected");
    s.started = true;
    if (s.me == 0) World::forget(s.name);
    return ncclSuccess;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error";
        case ncclSystemError: return "unhandled system error";
        case ncclInvalidArgument: return "invalid argument";
        case ncclInvalidUsage: return "invalid usage";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
    }
    return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) {
    thread_local std::string copy;
    const std::lock_guard lock(last().mutex);
    copy = last().text;
    return copy.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    try {
        const std::string name = World::create();
        std::memset(id, 0, sizeof *id);
        std::memcpy(id->internal, name.data(), name.size());
        return ncclSuccess;
    } catch (const std::exception& failure) {
        return refuse(ncclSystemError, failure.what());
    }
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    *comm = nullptr;
    if (config->magic != 0xcafebeef || config->size != sizeof *config) return ncclInvalidArgument;
    if (config->blocking != 0) return refuse(ncclInvalidUsage, "the stand-in has no blocking communicators");
    if (ranks < 1 || ranks > most_members || rank < 0 || rank >= ranks) return ncclInvalidArgument;
    try {
        auto state = std::make_shared<State>(id.internal, ranks, rank);
        Shared::Member& mine = state->world->member[rank];
        if (cudaDeviceGetPCIBusId(mine.gpu, sizeof mine.gpu, current_device()) != cudaSuccess)
            return ncclUnhandledCudaError;
        mine.here.store(true, std::memory_order_release);
        *comm = new ncclComm{state, current_device()};
        return ncclInProgress;
    } catch (const std::exception& failure) {
        return refuse(ncclSystemError, failure.what());
    }
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    State& s = *comm->state;
    std::optional<Kernel> ready;
    {
        const std::lock_guard lock(s.mutex);
        *error = s.error;
        if (s.error != ncclSuccess) return ncclSuccess;
        if (!s.started) return *error = starting(s), ncclSuccess;
        if (s.finalizing) return *error = s.queued > 0 || s.kept > 0 ? ncclInProgress : ncclSuccess, ncclSuccess;
        if (!s.coming) return ncclSuccess;
        *error = ncclInProgress;
        if (!s.connected(*s.coming)) return ncclSuccess;
        ready = std::exchange(s.coming, std::nullopt);
        // Under the lock: who sees no error must find the kernel on its stream.
        *error = put(comm->state, std::move(*ready));
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    const std::lock_guard lock(comm->state->mutex);
    comm->state->finalizing = true;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    while (comm->state->queued > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    delete comm;
    return ncclSuccess;
}

/// What runs ends, and what a graph holds does nothing from now on.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->state->over = true;
    return ncclCommDestroy(comm);
}

ncclResult_t ncclGroupStart() {
    if (planted("no_group")) return ncclSuccess;
    ++group.depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (planted("no_group")) return ncclSuccess;
    if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0) return ncclSuccess;
    ncclResult_t worst = ncclSuccess;
    for (auto& [comm, kernel] : std::exchange(group.kernels, {})) {
        if (planted("lost_message") && comm->state->me == 1 && kernel.requests.size() > 1) kernel.requests.pop_back();
        const ncclResult_t status = begin(comm, std::move(kernel));
        if (worst == ncclSuccess) worst = status;
    }
    return worst;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    Request r{ask(Ask::message, type, count), static_cast<const char*>(from), nullptr, peer, true};
    return request(comm, stream, r, count * size_of(type), 0);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    Request r{ask(Ask::message, type, count), nullptr, static_cast<char*>(to), peer, false};
    return request(comm, stream, r, 0, count * size_of(type));
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    const size_t asked = planted("other_count") && comm->state->me == 1 && count > 1 ? count - 1 : count;
    Request r{ask(Ask::all_reduce, type, asked, op), static_cast<const char*>(from), static_cast<char*>(to)};
    return request(comm, stream, r, count * size_of(type), count * size_of(type));
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    const size_t bytes = count * size_of(type), members = static_cast<size_t>(comm->state->members);
    Request r{ask(Ask::all_gather, type, count), static_cast<const char*>(from), static_cast<char*>(to)};
    return request(comm, stream, r, bytes, bytes * members);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    const size_t bytes = count * size_of(type), members = static_cast<size_t>(comm->state->members);
    Request r{ask(Ask::reduce_scatter, type, count, op), static_cast<const char*>(from), static_cast<char*>(to)};
    return request(comm, stream, r, bytes * members, bytes);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    if (root < 0 || root >= comm->state->members) return refuse(ncclInvalidArgument, "there is no such root");
    Request r{ask(Ask::broadcast, type, count, ncclSum, root), static_cast<const char*>(from), static_cast<char*>(to)};
    return request(comm, stream, r, count * size_of(type), count * size_of(type));
}

}  // extern "C"
