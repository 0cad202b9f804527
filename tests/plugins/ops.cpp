// Ops of plugins: what is refused when they register, the table of the process, kernels on the CPU device.
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>

#include "folders.h"
#include "ir/build.h"
#include "ir/op.h"
#include "ir/plugin_ops.h"
#include "orrery/kernel.h"
#include "plugin/loader.h"

using namespace orrery;

namespace {

std::vector<Typed> same(Infer& at) { return {at.typed(0)}; }
std::vector<Typed> same_too(Infer& at) { return {at.typed(0)}; }
FactorRule whole(const Program& program, const Op& op) {
    RuleMaker make;
    FactorRule::Dims dims;
    for (const int64_t size : program.value(op.inputs[0]).type.shape) dims.push_back(make.whole(size));
    make.rule.inputs = make.rule.outputs = {dims};
    return make.rule;
}
int64_t none_at_all(const Program&, const Op&) { return 0; }

OpDef op(std::string_view name) {
    return {.name = name, .operands = {"x"}, .types = "f -> f", .infer = same, .rule = whole, .flops = none_at_all};
}

/// A kernel that says nothing of its numbers.
OpKernel idle(const KernelSpec&, int) {
    return {[](const KernelCall&) {}};
}

std::string problem(const std::function<void(Registry&)>& add) {
    Registry registry;
    add(registry);
    return problem_of_ops("tide", registry);
}

/// On real threads, each part on one of its own.
void on_threads(int parts, void (*run)(void* arg, int part), void* arg) {
    std::vector<std::thread> threads;
    for (int part = 0; part < parts; ++part) threads.emplace_back(run, arg, part);
    for (std::thread& thread : threads) thread.join();
}

std::unique_ptr<Device> cpu(Registry& registry, bool reference, int64_t threads) {
    Loader({in_build("plugins")}).load("device", "cpu", registry, {});
    Config config("device.cpu");
    config.set("reference", {reference});
    config.set("threads", {threads});
    return registry.device("cpu", {})(config);
}

}  // namespace

TEST_CASE("each way to register ops wrong has its own message") {
    CHECK(problem([](Registry& r) {
              r.add_op(op("tide"));
              r.add_op(op("tide_grad"));
              r.add_kernel("tide_grad", "cpu", idle);
          }).empty());
    CHECK(problem([](Registry& r) { r.add_op(op("tide_grad")); }) == "it registers no op tide");
    CHECK(problem([](Registry& r) { r.add_op(op("tides")); }) ==
          "it registers the op tides, but ops of plugin op/tide must be named tide or tide_SUFFIX");
    CHECK(problem([](Registry& r) {
              r.add_op(op("tide"));
              r.add_kernel("moon", "cpu", idle);
          }) == "it registers a kernel of \"moon\", which is not an op of this plugin");
    CHECK(problem([](Registry& r) {
              r.add_op(op("tide"));
              r.add_kernel("tide", "cpu", nullptr);
          }) == "its kernel of tide for device \"cpu\" has a null function");
    CHECK(problem([](Registry& r) {
              r.add_op(op("tide"));
              r.add_kernel("tide", "", idle);
          }) == "its kernel of tide for device \"\" has an invalid name of the device");
    const auto with = [](void (*change)(OpDef&)) {
        return problem([&](Registry& r) {
            OpDef def = op("tide");
            change(def);
            r.add_op(def);
        });
    };
    CHECK(with([](OpDef& def) { def.rule = nullptr; }) == "the op tide lacks rule");
    CHECK(with([](OpDef& def) { def.infer = nullptr; }) == "the op tide lacks infer");
    CHECK(with([](OpDef& def) { def.flops = nullptr; }) == "the op tide lacks flops");
    CHECK(with([](OpDef& def) { def.alias = true; }) ==
          "the op tide sets alias, which is only supported for ops without a kernel");
    CHECK(with([](OpDef& def) { def.operands.clear(); }) ==
          "the op tide has no operands: it needs at least one, since scripts call it on a value");
    CHECK(with([](OpDef& def) { def.types = ""; }).starts_with("the op tide lacks types: a letter for each operand"));
    CHECK(with([](OpDef& def) { def.types = "f f -> f"; })
              .starts_with("the op tide has operands (x) that do not match its types "
                           "\"f f -> f\": expected a letter"));
    CHECK(with([](OpDef& def) {
              def.attributes = {{"by", AttributeDef::Kind::number}, {"accumulate"}};
          }) == "the op tide has an attribute accumulate, which is reserved for compiler passes");
    CHECK(with([](OpDef& def) {
              def.attributes = {{"sends", AttributeDef::Kind::integers}};
          }) == "the op tide has an attribute sends, which is reserved for compiler passes");
    Registry twice;
    twice.add_op(op("tide"));
    CHECK_THROWS_WITH(twice.add_op(op("tide")), "the op \"tide\" is registered twice");
    twice.add_kernel("tide", "cpu", idle);
    CHECK_THROWS_WITH(twice.add_kernel("tide", "cpu", idle),
                      "the kernel of \"tide\" for device cpu is registered twice");
    Registry own;
    own.add_op(op("gelu"));
    CHECK(problem_of_ops("gelu", own) == "duplicate op gelu: it is a built-in op; rename the op of the plugin");
}

