// The first of two members, of which the second is what the stand-in says.
#include "communicator.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "nccl/standin.h"
#include "run/control/rendezvous.h"

using namespace orrery;
using namespace orrery::nccl_transport;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t count = 8;

/// A store that can fail like one whose process has died.
class Store : public LocalRendezvous {
public:
    void set(std::string_view key, std::string_view value) override {
        require_alive();
        LocalRendezvous::set(key, value);
    }
    int64_t add(std::string_view key, int64_t amount) override {
        require_alive();
        return LocalRendezvous::add(key, amount);
    }
    Message lost() const override { return known_in-- > 1 ? "" : LocalRendezvous::lost(); }
    std::atomic<bool> dead{false};
    mutable std::atomic<int> known_in{0};  ///< questions until a loss is known

private:
    void require_alive() const {
        if (dead) throw Error("the store is gone", Fault::peer);
    }
};

class First {
public:
    First() : nccl(nccl_standin::state()) { nccl_standin::reset(); }
    ~First() {
        c.reset();
        nccl_standin::reset();
        CHECK(nccl.communicators == 0);
        CHECK(nccl.streams == 0);
        CHECK(nccl.events == 0);
    }
    NcclCommunicator& start(std::chrono::milliseconds timeout = 10s) {
        c = std::make_unique<NcclCommunicator>(Group{"dp/0", "dp", {0, 1}, 0}, 0, ncclUniqueId{}, store, "key",
                                               timeout);
        return *c;
    }
    /// How long the end takes.
    double ends() {
        const auto begin = Clock::now();
        c.reset();
        return std::chrono::duration<double>(Clock::now() - begin).count();
    }

    nccl_standin::State& nccl;
    Store store;
    float memory[count] = {};
    const Tensor t{memory, DType::f32, {count}};
    std::unique_ptr<NcclCommunicator> c;
};

