// Memory of a GPU, pinned memory of its host, and copies between any of them.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "orrery/device.h"

namespace orrery::cuda_device {

/// Arenas on the GPU, and pinned ones on the host. Frees what is left when it is destroyed.
class Arenas {
public:
    explicit Arenas(int device) : device_(device) {}
    ~Arenas();
    Arenas(const Arenas&) = delete;
    Arenas& operator=(const Arenas&) = delete;

    /// Aligned to 256 bytes. Throws Fault::failed naming the bytes asked for and those free; there is no shared memory.
    Memory allocate(int64_t bytes, MemoryKind kind);
    void release(Memory& memory);
    /// Of all memory given out.
    int64_t bytes() const;

    enum class Place { gpu, pinned, elsewhere };
    Place place_of(const void* data) const;

private:
    int device_;
    std::vector<Memory> all_;  ///< sorted by address
};

/// Copies that involve ordinary host memory, which the GPU cannot read by itself: through a few pinned pieces, so that
/// the processor fills one while the GPU empties another.
class Staging {
public:
    Staging(int device, const Arenas& arenas);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    /// Any memory to any memory, in the order of the stream. From ordinary memory: that memory is read when this
    /// returns. To ordinary memory: returns when it is written. Otherwise only queued. What a stream captures can be
    /// neither: throws Fault::failed.
    void copy(cudaStream_t stream, void* to, const void* from, int64_t bytes);

private:
    struct Piece {
        char* data = nullptr;
        cudaEvent_t free = nullptr;  ///< the GPU has done with it
    };
    bool ordinary(const void* data);
    static void refuse_capture(cudaStream_t stream);
    void up(cudaStream_t stream, char* to, const char* from, int64_t bytes);
    void down(cudaStream_t stream, char* to, const char* from, int64_t bytes);
    void open();
    void reach(int peer);

    int device_;
    const Arenas& arenas_;
    std::vector<Piece> pieces_;
    std::vector<int> peers_;  ///< GPUs whose memory this one may reach
    size_t next_ = 0;
};

}  // namespace orrery::cuda_device
