// What a plugin throws names it, whatever it is and whichever kind the plugin is of.
#include <catch2/catch.hpp>

#include <new>
#include <stdexcept>
#include <system_error>

#include "base/foreign/plugin_call.h"
#include "lua/fake_host.h"
#include "orrery/rendezvous.h"
#include "plugin/named.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

/// Every call throws.
struct BadDevice final : Device {
    DeviceLimits limits() override { throw std::runtime_error("no such device"); }
    Memory allocate(int64_t, MemoryKind) override { throw std::bad_alloc(); }
    void release(Memory&) override {}
    std::string why_not(const KernelSpec&) override { throw Error("the device's own words"); }
    std::unique_ptr<Kernel> prepare(const KernelSpec&) override { throw 1.5; }
    void launch(int, Kernel&, std::span<const Tensor>, void*) override { throw std::logic_error("launched"); }
    void copy(int, void*, const void*, int64_t) override { throw "copied"; }
    Event record(int) override { throw 1; }
    void wait(int, const Event&) override { throw 2; }
    void synchronize(int) override { throw 3; }
    void* native(int) override { throw 4; }
};

struct BadStrategy final : Strategy {
    void annotate(Program&, const Mesh&) override { throw std::out_of_range("vector::at"); }
};

struct BadTransport final : Transport {
    TransportContract contract() const override { throw std::string("a text"); }
    std::unique_ptr<Communicator> make(const Group&, Rendezvous&, std::span<const Memory>,
                                       std::chrono::milliseconds) override {
        throw std::system_error(std::make_error_code(std::errc::connection_refused), "join");
    }
};

struct BadRendezvous final : RendezvousBackend {
    std::unique_ptr<RendezvousService> serve(const ServeOptions&) override { throw 7L; }
    std::unique_ptr<Member> join(const JoinOptions&) override {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
};

Registry bad() {
    Registry alone;
    alone.add_device("bad", [](Config&) { return std::make_unique<BadDevice>(); });
    alone.add_strategy("bad", [](Config&, const Origin&) { return std::make_unique<BadStrategy>(); });
    alone.add_transport("bad", [](Config&) { return std::make_unique<BadTransport>(); });
    alone.add_rendezvous("bad", [](Config&) { return std::make_unique<BadRendezvous>(); });
    alone.add_store("bad", [](Config&, const std::string&) -> std::unique_ptr<CheckpointStore> { throw 5u; });
    alone.add_data("bad",
                   [](Config&, const Origin&) -> std::unique_ptr<DataSource> { throw std::runtime_error("no"); });
    alone.add_kernel("bad", "cpu", [](const KernelSpec& spec, int) -> OpKernel {
        if (spec.op.empty()) throw std::runtime_error("no spec");
        return {[](const KernelCall&) { throw 'x'; }};
    });
    return named("kind/bad", alone, PluginFacts("transport", "devices=cpu"), std::make_shared<OpenCalls>());
}

template <class Call>
Fault fault_of_call(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error.fault();
    }
    return Fault::usage;
}

}  // namespace

TEST_CASE("plugins of every kind: what they throw names them, with function and type") {
    const Registry all = bad();
    Config none;
    const auto device = all.device("bad", {})(none);
    CHECK_THROWS_WITH(device->limits(), Contains("plugin kind/bad: limits threw std::runtime_error: no such device"));
    CHECK(fault_of_call([&] { device->limits(); }) == Fault::failed);
    CHECK_THROWS_WITH(device->prepare({}), Contains("prepare threw double"));
    CHECK_THROWS_WITH(device->copy(0, nullptr, nullptr, 0), Contains("copy threw char const*"));
    CHECK_THROWS_WITH(device->record(0), Contains("plugin kind/bad: record threw int"));
    CHECK_THROWS_AS(device->allocate(1, MemoryKind::device), std::bad_alloc);  // the machine's, not the plugin's
    CHECK_THROWS_WITH(device->why_not({}), "the device's own words");
    Program program;
    CHECK_THROWS_WITH(all.strategy("bad", {})(none, {})->annotate(program, Mesh()),
                      Contains("annotate threw std::out_of_range: vector::at"));
    const auto transport = all.transport("bad", {})(none);
    CHECK_THROWS_WITH(transport->contract(), Contains("contract threw std::") && Contains("string"));
    CHECK_THROWS_WITH(all.store("bad", {})(none, ""), Contains("its factory threw unsigned int"));
    CHECK_THROWS_WITH(all.data("bad", {})(none, {}), Contains("its factory threw std::runtime_error: no"));
    const auto rendezvous = all.rendezvous("bad", {})(none);
    CHECK_THROWS_WITH(rendezvous->serve({}), Contains("serve threw long"));
    CHECK_THROWS_AS(rendezvous->join({}), std::system_error);  // the system refuses a thread
    const KernelMaker& make = all.kernels()[0].make;
    CHECK_THROWS_WITH(make({}, 1), Contains("the kernel of bad threw std::runtime_error: no spec"));
    KernelSpec spec;
    spec.op = "bad";
    CHECK_THROWS_WITH(make(spec, 1).launch({}), Contains("the kernel of bad threw char"));
}
