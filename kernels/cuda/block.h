// The thread block that every kernel body of this folder is written for.
//
// nvcc makes it a block of a GPU. g++ makes it a block of fibers that one thread of the host runs in turn
// (emulate.cpp), so that the same bodies, launches and tables are tested without a GPU. ORRERY_BLOCKS names the
// namespace of the build: cuda or emulated.
#pragma once

#include <cstdint>

#include "kernels/types.h"

#if defined(__CUDACC__)
#define ORRERY_DEVICE __device__ __forceinline__
#else
#define ORRERY_DEVICE inline
#endif

namespace orrery::kernels::ORRERY_BLOCKS {

using i64 = std::int64_t;

#if defined(__CUDACC__)

/// This thread's view of its block. Blocks have a multiple of 32 threads.
struct Block {
    ORRERY_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
    ORRERY_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
    ORRERY_DEVICE i64 index() const { return blockIdx.x; }
    ORRERY_DEVICE i64 blocks() const { return gridDim.x; }
    /// Barrier of all threads of the block.
    ORRERY_DEVICE void sync() const { __syncthreads(); }
    /// Barrier of part `part` only. The block is split in parts of `threads` threads, a multiple of 32, at most 15
    /// parts; every thread of the caller's part must call it.
    ORRERY_DEVICE void sync_part(int part, int threads) const {
        asm volatile("bar.sync %0, %1;" : : "r"(1 + part), "r"(threads) : "memory");
    }
    /// The block's shared memory, from byte `from` on.
    template <class T>
    ORRERY_DEVICE T* shared(i64 from = 0) const {
        extern __shared__ __align__(16) unsigned char bytes[];
        return reinterpret_cast<T*>(bytes + from);
    }
    /// Sum or maximum over `width` (a power of two, at most 32) adjacent threads, the same bits in all of them. Every
    /// thread of the warp must call it.
    ORRERY_DEVICE float sum(float value, int width) const {
        for (int step = width / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
        return value;
    }
    ORRERY_DEVICE float max(float value, int width) const {
        for (int step = width / 2; step > 0; step /= 2)
            value = larger(value, __shfl_xor_sync(0xffffffffu, value, step));
        return value;
    }
    /// The larger one; NaN if either is.
    ORRERY_DEVICE static float larger(float a, float b) { return b > a || b != b ? b : a; }
};

#else

class Fibers;

struct Block {
    Fibers* fibers;
    int thread_, threads_;
    i64 index_, blocks_;
    unsigned char* shared_;

    int thread() const { return thread_; }
    int threads() const { return threads_; }
    i64 index() const { return index_; }
    i64 blocks() const { return blocks_; }
    void sync() const;
    void sync_part(int part, int threads) const;
    template <class T>
    T* shared(i64 from = 0) const {
        return reinterpret_cast<T*>(shared_ + from);
    }
    float sum(float value, int width) const;
    float max(float value, int width) const;
    static float larger(float a, float b) { return b > a || b != b ? b : a; }
};

#endif

/// Sum over all threads of the block, the same bits in all of them. `room`: shared memory of one float a warp, free
/// again when all threads have returned. Every thread must call it.
ORRERY_DEVICE float block_sum(const Block& b, float value, float* room) {
    value = b.sum(value, 32);
    if (b.threads() == 32) return value;
    b.sync();
    if (b.thread() % 32 == 0) room[b.thread() / 32] = value;
    b.sync();
    float total = 0;
    for (int w = 0; w < b.threads() / 32; ++w) total += room[w];
    return total;
}

ORRERY_DEVICE float block_max(const Block& b, float value, float* room) {
    value = b.max(value, 32);
    if (b.threads() == 32) return value;
    b.sync();
    if (b.thread() % 32 == 0) room[b.thread() / 32] = value;
    b.sync();
    float top = room[0];
    for (int w = 1; w < b.threads() / 32; ++w) top = Block::larger(top, room[w]);
    return top;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
