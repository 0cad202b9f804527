#include "standin/emulated.h"

#include "kernels/cuda/emulated/emulated.h"
#include "kernels/cuda/updates.h"

namespace orrery::standin {

namespace emulated = kernels::emulated;

const kernels::Kernels& emulated_table() { return emulated::table(); }

std::int64_t emulated_scratch(int multiprocessors, const KernelCall& call) {
    emulated::Call rehearsal(nullptr, nullptr, multiprocessors);
    rehearsal.rehearsal = true;
    call(rehearsal);
    return rehearsal.used;
}

void emulated_run(int multiprocessors, const KernelCall& call, void* scratch, std::int64_t bytes) {
    emulated::Call now(nullptr, nullptr, multiprocessors);
    now.begin(scratch, bytes);
    call(now);
}

void emulated_copy(kernels::Context& context, const void* from, void* to, std::int64_t bytes) {
    emulated::copy_dense(emulated::call_of(context), from, to, bytes);
}

void emulated_adamw(kernels::Context& context, const std::vector<EmulatedUpdate>& updates) {
    std::vector<emulated::Update> all;
    for (const EmulatedUpdate& u : updates)
        all.push_back({u.constants, u.p, u.m, u.v, u.g, u.lr, u.scale, u.step, u.apply, u.n});
    emulated::adamw_all(emulated::call_of(context), all);
}

}  // namespace orrery::standin
