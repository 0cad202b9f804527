#include "memory.h"

#include <algorithm>
#include <cstring>

#include "failure.h"

namespace orrery::cuda_device {

namespace {

constexpr int64_t piece_bytes = 4 << 20;
constexpr size_t pieces = 4;

std::string mib(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

Arenas::~Arenas() {
    while (!all_.empty()) release(all_.back());
}

Memory Arenas::allocate(int64_t bytes, MemoryKind kind) {
    if (kind == MemoryKind::shared)
        throw Error(
            "device cuda: host memory that other processes map is not the GPU's; take a transport that does not "
            "need it (nccl, gloo, ucx)");
    Memory memory{nullptr, bytes, kind, {}};
    const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    require(cudaSetDevice(device_), "choosing the GPU");
    const cudaError_t status = kind == MemoryKind::pinned ? cudaHostAlloc(&memory.data, size, cudaHostAllocPortable)
                                                          : cudaMalloc(&memory.data, size);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // it stays for the next caller otherwise
        size_t free = 0, total = 0;
        cudaMemGetInfo(&free, &total);
        throw Error("device cuda: " + mib(bytes) + (kind == MemoryKind::pinned ? " of pinned host memory" : "") +
                        " asked for, " + mib(static_cast<int64_t>(free)) + " of " + mib(static_cast<int64_t>(total)) +
                        " free on GPU " + std::to_string(device_),
                    Fault::failed);
    }
    require(status, "allocating " + mib(bytes));
    const auto at = std::upper_bound(all_.begin(), all_.end(), memory.data,
                                     [](const void* data, const Memory& other) { return data < other.data; });
    all_.insert(at, memory);
    return memory;
}

void Arenas::release(Memory& memory) {
    const auto at = std::find_if(all_.begin(), all_.end(), [&](const Memory& m) { return m.data == memory.data; });
    if (at == all_.end()) return;
    // Nothing can be done about a failure here: the context is gone or broken, and said so before.
    if (at->kind == MemoryKind::pinned)
        cudaFreeHost(at->data);
    else
        cudaFree(at->data);
    const bool own = &memory == &*at;
    all_.erase(at);
    if (!own) memory = {};
}

int64_t Arenas::bytes() const {
    int64_t sum = 0;
    for (const Memory& memory : all_) sum += memory.bytes;
    return sum;
}

Arenas::Place Arenas::place_of(const void* data) const {
    auto at = std::upper_bound(all_.begin(), all_.end(), data,
                               [](const void* p, const Memory& other) { return p < other.data; });
    if (at == all_.begin()) return Place::elsewhere;
    --at;
    if (static_cast<const char*>(data) >= static_cast<const char*>(at->data) + at->bytes) return Place::elsewhere;
    return at->kind == MemoryKind::pinned ? Place::pinned : Place::gpu;
}

Staging::Staging(int device, const Arenas& arenas) : device_(device), arenas_(arenas) {}

Staging::~Staging() {
    for (Piece& piece : pieces_) {
        if (piece.free) cudaEventDestroy(piece.free);
        if (piece.data) cudaFreeHost(piece.data);
    }
}

void Staging::open() {
    pieces_.resize(pieces);
    for (Piece& piece : pieces_) {  // an earlier call may have failed half-way
        if (!piece.data) {
            void* data = nullptr;
            require(cudaHostAlloc(&data, piece_bytes, cudaHostAllocPortable), "allocating pinned memory for copies");
            piece.data = static_cast<char*>(data);
        }
        if (!piece.free) require(cudaEventCreateWithFlags(&piece.free, cudaEventDisableTiming), "making events");
    }
}

/// Memory that CUDA does not know. What it knows is pinned, or another GPU's.
bool Staging::ordinary(const void* data) {
    if (arenas_.place_of(data) != Arenas::Place::elsewhere) return false;
    cudaPointerAttributes about{};
    require(cudaPointerGetAttributes(&about, data), "reading the type of a pointer's memory");
    if (about.type == cudaMemoryTypeDevice && about.device != device_) reach(about.device);
    return about.type == cudaMemoryTypeUnregistered;
}

/// Lets this GPU read and write a peer's memory where the machine can; CUDA goes by the host where it cannot.
void Staging::reach(int peer) {
    if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end()) return;
    peers_.push_back(peer);
    int can = 0;
    require(cudaDeviceCanAccessPeer(&can, device_, peer), "checking for peer access to another GPU");
    if (!can) return;
    const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
    else
        require(status, "enabling peer access to another GPU");
}

/// A captured step would read the pieces as they are when it runs, and never fill or empty them.
void Staging::refuse_capture(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    require(cudaStreamIsCapturing(stream, &status), "checking for a stream capture");
    if (status != cudaStreamCaptureStatusNone)
        throw Error(
            "device cuda: a copy of ordinary host memory cannot be captured; memory allocated on the device or pinned "
            "can",
            Fault::failed);
}

void Staging::copy(cudaStream_t stream, void* to, const void* from, int64_t bytes) {
    if (bytes <= 0 || to == from) return;
    const bool from_host = ordinary(from), to_host = ordinary(to);
    if (from_host || to_host) refuse_capture(stream);
    auto* const out = static_cast<char*>(to);
    const auto* const in = static_cast<const char*>(from);
    if (from_host && to_host) {
        require(cudaStreamSynchronize(stream), "the work before a copy");  // in order, like any other
        std::memcpy(to, from, static_cast<size_t>(bytes));
    } else if (from_host) {
        up(stream, out, in, bytes);
    } else if (to_host) {
        down(stream, out, in, bytes);
    } else {
        require(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream), "copying");
    }
}

void Staging::up(cudaStream_t stream, char* to, const char* from, int64_t bytes) {
    open();
    for (int64_t at = 0; at < bytes; at += piece_bytes) {
        const auto part = static_cast<size_t>(std::min(piece_bytes, bytes - at));
        Piece& piece = pieces_[next_++ % pieces_.size()];
        require(cudaEventSynchronize(piece.free), "an earlier copy");
        std::memcpy(piece.data, from + at, part);
        require(cudaMemcpyAsync(to + at, piece.data, part, cudaMemcpyDefault, stream), "copying to the GPU");
        require(cudaEventRecord(piece.free, stream), "recording an event");
    }
}

void Staging::down(cudaStream_t stream, char* to, const char* from, int64_t bytes) {
    open();
    struct Coming {
        Piece* piece;
        char* to;
        size_t bytes;
    };
    std::vector<Coming> coming;
    const auto land = [&](const Coming& c) {
        require(cudaEventSynchronize(c.piece->free), "copying from the GPU");
        std::memcpy(c.to, c.piece->data, c.bytes);
    };
    size_t landed = 0;
    for (int64_t at = 0; at < bytes; at += piece_bytes) {
        if (coming.size() - landed == pieces_.size()) land(coming[landed++]);
        const auto part = static_cast<size_t>(std::min(piece_bytes, bytes - at));
        Piece& piece = pieces_[next_++ % pieces_.size()];
        require(cudaEventSynchronize(piece.free), "an earlier copy");
        require(cudaMemcpyAsync(piece.data, from + at, part, cudaMemcpyDefault, stream), "copying from the GPU");
        require(cudaEventRecord(piece.free, stream), "recording an event");
        coming.push_back({&piece, to + at, part});
    }
    for (; landed < coming.size(); ++landed) land(coming[landed]);
}

}  // namespace orrery::cuda_device