TEST_CASE("an op comes once into the process, from one file, and stays") {
    Registry first;
    first.add_op(op("moon"));
    first.add_kernel("moon", "abacus", idle);
    CHECK(find_op_def("moon") == nullptr);
    const size_t before = all_ops().size();
    add_plugin_ops("op/moon", "0.1", first);
    const OpDef* const def = find_op_def("moon");
    REQUIRE(def != nullptr);
    CHECK(&op_def("moon") == def);
    CHECK(all_ops().size() == before + 1);
    CHECK(own_ops().size() < all_ops().size());
    std::vector<std::thread> ranks;  // each loads what the others have
    for (int rank = 0; rank < 4; ++rank) ranks.emplace_back([&] { add_plugin_ops("op/moon", "0.1", first); });
    for (std::thread& rank : ranks) rank.join();
    CHECK(all_ops().size() == before + 1);
    CHECK(find_op_def("moon") == def);

    const std::string other =
        "duplicate op moon: already registered by op/moon 0.1\n  a process takes an op from one file: name only one of "
        "both files in plugins.path";
    CHECK_THROWS_WITH(add_plugin_ops("op/moon", "0.2", first), other);
    OpDef changed = op("moon");
    changed.infer = same_too;
    Registry second;
    second.add_op(changed);
    CHECK_THROWS_WITH(add_plugin_ops("op/moon", "0.1", second), other);
    CHECK(all_ops().size() == before + 1);

    const KernelSpec spec{"moon", {}, {{DType::f32, {4}}}, {{DType::f32, {4}}}};
    CHECK(plugin_kernel(spec, "abacus", 1));
    CHECK_FALSE(plugin_kernel({"gelu", {}, {}, {}}, "cpu", 1));
    Registry devices;
    CHECK(cpu(devices, false, 1)->why_not(spec) ==
          "op moon of plugin op/moon 0.1 has no kernel for device cpu; kernels of it: abacus\n  take one of these "
          "devices, or "
          "add one to the plugin: add_kernel(\"moon\", \"cpu\", ...)");
}

TEST_CASE("an op's plugin is found by the op's name, from several threads") {
    const Loader loader({in_build("plugins")});
    std::atomic<int> found = 0;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank)
        ranks.emplace_back([&] {
            Registry registry;
            loader.load_op("swish_gate_grad", registry, {});
            found += registry.names() == std::vector<std::string>{"op/swish_gate", "op/swish_gate_grad"};
        });
    for (std::thread& rank : ranks) rank.join();
    CHECK(found == 4);
    CHECK(find_plugin_op("swish_gate")->plugin == "op/swish_gate");
    Registry registry;
    CHECK_THROWS_WITH(loader.load_op("swish_gate_more", registry, {"", "a.lua", 7}),
                      "a.lua:7: no op \"swish_gate_more\"\n  the plugin op/swish_gate does not define it");
    CHECK_THROWS_WITH(loader.load_op("swish_gat", registry, {"", "a.lua", 7}),
                      Catch::Contains("did you mean \"swish_gate\"?"));
    Program program;  // ops that nobody has a plugin for are its check's
    program.ops.emplace_back().kind = "swosh";
    CHECK_NOTHROW(loader.load_ops(program, registry));
}

TEST_CASE("parallel_for covers each element once, in ranges of at least the grain") {
    for (const int count : {1, 2, 3, 7})
        for (const int64_t n : {0, 1, 5, 6, 7, 64, 1000})
            for (const int64_t grain : {1, 3, 10, 5000}) {
                std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
                std::atomic<int> ranges = 0, short_ones = 0;
                Threads(count, on_threads).parallel_for(n, grain, [&](int64_t begin, int64_t end) {
                    ++ranges;
                    short_ones += end - begin < std::min(grain, n);
                    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
                });
                INFO(count << " threads, " << n << " elements, grain " << grain);
                CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& times) { return times == 1; }));
                CHECK(ranges == std::min<int64_t>(count, n == 0 ? 0 : std::max<int64_t>(1, n / grain)));
                CHECK(short_ones == 0);
            }
}

