// Collectives on a thread of their own: beside the caller, in order, with their errors.
#include "collective/communication_thread.h"

#include <catch2/catch.hpp>
#include <future>
#include <mutex>

#include "orrery/error.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// Notes what it is asked for; an all_reduce of one element waits for `gate`, a reduce_scatter fails.
class Noting : public Communicator {
public:
    const Group& group() const override { return group_; }
    Event all_reduce(const Tensor& in, const Tensor& out, ReduceOp op, const Event&) override {
        if (in.count() == 1) gate.get_future().wait();
        note("all_reduce", in);
        if (op == ReduceOp::max) static_cast<float*>(out.data)[0] = 2;
        return {};
    }
    Event all_gather(const Tensor& in, const Tensor&, const Event&) override { return note("all_gather", in); }
    Event reduce_scatter(const Tensor&, const Tensor&, ReduceOp, const Event&) override {
        throw Error("rank 1 did not come", Fault::peer);
    }
    Event all_to_all(const Tensor& in, const Tensor&, const Event&) override { return note("all_to_all", in); }
    Event broadcast(const Tensor& tensor, int root, const Event&) override {
        return note("broadcast " + std::to_string(root), tensor);
    }
    Event send(const Tensor& tensor, int, int64_t, const Event&) override { return note("send", tensor); }
    Event receive(const Tensor& tensor, int, int64_t, const Event&) override { return note("receive", tensor); }
    void abort(std::string_view) override { gate.set_value(); }
    Traffic traffic() const override { return {}; }
    bool done(uint64_t) override { return true; }
    void wait(uint64_t) override {}

    std::promise<void> gate;
    std::vector<std::string> calls;
    std::vector<std::thread::id> by;

private:
    Event note(const std::string& call, const Tensor& tensor) {
        calls.push_back(call + " " + std::to_string(tensor.count()));
        by.push_back(std::this_thread::get_id());
        return {};
    }
    Group group_{"dp/0", "dp", {0, 1}, 0};
};

struct Behind {
    Noting* inner = nullptr;
    std::unique_ptr<BackgroundCommunicator> communicator;
    std::vector<float> room = std::vector<float>(64);
    CommunicationThread thread;  // ends before what it calls

    Behind() {
        auto made = std::make_unique<Noting>();
        inner = made.get();
        communicator = std::make_unique<BackgroundCommunicator>(std::move(made), thread);
    }
    Tensor of(int64_t count) { return {room.data(), DType::f32, {count}}; }
};

}  // namespace

TEST_CASE("communication thread: the caller goes on while a collective waits, and the order stays") {
    Behind b;
    const Event first = b.communicator->all_reduce(b.of(1), b.of(1), ReduceOp::sum, {});
    const Event second = b.communicator->all_gather(b.of(2), b.of(4), {});
    const Event third = b.communicator->all_to_all(b.of(3), b.of(3), {});
    CHECK_FALSE(first.done());  // nobody has opened the gate yet, and here we are
    CHECK_FALSE(third.done());
    CHECK_FALSE(b.thread.idle());
    b.inner->gate.set_value();
    second.wait();
    CHECK(first.done());
    third.wait();
    CHECK(b.thread.idle());
    b.communicator->all_to_all(b.of(4), b.of(4), {});
    b.communicator->send(b.of(5), 1, 7, {});  // behind all that was issued
    b.communicator->broadcast(b.of(6), 1, {});
    CHECK(b.inner->calls == std::vector<std::string>{"all_reduce 1", "all_gather 2", "all_to_all 3", "all_to_all 4",
                                                     "send 5", "broadcast 1 6"});
    for (size_t i = 0; i < 4; ++i) CHECK(b.inner->by[i] != std::this_thread::get_id());
    for (size_t i : {4, 5}) CHECK(b.inner->by[i] == std::this_thread::get_id());
}

TEST_CASE("communication thread: more calls than slots, and what they write is seen") {
    Behind b;
    Event last;
    for (int i = 0; i < 1000; ++i) last = b.communicator->all_reduce(b.of(2 + i % 7), b.of(2), ReduceOp::max, {});
    last.wait();
    CHECK(b.room[0] == 2);
    REQUIRE(b.inner->calls.size() == 1000);
    for (int i = 0; i < 1000; ++i)
        CHECK(b.inner->calls[static_cast<size_t>(i)] == "all_reduce " + std::to_string(2 + i % 7));
}

TEST_CASE("communication thread: an error is thrown by its event and all later ones, whose calls are not begun") {
    Behind b;
    const Event good = b.communicator->all_gather(b.of(2), b.of(4), {});
    const Event bad = b.communicator->reduce_scatter(b.of(4), b.of(2), ReduceOp::sum, {});
    const Event later = b.communicator->all_gather(b.of(3), b.of(6), {});
    CHECK_THROWS_WITH(later.wait(), Contains("rank 1 did not come"));
    CHECK_THROWS_WITH(bad.wait(), Contains("rank 1 did not come"));
    CHECK_THROWS_WITH(bad.done(), Contains("rank 1 did not come"));
    CHECK_NOTHROW(good.wait());
    CHECK_THROWS_WITH(b.communicator->send(b.of(1), 1, 0, {}), Contains("rank 1 did not come"));
    CHECK(b.inner->calls == std::vector<std::string>{"all_gather 2"});
}

TEST_CASE("communication thread: ends when what hangs is aborted") {
    Behind b;
    b.communicator->all_reduce(b.of(1), b.of(1), ReduceOp::sum, {});
    b.communicator->abort("the rank ends");
}
