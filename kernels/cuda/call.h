// One call of kernels: its stream and its scratch memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/block.h"
#include "kernels/kernels.h"

struct CUstream_st;

namespace orrery::kernels::cuda {
class Context;
}

namespace orrery::kernels::ORRERY_BLOCKS {

/// The Context that the functions of this folder's table expect. A rehearsal launches nothing: it computes how much
/// scratch a call needs and lets libraries choose their algorithms.
class Call : public kernels::Context {
public:
    Call() = default;
    Call(cuda::Context* gpu, CUstream_st* stream, int multiprocessors)
        : gpu(gpu), stream(stream), multiprocessors(multiprocessors) {}

    /// Memory of `bytes` bytes, aligned to 256, until the call ends. Null in a rehearsal.
    void* take(i64 bytes);
    template <class T>
    T* take_array(i64 n) {
        return static_cast<T*>(take(n * static_cast<i64>(sizeof(T))));
    }
    /// Starts the next call with this scratch memory, which is free again.
    void begin(void* memory, i64 bytes);

    cuda::Context* gpu = nullptr;
    CUstream_st* stream = nullptr;
    int multiprocessors = 2;
    bool rehearsal = false;
    i64 used = 0;     ///< bytes taken since begin()
    std::string how;  ///< set in a rehearsal: which kernels will run, and why not a library's

private:
    unsigned char* memory_ = nullptr;
    i64 capacity_ = 0;
    std::vector<std::vector<unsigned char>> own_;  ///< memory of emulated calls
};

inline Call& call_of(kernels::Context& context) { return static_cast<Call&>(context); }

inline i64 divide_up(i64 a, i64 b) { return (a + b - 1) / b; }

#if defined(__CUDACC__)

/// Throws when the last launch failed.
void check_launch();
/// Allows a kernel more than 48 KiB of shared memory.
void allow_shared(const void* kernel, i64 bytes);

template <class Body>
__global__ void __launch_bounds__(Body::threads) run_body(const __grid_constant__ Body body) {
    body(Block{});
}

/// Runs the body on `blocks` blocks. Body::threads: maximum threads of its blocks.
template <class Body>
void launch(Call& call, i64 blocks, const Body& body, i64 shared = 0, int threads = Body::threads) {
    if (call.rehearsal || blocks <= 0) return;
    if (shared > 48 * 1024) allow_shared(reinterpret_cast<const void*>(&run_body<Body>), shared);
    run_body<Body><<<static_cast<unsigned>(blocks), threads, static_cast<size_t>(shared), call.stream>>>(body);
    check_launch();
}

#else

void emulate(i64 blocks, int threads, i64 shared, bool barriers, const std::function<void(const Block&)>& body);

template <class Body>
void launch(Call& call, i64 blocks, const Body& body, i64 shared = 0, int threads = Body::threads) {
    if (call.rehearsal || blocks <= 0) return;
    emulate(blocks, threads, shared, Body::barriers, [&](const Block& b) { body(b); });
}

#endif

/// Number of blocks for n elements, `each` of them a block, with loops: enough to fill every multiprocessor.
inline i64 blocks_for(const Call& call, i64 n, i64 each) {
    const i64 wanted = divide_up(n, each), enough = static_cast<i64>(call.multiprocessors) * 8;
    return wanted < enough ? wanted : enough;
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
