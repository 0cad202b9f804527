// Blocks of fibers: each thread of a block runs until its next barrier, then the next one, in an order that changes
// from round to round, so that a missing barrier shows. A barrier that not all threads reach is reported.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "kernels/cuda/call.h"
#include "kernels/cuda/run.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ORRERY_SLOW_SWITCH 1
#else
#define ORRERY_SLOW_SWITCH 0
#endif

namespace orrery::kernels::ORRERY_BLOCKS {

namespace {

constexpr size_t stack_bytes = 64 * 1024;

struct Barrier {
    int arrived = 0;
    std::uint64_t generation = 0;
};

struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    jmp_buf at{};
    bool begun = false, done = false;
    void* sanitizer = nullptr;
};

}  // namespace

/// The threads of one block; blocks run one after another.
class Fibers {
public:
    Fibers(int threads, const std::function<void(const Block&)>& body)
        : body_(body),
          threads_(threads),
          fibers_(static_cast<size_t>(threads)),
          warps_(static_cast<size_t>(threads / 32)),
          parts_(static_cast<size_t>(threads / 32)) {
        slots_.resize(static_cast<size_t>(threads));
        for (Fiber& fiber : fibers_) {
            fiber.stack.reset(new char[stack_bytes]);  // untouched pages cost nothing
#if defined(__SANITIZE_THREAD__)
            fiber.sanitizer = __tsan_create_fiber(0);
#endif
        }
#if defined(__SANITIZE_THREAD__)
        host_sanitizer_ = __tsan_get_current_fiber();
#endif
    }
    ~Fibers() {
#if defined(__SANITIZE_THREAD__)
        for (Fiber& fiber : fibers_) __tsan_destroy_fiber(fiber.sanitizer);
#endif
    }
    Fibers(const Fibers&) = delete;
    Fibers& operator=(const Fibers&) = delete;

    void run(Block block) {
        block_ = block;
        for (Fiber& fiber : fibers_) {
            fiber.begun = fiber.done = false;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.get();
            fiber.context.uc_stack.ss_size = stack_bytes;
            fiber.context.uc_link = &host_;
            const auto self = reinterpret_cast<std::uintptr_t>(this);
            makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Fibers::enter), 2,
                        static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
        }
        std::uint32_t order = 1;
        for (int left = threads_; left > 0;) {
            order = order * 1664525u + 1013904223u;
            const int first = static_cast<int>((order >> 8) % static_cast<unsigned>(threads_));
            const bool backward = (order & 0x80u) != 0;
            progress_ = false;
            for (int i = 0; i < threads_; ++i) {
                current_ = (backward ? first + threads_ - i : first + i) % threads_;
                Fiber& fiber = fibers_[static_cast<size_t>(current_)];
                if (fiber.done) continue;
                enter_fiber(fiber);
                if (fiber.done) --left, progress_ = true;
            }
            if (!progress_) throw std::logic_error("emulated block: a barrier that not all threads reach");
        }
    }

    void wait_block() { wait(block_barrier_, threads_); }
    void wait_part(int part, int threads) {
        if (part > 14 || part != current_ / threads) throw std::logic_error("no such part of a block");
        wait(parts_[static_cast<size_t>(part)], threads);
    }
    void wait_warp() { wait(warps_[static_cast<size_t>(current_ / 32)], 32); }
    float* slots() { return slots_.data(); }

