// What kernels/cuda's .cu files hold for a GPU: the table of its own kernels. Here each is queued on the call's stream
// and run by the emulator when its turn comes, on the bytes behind the addresses that the host may not touch.
#include <tuple>
#include <type_traits>

#include "kernels/cuda/check.h"
#include "kernels/cuda/rules.h"
#include "kernels/cuda/updates.h"
#include "standin/calls.h"
#include "standin/emulated.h"
#include "standin/memory.h"

namespace orrery::kernels::cuda {

namespace {

using standin::emulated_table;

/// An argument as it is until its kernel runs: addresses are those of the bytes, and what spans see is copied.
template <class T>
struct Kept {
    explicit Kept(T value) : value(value) {}
    T get() const { return value; }
    T value;
};
template <class T>
struct Kept<T*> {
    explicit Kept(T* data) : data(static_cast<T*>(standin::kept(data))) {}
    T* get() const { return data; }
    T* data;
};
template <>
struct Kept<In> {
    explicit Kept(In x) : x(standin::kept(x.data), x.type) {}
    In get() const { return x; }
    In x;
};
template <>
struct Kept<Out> {
    explicit Kept(Out x) : x(standin::kept(x.data), x.type) {}
    Out get() const { return x; }
    Out x;
};
template <>
struct Kept<AttentionIndex> {
    explicit Kept(const AttentionIndex& at)
        : documents(at.documents),
          positions(at.positions),
          key_documents(at.key_documents),
          key_positions(at.key_positions) {}
    AttentionIndex get() const { return {documents.get(), positions.get(), key_documents.get(), key_positions.get()}; }
    Kept<const std::int32_t*> documents, positions, key_documents, key_positions;
};
template <class T>
struct Kept<std::span<T>> {
    explicit Kept(std::span<T> all) : all(all.begin(), all.end()) {}
    std::span<T> get() const { return all; }
    std::vector<std::remove_const_t<T>> all;
};
template <>
struct Kept<std::span<const In>> {
    explicit Kept(std::span<const In> given) {
        for (const In& x : given) all.push_back(Kept<In>(x).get());
    }
    std::span<const In> get() const { return all; }
    std::vector<In> all;
};
template <>
struct Kept<Region> {
    explicit Kept(const Region& r) : local(r.local), global(r.global), offset(r.offset), places(r.places) {}
    Region get() const { return {local.get(), global.get(), offset.get(), places.get()}; }
    Kept<Shape> local, global, offset;
    Kept<const std::int32_t*> places;
};

template <>
struct Kept<TiledLossData> {
    explicit Kept(TiledLossData given) : t(given) {
        for (In* x : {&t.x, &t.head, &t.bias, &t.top, &t.total}) *x = Kept<In>(*x).get();
        for (Out* y : {&t.loss, &t.count, &t.lse, &t.picked, &t.dx, &t.dhead, &t.dbias}) *y = Kept<Out>(*y).get();
        t.targets = Kept<const std::int32_t*>(t.targets).get();
    }
    TiledLossData get() const { return t; }
    TiledLossData t;
};

/// Queues `does(context, arguments...)`. Its scratch is taken of the call's, as the real kernel's is.
template <class Does, class... Arguments>
void later(Call& call, Does does, const Arguments&... arguments) {
    const int processors = call.multiprocessors;
    const i64 bytes = standin::emulated_scratch(processors, [&](kernels::Context& c) { does(c, arguments...); });
    void* const scratch = bytes > 0 ? call.take(bytes) : nullptr;
    if (call.rehearsal) return;
    const auto make = [&]() -> std::function<void()> {
        const auto all = std::make_tuple(Kept<Arguments>(arguments)...);
        return [=, memory = standin::kept(scratch)] {
            const auto now = [&](kernels::Context& c) {
                std::apply([&](const auto&... one) { does(c, one.get()...); }, all);
            };
            standin::emulated_run(processors, now, memory, bytes);
        };
    };
    check(standin::launch(call.stream, make), "launch");
    check(cudaGetLastError(), "launch");  // what an earlier call has left shows here, as with the real ones
}

/// The kernel of a place of the table.
template <auto member>
struct Late;
template <class... Arguments, void (*Kernels::*member)(kernels::Context&, Arguments...)>
struct Late<member> {
    static void call(kernels::Context& context, Arguments... arguments) {
        const auto does = [](kernels::Context& c, const std::decay_t<Arguments>&... all) {
            (emulated_table().*member)(c, all...);
        };
        later<decltype(does), std::decay_t<Arguments>...>(call_of(context), does, arguments...);
    }
};

template <auto... members>
void add(Kernels& k) {
    ((k.*members = Late<members>::call), ...);
}

}  // namespace

using K = Kernels;

void add_elementwise(K& k) {
    add<&K::unary, &K::unary_grad, &K::scale, &K::cast, &K::binary, &K::compare, &K::select, &K::swiglu,
        &K::swiglu_grad>(k);
}
void add_moves(K& k) { add<&K::full, &K::transpose, &K::slice, &K::concat, &K::pad, &K::roll>(k); }
void add_random(K& k) { add<&K::random, &K::dropout>(k); }
void add_product(K& k) { add<&K::matmul, &K::matmul_bias_gelu, &K::matmul_gelu_grad>(k); }
void add_grouped_matmul(K& k) { add<&K::grouped_matmul, &K::grouped_matmul_dw>(k); }
void add_reduce(K& k) { add<&K::reduce, &K::sumsq, &K::all_finite>(k); }
void add_norm(K& k) { add<&K::layernorm, &K::layernorm_grad, &K::rmsnorm, &K::rmsnorm_grad>(k); }
void add_loss(K& k) {
    add<&K::softmax, &K::softmax_grad, &K::cross_entropy, &K::cross_entropy_stats, &K::cross_entropy_loss,
        &K::cross_entropy_grad, &K::tiled_loss>(k);
}
void add_tokens(K& k) { add<&K::embedding, &K::embedding_grad, &K::rope>(k); }
void add_dispatch(K& k) { add<&K::assign_slots, &K::dispatch, &K::combine, &K::slot_dots>(k); }
void add_index(K& k) { add<&K::gather, &K::scatter_add, &K::top_k, &K::cumsum, &K::iota, &K::one_hot>(k); }
void add_codes(K& k) { add<&K::quantize, &K::dequantize, &K::pack, &K::unpack, &K::block_top_k, &K::orthogonalize>(k); }
void add_attention(K& k) { add<&K::attention, &K::attention_grad>(k); }
void add_merge(K& k) { add<&K::merge, &K::merge_grad>(k); }
void add_update(K& k) { add<&K::adamw>(k); }
// One that is in no list above would be null.
static_assert(sizeof(Kernels) == 60 * sizeof(void*));

/// With products of its own.
void tiled_loss(Call& call, const TiledLoss& s, const TiledLossData& t, const TileProduct&) {
    table().tiled_loss(call, s, t);
}

void copy_dense(Call& call, const void* from, void* to, i64 n) {
    if (from == to || n <= 0) return;
    const auto* const in = static_cast<const char*>(from);
    later(call, standin::emulated_copy, in, static_cast<char*>(to), n);
}

void adamw_all(Call& call, std::span<const Update> updates) {
    if (call.rehearsal) return;
    const int processors = call.multiprocessors;
    const auto make = [&]() -> std::function<void()> {
        std::vector<standin::EmulatedUpdate> all;
        const auto at = [](auto* data) { return static_cast<decltype(data)>(standin::kept(data)); };
        for (const Update& u : updates)
            all.push_back({u.constants, at(u.p), at(u.m), at(u.v), Kept<In>(u.g).get(), at(u.lr), at(u.scale),
                           at(u.step), at(u.apply), u.n});
        return [=] {
            const auto now = [&](kernels::Context& c) { standin::emulated_adamw(c, all); };
            standin::emulated_run(processors, now, nullptr, 0);
        };
    };
    check(standin::launch(call.stream, make), "launch");
    check(cudaGetLastError(), "launch");
}

}  // namespace orrery::kernels::cuda
