// NCCL on one GPU: a group of one member, whose messages go to itself. Every call that a job makes of it, captured and
// not, and its end in each order.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "gpu/gpu.h"
#include "orrery/communicator.h"
#include "orrery/p2p.h"
#include "plugin/loader.h"
#include "run/control/rendezvous.h"

using namespace orrery;

namespace {

constexpr int64_t count = 100'003;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// A store that can fail like one whose process has died.
class Store : public LocalRendezvous {
public:
    void set(std::string_view key, std::string_view value) override {
        if (dead) throw Error("the store is gone", Fault::peer);
        LocalRendezvous::set(key, value);
    }
    int64_t add(std::string_view key, int64_t amount) override {
        if (dead) throw Error("the store is gone", Fault::peer);
        return LocalRendezvous::add(key, amount);
    }
    std::atomic<bool> dead = false;
};

/// A device, an arena on it, and a communicator of one member.
class Alone {
public:
    Alone() : device(gpu::device()) {
        arena = device->allocate(bytes, MemoryKind::device);
        Loader({gpu::plugin_folder()}).load("transport", "nccl", registry_, {});
        Config config("transport.nccl");
        transport_ = registry_.transport("nccl", {})(config);
        const Group group{"alone", "axis", {0}, 0};
        c = transport_->make(group, store, std::span(&arena, 1), std::chrono::seconds(30));
    }
    ~Alone() {
        c.reset();
        device->release(arena);
    }

    Tensor tensor(int64_t elements = count) {
        Tensor t{static_cast<char*>(arena.data) + used_, DType::f32, {elements}};
        used_ += (t.bytes() + 255) / 256 * 256;
        REQUIRE(used_ <= bytes);
        return t;
    }
    Tensor ramp(float from) {
        std::vector<float> values(count);
        std::iota(values.begin(), values.end(), from);
        return with(values);
    }
    Tensor with(const std::vector<float>& values) {
        const Tensor t = tensor(static_cast<int64_t>(values.size()));
        device->copy(0, t.data, values.data(), t.bytes());
        device->synchronize(0);
        return t;
    }
    std::vector<float> read(const Tensor& t) {
        std::vector<float> values(static_cast<size_t>(t.count()));
        device->synchronize(0);
        device->copy(0, values.data(), t.data, t.bytes());
        device->synchronize(0);
        return values;
    }
    /// A message to itself.
    Event exchange(const Tensor& from, const Tensor& to) {
        const Event ready = device->record(0);
        c->begin_group();
        c->send(from, 0, 1, ready);
        const Event received = c->receive(to, 0, 1, ready);
        c->end_group();
        return received;
    }
    /// As the executor captures a step.
    std::unique_ptr<Kernel> captured(const Tensor& from, const Tensor& to) {
        std::string why;
        auto step = device->capture([&] { device->wait(0, exchange(from, to)); }, why);
        INFO(why);
        REQUIRE(step);
        return step;
    }

    static constexpr int64_t bytes = 64 << 20;
    Store store;
    std::unique_ptr<Device> device;
    Memory arena;
    std::unique_ptr<Communicator> c;

private:
    Registry registry_;
    std::unique_ptr<Transport> transport_;
    int64_t used_ = 0;
};

}  // namespace

TEST_CASE("gpu: plans of simulated accelerators are made for this very contract", "[nccl]") {
    Registry registry;
    Loader({gpu::plugin_folder()}).load("transport", "nccl", registry, {});
    Config config("transport.nccl");
    const TransportContract real = registry.transport("nccl", {})(config)->contract(), kept = accelerator_contract();
    CHECK(real.text() == kept.text());
    CHECK(real.devices == kept.devices);
}