private:
    // Not instrumented: TSan pairs a function's end with its beginning on the same fiber, and these switch in between.
    // ASan tracks a frame until its function returns, and this one never does.
    [[gnu::no_sanitize_thread, gnu::no_sanitize_address]] static void enter(unsigned high, unsigned low) {
        auto* self = reinterpret_cast<Fibers*>(static_cast<std::uintptr_t>(high) << 32 | low);
        Block block = self->block_;
        block.thread_ = self->current_;
        self->body_(block);
        self->fibers_[static_cast<size_t>(block.thread_)].done = true;
        self->leave_fiber(true);
    }

    /// swapcontext makes two system calls; a longjmp into a stack that has begun makes none.
    [[gnu::no_sanitize_thread]] void enter_fiber(Fiber& fiber) {
#if !ORRERY_SLOW_SWITCH
        if (_setjmp(host_at_) != 0) return;
        if (fiber.begun) _longjmp(fiber.at, 1);
        fiber.begun = true;
        setcontext(&fiber.context);
#endif
#if defined(__SANITIZE_THREAD__)
        __tsan_switch_to_fiber(fiber.sanitizer, 0);
#endif
        swapcontext(&host_, &fiber.context);
    }
    [[gnu::no_sanitize_thread]] void leave_fiber(bool last) {
        Fiber& fiber = fibers_[static_cast<size_t>(current_)];
#if !ORRERY_SLOW_SWITCH
        if (last || _setjmp(fiber.at) == 0) _longjmp(host_at_, 1);
        return;
#endif
#if defined(__SANITIZE_THREAD__)
        __tsan_switch_to_fiber(host_sanitizer_, 0);
#endif
        last ? setcontext(&host_) : swapcontext(&fiber.context, &host_);
    }

    void wait(Barrier& barrier, int expected) {
        const std::uint64_t mine = barrier.generation;
        if (++barrier.arrived == expected) {
            barrier.arrived = 0;
            ++barrier.generation;
            progress_ = true;
            return;
        }
        while (barrier.generation == mine) leave_fiber(false);
    }

    const std::function<void(const Block&)>& body_;
    int threads_, current_ = 0;
    bool progress_ = false;
    Block block_{};
    std::vector<Fiber> fibers_;
    std::vector<Barrier> warps_, parts_;
    Barrier block_barrier_;
    std::vector<float> slots_;
    ucontext_t host_{};
    jmp_buf host_at_{};
    [[maybe_unused]] void* host_sanitizer_ = nullptr;
};

void Block::sync() const { fibers->wait_block(); }
void Block::sync_part(int part, int threads) const { fibers->wait_part(part, threads); }

namespace {

template <class Join>
float butterfly(Fibers& fibers, int thread, float value, int width, Join join) {
    fibers.slots()[thread] = value;
    fibers.wait_warp();
    float all[32];
    std::copy_n(fibers.slots() + thread / 32 * 32, 32, all);
    fibers.wait_warp();
    for (int step = width / 2; step > 0; step /= 2) {
        float next[32];
        for (int l = 0; l < 32; ++l) next[l] = join(all[l], all[l ^ step]);
        std::copy_n(next, 32, all);
    }
    return all[thread % 32];
}

}  // namespace

float Block::sum(float value, int width) const {
    return butterfly(*fibers, thread_, value, width, [](float a, float b) { return a + b; });
}

float Block::max(float value, int width) const {
    return butterfly(*fibers, thread_, value, width, [](float a, float b) { return larger(a, b); });
}

void emulate(i64 blocks, int threads, i64 shared, bool barriers, const std::function<void(const Block&)>& body) {
    if (threads % 32 != 0 || threads > 1024 || shared > 160 * 1024) throw std::logic_error("no GPU has such blocks");
    std::vector<Words> memory(static_cast<size_t>(divide_up(shared, 16)));
    // Fibers are only needed for bodies with barriers.
    std::unique_ptr<Fibers> fibers = barriers ? std::make_unique<Fibers>(threads, body) : nullptr;
    for (i64 i = 0; i < blocks; ++i) {
        std::fill(memory.begin(), memory.end(), Words{{0x7fc00000u, 0x7fc00000u, 0x7fc00000u, 0x7fc00000u}});  // NaN
        Block block{fibers.get(), 0, threads, i, blocks, reinterpret_cast<unsigned char*>(memory.data())};
        if (fibers) {
            fibers->run(block);
        } else {
            for (block.thread_ = 0; block.thread_ < threads; ++block.thread_) body(block);
        }
    }
}

void* Call::take(i64 bytes) {
    const i64 from = used;
    used += divide_up(bytes, 256) * 256;
    if (rehearsal) return nullptr;
    if (memory_ != nullptr) return used <= capacity_ ? memory_ + from : throw std::logic_error("scratch is too small");
    return own_.emplace_back(static_cast<size_t>(bytes), static_cast<unsigned char>(0xa5)).data();
}

void Call::begin(void* memory, i64 bytes) {
    memory_ = static_cast<unsigned char*>(memory);
    capacity_ = bytes;
    used = 0;
    own_.clear();
}

}  // namespace orrery::kernels::ORRERY_BLOCKS