std::string said(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("nccl: what is queued is done when the stream has done it") {
    First f;
    auto& c = f.start();
    f.nccl.hold();
    const Event summed = c.all_reduce(f.t, f.t, ReduceOp::sum, {});
    c.begin_group();
    const Event sent = c.send(f.t, 1, 0, {}), received = c.receive(f.t, 1, 0, {});
    c.end_group();
    for (const Event& event : {summed, sent, received}) CHECK_FALSE(event.done());
    f.nccl.runs = true;
    for (const Event& event : {summed, sent, received}) CHECK(event.done());
}

TEST_CASE("nccl: a collective after an error inside a group is done when it is done") {
    First f;
    auto& c = f.start();
    const std::function<Event()> calls[] = {
        [&] { return c.all_reduce(f.t, f.t, ReduceOp::sum, {}); },
        [&] { return c.all_to_all(f.t, f.t, {}); },
        [&] { return c.broadcast(f.t, 0, {}); },
    };
    for (const auto& call : calls) {
        f.nccl.runs = true;
        c.begin_group();
        c.send(f.t, 1, 0, {});
        CHECK_THROWS_AS(c.send(f.t, 2, 0, {}), Error);  // there is no member 2
        f.nccl.hold();
        const Event event = call();
        CHECK_FALSE(event.done());
        f.nccl.runs = true;
        CHECK(event.done());
    }
}

TEST_CASE("nccl: nobody waits for a message whose group is open") {
    First f;
    auto& c = f.start();
    c.begin_group();
    const Event sent = c.send(f.t, 1, 0, {});
    CHECK_THROWS_WITH(sent.done(), Contains("send #1 of dp/0: waited for before its group of messages was closed"));
    CHECK_THROWS_WITH(sent.native(), Contains("before its group of messages was closed"));
    c.end_group();
    CHECK(sent.done());
    CHECK(sent.native());
}

TEST_CASE("nccl: an end without an error finalizes, then destroys") {
    First f;
    f.start();
    CHECK(f.ends() < 2);
    CHECK(f.nccl.finalized == 1);
    CHECK(f.nccl.destroyed == 1);
    CHECK(f.nccl.aborted == 0);
}

TEST_CASE("nccl: an end is bounded while something holds the communicator's kernels") {
    First f;
    f.start();
    f.nccl.finalizes = false;
    CHECK(f.ends() < 4);
    CHECK(f.nccl.aborted == 1);
    CHECK(f.nccl.destroyed == 0);
}

TEST_CASE("nccl: an end is bounded while another member of the host has not come to it") {
    First f;
    f.start();
    f.nccl.destroys = false;
    CHECK(f.ends() < 4);
    CHECK(f.nccl.aborted == 0);
    CHECK(f.nccl.destroyed == 0);
    CHECK(f.nccl.communicators == 1);  // it ends when the other comes
}

/// Ends the process while NCCL still destroys: 7 where that is over before what the process destroys itself.
TEST_CASE("nccl: a process ends while NCCL lets go", "[.exit]") {
    auto& nccl = nccl_standin::state();
    on_exit([](int, void*) { ::_exit(nccl_standin::state().destroyed == 1 ? 7 : 8); }, nullptr);
    auto& f = *new First;
    f.start();
    nccl.destroys = false;
    f.c.reset();
    CHECK(nccl.destroyed == 0);
    std::atexit([] { nccl_standin::state().destroys = true; });  // the process' end begins with it
    std::exit(0);
}

TEST_CASE("nccl: a process ends after what NCCL still does in it") {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const int status = std::system(("'" + self + "' '[.exit]' > /dev/null 2>&1").c_str());
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("nccl: an abort tells the others why") {
    First f;
    auto& c = f.start();
    f.nccl.hold();
    const Event summed = c.all_reduce(f.t, f.t, ReduceOp::sum, {});
    c.abort("the disk is full");
    CHECK_THROWS_WITH(summed.wait(), Contains("all_reduce #1 of dp/0: rank 0 gave up: the disk is full"));
    CHECK(f.store.get("key/why", 2s) == "rank 0 gave up: the disk is full");
    CHECK(f.ends() < 2);
    CHECK(f.store.add("key", 0) == 1);
    CHECK(f.nccl.aborted == 1);
    CHECK(f.nccl.finalized == 0);
}

TEST_CASE("nccl: an abort keeps its reason where the store is gone") {
    First f;
    auto& c = f.start();
    f.store.dead = true;
    c.abort("the disk is full");
    CHECK_THROWS_WITH(c.all_reduce(f.t, f.t, ReduceOp::sum, {}), Contains("the disk is full"));
    CHECK(f.ends() < 2);
    CHECK(f.nccl.aborted == 1);
}

TEST_CASE("nccl: another member's abort ends the waits of this one") {
    First f;
    auto& c = f.start();
    f.nccl.hold();
    const Event summed = c.all_reduce(f.t, f.t, ReduceOp::sum, {});
    f.store.set("key/why", "rank 1 gave up: no such file");
    f.store.add("key", 1);
    CHECK_THROWS_WITH(summed.wait(), Contains("all_reduce #1 of dp/0: rank 1 gave up: no such file"));
    CHECK(f.ends() < 2);
    CHECK(f.nccl.aborted == 1);
    CHECK(f.store.add("key", 0) == 1);  // one is told of once
}

TEST_CASE("nccl: a wait ends after the timeout") {
    First f;
    auto& c = f.start(200ms);
    f.nccl.hold();
    const Event summed = c.all_reduce(f.t, f.t, ReduceOp::sum, {});
    CHECK_THROWS_WITH(summed.wait(),
                      Contains("all_reduce #1 of dp/0: timed out: no answer within 200 ms; rank 1 does not say"));
}

TEST_CASE("nccl: who has not come to a collective is named, and who has come is not") {
    First f;
    auto& c = f.start(200ms);
    const bool comes = GENERATE(false, true);
    f.nccl.hold();
    c.all_reduce(f.t, f.t, ReduceOp::sum, {});
    const Event second = c.all_reduce(f.t, f.t, ReduceOp::sum, {});
    std::jthread other([&](std::stop_token stop) {  // member 1, when it is asked
        while (!stop.stop_requested() && f.store.add("key", 0) < int64_t{1} << 32) std::this_thread::sleep_for(1ms);
        f.store.set("key/at/1/1", comes ? "2" : "1");
    });
    CHECK_THROWS_WITH(second.wait(),
                      Contains("all_reduce #2 of dp/0: timed out: no answer within 200 ms; ") &&
                          Contains(comes ? "all ranks have reached the call" : "rank 1 has not reached the call"));
}

TEST_CASE("nccl: of a message that is not met the other side is named") {
    First f;
    auto& c = f.start(200ms);
    f.nccl.hold();
    const Event sent = c.send(f.t, 1, 0, {});
    CHECK_THROWS_WITH(sent.wait(),
                      Contains("send #1 of dp/0: timed out: no answer within 200 ms; its other side is rank 1"));
}

TEST_CASE("nccl: the rendezvous names who is lost when NCCL only says that somebody is") {
    First f;
    auto& c = f.start();
    f.nccl.hold();
    const Event summed = c.all_reduce(f.t, f.t, ReduceOp::sum, {});
    const bool known = GENERATE(true, false);
    f.store.known_in = 4;
    if (known) f.store.fail(1, "out of memory");
    f.nccl.error = ncclRemoteError;
    const std::string text = said([&] { summed.wait(); });
    CHECK_THAT(text, Contains("all_reduce #1 of dp/0: ") && Contains(known ? "rank 1" : "NCCL's words"));
}

TEST_CASE("nccl: a start that fails frees what it has made") {
    First f;
    f.nccl.starts = false;
    CHECK_THROWS_WITH(f.start(100ms), Contains("starting NCCL: timed out: not all ranks started NCCL within 100 ms"));
    CHECK(f.nccl.aborted == 1);
    CHECK(f.nccl.streams == 0);
    CHECK(f.nccl.events == 0);
}