/// Both of NCCL's orders at once crash the driver (plugins/transport/nccl/README.md).
TEST_CASE("gpu: of NCCL's two orders one alone is on", "[nccl]") {
    Registry registry;
    Loader({gpu::plugin_folder()}).load("transport", "nccl", registry, {});
    Config config("transport.nccl");
    const auto made = registry.transport("nccl", {})(config);
    CHECK(std::string(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT")) == "1");
    CHECK(std::string(std::getenv("NCCL_GRAPH_MIXING_SUPPORT")) == "0");
    ::setenv("NCCL_GRAPH_MIXING_SUPPORT", "1", 1);
    CHECK_THROWS_WITH(registry.transport("nccl", {})(config), Catch::Matchers::Contains("crash the driver"));
    ::setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
}

TEST_CASE("gpu: every collective of a group of one, in place and not", "[nccl]") {
    Alone a;
    const Tensor in = a.ramp(1);
    const std::vector<float> expected = a.read(in);
    const std::function<Event(const Tensor&, const Tensor&)> calls[] = {
        [&](const Tensor& from, const Tensor& to) { return a.c->all_reduce(from, to, ReduceOp::sum); },
        [&](const Tensor& from, const Tensor& to) { return a.c->all_gather(from, to); },
        [&](const Tensor& from, const Tensor& to) { return a.c->reduce_scatter(from, to, ReduceOp::max); },
        [&](const Tensor& from, const Tensor& to) { return a.c->all_to_all(from, to); },
    };
    for (const auto& call : calls) {
        const Tensor out = a.with(std::vector<float>(count, -1));
        call(in, out).wait();
        CHECK(a.read(out) == expected);
        call(in, in).wait();
        CHECK(a.read(in) == expected);
    }
    a.c->broadcast(in, 0).wait();
    CHECK(a.read(in) == expected);
    CHECK(a.c->traffic().bytes_sent == 0);
}

TEST_CASE("gpu: messages of a group go together, and an error inside leaves none open", "[nccl]") {
    Alone a;
    const Tensor in = a.ramp(5), out = a.with(std::vector<float>(count, -1));
    for (int round = 0; round < 3; ++round) a.exchange(in, out).wait();
    CHECK(a.read(out) == a.read(in));
    a.c->begin_group();
    a.c->send(in, 0, 1);
    CHECK_THROWS_AS(a.c->send(in, 1, 1), Error);  // there is no member 1
    const Tensor other = a.ramp(9);
    a.exchange(other, out).wait();
    CHECK(a.read(out) == a.read(other));
}

TEST_CASE("gpu: a collective after an error inside a group is done when it is done", "[nccl]") {
    Alone a;
    const Tensor in = a.ramp(5), out = a.with(std::vector<float>(count, -1));
    a.c->all_reduce(in, out, ReduceOp::sum).wait();  // what NCCL makes at first use
    a.c->begin_group();
    a.c->send(in, 0, 1);
    CHECK_THROWS_AS(a.c->send(in, 1, 1), Error);  // there is no member 1
    const Tensor other = a.ramp(9);
    std::atomic<bool> go = false;
    const auto hold = [](void* until) {
        const auto begin = Clock::now();
        while (!*static_cast<std::atomic<bool>*>(until) && seconds_since(begin) < 5) std::this_thread::yield();
    };
    REQUIRE(cudaLaunchHostFunc(static_cast<cudaStream_t>(a.device->native(0)), hold, &go) == cudaSuccess);
    const Event summed = a.c->all_reduce(other, out, ReduceOp::sum, a.device->record(0));
    CHECK_FALSE(summed.done());
    go = true;
    summed.wait();
    CHECK(a.read(out) == a.read(other));
}

TEST_CASE("gpu: a captured step with messages runs when it is launched, each time", "[nccl]") {
    Alone a;
    const Tensor in = a.ramp(1), middle = a.tensor(), out = a.tensor();
    a.exchange(in, middle).wait();  // what NCCL makes at first use
    a.c->all_reduce(middle, out, ReduceOp::sum).wait();
    std::string why;
    auto step = a.device->capture(
        [&] {
            const Event received = a.exchange(in, middle);
            a.device->wait(0, received);
            a.device->wait(0, a.c->all_reduce(middle, out, ReduceOp::sum, a.device->record(0)));
        },
        why);
    INFO(why);
    REQUIRE(step);
    for (int i = 0; i < 4; ++i) {
        const std::vector<float> values(count, static_cast<float>(i + 2));
        a.device->copy(0, in.data, values.data(), in.bytes());
        a.device->launch(0, *step, {}, nullptr);
        a.c->guard(a.device->record(0)).wait();
        CHECK(a.read(out) == values);
    }
    a.exchange(in, middle).wait();  // and by itself, between replays
    a.device->launch(0, *step, {}, nullptr);
    a.device->synchronize(0);
    const auto begin = Clock::now();
    step.reset();
    a.c.reset();
    CHECK(seconds_since(begin) < 3);
}

TEST_CASE("gpu: a larger all_to_all in place leaves a captured one its room", "[nccl]") {
    Alone a;
    const std::vector<float> small(1000, 3), large(count, 4);
    const Tensor in = a.with(small), more = a.with(large);
    const auto call = [&] { return a.c->all_to_all(in, in, a.device->record(0)); };
    call().wait();
    std::string why;
    const auto step = a.device->capture([&] { a.device->wait(0, call()); }, why);
    INFO(why);
    REQUIRE(step);
    a.c->all_to_all(more, more).wait();
    for (int i = 0; i < 3; ++i) a.device->launch(0, *step, {}, nullptr);
    CHECK(a.read(in) == small);
    CHECK(a.read(more) == large);
}

TEST_CASE("gpu: an abort ends at once while a captured step holds NCCL's kernels", "[nccl]") {
    Alone a;
    const Tensor in = a.ramp(1), out = a.tensor();
    a.exchange(in, out).wait();
    auto step = a.captured(in, out);
    a.device->launch(0, *step, {}, nullptr);
    a.device->synchronize(0);
    auto begin = Clock::now();
    a.c->abort("the disk is full");
    CHECK(seconds_since(begin) < 1);
    CHECK_THROWS_WITH(a.exchange(in, out).wait(), Catch::Matchers::Contains("the disk is full"));
    begin = Clock::now();
    step.reset();
    a.c.reset();
    CHECK(seconds_since(begin) < 3.5);  // below what a launcher gives its ranks
}

TEST_CASE("gpu: an abort keeps its reason where the store is gone", "[nccl]") {
    Alone a;
    const Tensor in = a.ramp(1), out = a.tensor();
    a.exchange(in, out).wait();
    a.store.dead = true;
    a.c->abort("the disk is full");
    CHECK_THROWS_WITH(a.exchange(in, out).wait(), Catch::Matchers::Contains("the disk is full"));
    const auto begin = Clock::now();
    a.c.reset();
    CHECK(seconds_since(begin) < 3.5);
}

TEST_CASE("gpu: a communicator ends though a captured step still holds its kernels", "[nccl]") {
    Alone a;
    const Tensor in = a.ramp(1), out = a.tensor();
    a.exchange(in, out).wait();
    auto step = a.captured(in, out);
    a.device->launch(0, *step, {}, nullptr);
    a.device->synchronize(0);
    const auto begin = Clock::now();
    a.c.reset();
    CHECK(seconds_since(begin) < 3.5);
    step.reset();
}