TEST_CASE("the CPU device gives plugins' kernels threads and scratch, and the reference f64") {
    Registry brought;
    OpDef sum = op("beacon");
    sum.accumulates = {0};
    brought.add_op(sum);
    // Twice x by way of scratch, added to what is there.
    const auto kernel = [](const KernelSpec& spec, int threads) {
        return kernel_of_floats(spec, spec.inputs[0].dtype, [&]<class T, class C>(T, C) -> OpKernel {
            const int64_t n = spec.inputs[0].count();
            const bool add = spec.attributes.flag("accumulate");
            return {[n, add, threads](const KernelCall& call) {
                        auto* room = static_cast<C*>(call.scratch);
                        if (reinterpret_cast<uintptr_t>(room) % scratch_alignment != 0) throw Error("its scratch");
                        if (call.threads->count() != threads) throw Error("its threads");
                        const T* x = call.in<T>(0);
                        T* y = call.out<T>(1);
                        call.threads->parallel_for(n, 2, [=](int64_t begin, int64_t end) {
                            for (int64_t i = begin; i < end; ++i) {
                                room[i] = 2 * static_cast<C>(x[i]);
                                y[i] = add ? static_cast<C>(y[i]) + room[i] : room[i];
                            }
                        });
                    },
                    n * static_cast<int64_t>(sizeof(C))};
        });
    };
    brought.add_kernel("beacon", "cpu", kernel);
    brought.add_kernel("beacon", "reference", [kernel](const KernelSpec& spec, int threads) {
        CHECK(spec.inputs[0].dtype == DType::f64);
        CHECK(spec.outputs[0].dtype == DType::f64);
        return kernel(spec, threads);
    });
    add_plugin_ops("op/beacon", "0.1", brought);

    constexpr int64_t n = 37;
    std::vector<float> x(n);
    std::iota(x.begin(), x.end(), -9.0f);
    for (const bool reference : {false, true})
        for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f64})
            for (const bool add : {false, true}) {
                Registry devices;
                const auto device = cpu(devices, reference, reference ? 1 : 3);
                KernelSpec spec{"beacon", {}, {{type, {n}}}, {{type, {n}}}};
                if (add) spec.attributes.set("accumulate", true);
                INFO(name_of(type) << (reference ? ", reference" : "") << (add ? ", accumulated" : ""));
                REQUIRE(device->why_not(spec).empty());
                const auto prepared = device->prepare(spec);
                CHECK(prepared->scratch_bytes() == n * (reference || type == DType::f64 ? 8 : 4));
                std::vector<double> in(n), out(n);  // room for any type
                const auto put = [&](std::vector<double>& to, size_t i, float value) {
                    if (type == DType::f64) to[i] = static_cast<double>(value);
                    if (type == DType::f32) reinterpret_cast<float*>(to.data())[i] = value;
                    if (type == DType::bf16) reinterpret_cast<BFloat16*>(to.data())[i] = value;
                    if (type == DType::f16) reinterpret_cast<Float16*>(to.data())[i] = value;
                };
                for (size_t i = 0; i < n; ++i) put(in, i, x[i]), put(out, i, 0.5f);
                Memory scratch = device->allocate(prepared->scratch_bytes(), MemoryKind::device);
                const Tensor operands[] = {{in.data(), type, {n}}, {out.data(), type, {n}}};
                device->launch(0, *prepared, operands, scratch.data);
                device->release(scratch);
                std::vector<double> expected(n);
                for (size_t i = 0; i < n; ++i) put(expected, i, 2 * x[i] + (add ? 0.5f : 0.0f));
                CHECK(std::memcmp(out.data(), expected.data(), n * static_cast<size_t>(size_of(type))) == 0);
            }
    Registry devices;
    const KernelSpec whole_numbers{"beacon", {}, {{DType::i32, {n}}}, {{DType::i32, {n}}}};
    CHECK(cpu(devices, false, 1)->why_not(whole_numbers) ==
          "op beacon: x is i32[37], expected a floating-point type (f -> f)");
    const KernelSpec mixed{"beacon", {}, {{DType::f32, {n}}}, {{DType::bf16, {n}}}};  // f64, both, once widened
    for (const bool reference : {false, true})
        CHECK(cpu(devices, reference, 1)->why_not(mixed) ==
              "op beacon: output 0 is bf16[37], expected f32 as x (f -> f)");
}
