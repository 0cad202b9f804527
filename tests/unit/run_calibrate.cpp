// What calibrate measures: which kernels, with which operands, and what transports take.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "layout_models.h"
#include "plan_ranks.h"
#include "ranks.h"
#include "run/calibrate/kernel_cases.h"
#include "run/calibrate/wire_bench.h"

using namespace orrery;
using namespace orrery::test;

namespace {

/// Notes what it is asked to run.
struct CountingDevice final : Device {
    std::unique_ptr<Device> inner = cpu_device(false);
    int64_t launches = 0;
    std::set<const void*> places;  ///< of first operands
    bool ordinary = true;          ///< no first element of f32 operands is a denormal
    bool ids = true;               ///< they are below `rows`
    int32_t rows = 1 << 30;

    DeviceLimits limits() override { return inner->limits(); }
    Memory allocate(int64_t bytes, MemoryKind kind) override { return inner->allocate(bytes, kind); }
    void release(Memory& memory) override { inner->release(memory); }
    std::string why_not(const KernelSpec& spec) override { return inner->why_not(spec); }
    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override { return inner->prepare(spec); }
    void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) override {
        ++launches;
        places.insert(operands.front().data);
        for (const Tensor& t : operands) {
            if (t.dtype == DType::f32 && t.count() > 0 && &t == &operands.front()) {
                const float first = *static_cast<const float*>(t.data);
                ordinary = ordinary && std::fpclassify(first) != FP_SUBNORMAL;
            }
            if (t.dtype == DType::i32)
                for (int64_t i = 0; i < t.count(); ++i) {
                    const int32_t id = static_cast<const int32_t*>(t.data)[i];
                    ids = ids && id >= 0 && id < rows;
                }
        }
        inner->launch(queue, kernel, operands, scratch);
    }
    void copy(int queue, void* to, const void* from, int64_t bytes) override { inner->copy(queue, to, from, bytes); }
    Event record(int queue) override { return inner->record(queue); }
    void wait(int queue, const Event& event) override { inner->wait(queue, event); }
    void synchronize(int queue) override { inner->synchronize(queue); }
    void* native(int queue) override { return inner->native(queue); }
};

KernelBench quick(double seconds) {
    KernelBench bench;
    bench.budget_s = seconds;
    bench.pool_bytes = int64_t{1} << 20;
    return bench;
}

}  // namespace

TEST_CASE("a plan's kernels are each measured once, under the spec that the plan has") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    const Lowered lowered = compile(m.program, Mesh(std::vector<Axis>{{"dp", 2}, {"tp", 2}}).with_microbatches(2));
    const std::vector<KernelCase> cases = kernel_cases({&lowered.plan});
    for (const RankClass& c : lowered.plan.classes)
        for (const Instruction& i : c.stream) {
            if (i.opcode != Opcode::kernel) continue;
            const KernelSpec& spec = c.kernels[static_cast<size_t>(i.kernel)];
            CHECK(std::count_if(cases.begin(), cases.end(), [&](const KernelCase& k) { return k.row == spec; }) == 1);
        }
    const auto update = std::find_if(cases.begin(), cases.end(), [](const auto& k) { return k.row.op == "adamw"; });
    REQUIRE(update != cases.end());
    CHECK(std::ranges::count(update->in_place, std::pair<int, int>{0, 0}) == 1);  // the param, in place

    CountingDevice device;
    std::vector<std::string> notes;
    size_t shown = 0;
    KernelBench bench = quick(60);
    bench.budget_s = 0.3;
    bench.progress = [&](size_t, size_t all, const KernelSpec&) {
        ++shown;
        CHECK(all == 3 * cases.size());
    };
    const std::vector<KernelCost> rows = measure_kernels(device, cases, bench, notes);
    CHECK((rows.size() == cases.size()) == notes.empty());  // a slow machine may not reach all
    CHECK((shown > 0 || !notes.empty()));
    CHECK(device.ordinary);
    for (const KernelCost& row : rows) {
        CHECK(row.time.seconds > 0);
        CHECK(row.time.samples >= 3);
        CHECK(*row.time.least_s <= row.time.seconds);
    }
}

TEST_CASE("operands take turns in a pool, and ids are rows that there are", "[slow]") {
    CountingDevice device;
    device.rows = 7;
    const TensorType ids{DType::i32, {50}}, table{DType::f32, {7, 16}}, y{DType::f32, {50, 16}};
    const KernelSpec spec{"embedding", {}, {ids, table}, {y}};
    std::vector<std::string> notes;
    const auto rows = measure_kernels(device, {{spec, spec}}, quick(2), notes);
    CHECK(notes.empty());
    REQUIRE(rows.size() == 1);
    CHECK(device.ids);
    CHECK(device.places.size() > 3);
}

TEST_CASE("an operand that is overwritten in place stays of ordinary size", "[slow]") {
    CountingDevice device;
    const TensorType x{DType::f32, {int64_t{1} << 17}};  // two places of the pool
    const KernelSpec spec{"scale", {{"by", 1e-3}}, {x}, {x}};
    std::vector<std::string> notes;
    const auto rows = measure_kernels(device, {{spec, spec, {{0, 0}}}}, quick(2), notes);
    REQUIRE(rows.size() == 1);
    CHECK(device.ordinary);
}

TEST_CASE("what cannot be measured is named") {
    CountingDevice device;
    const TensorType x{DType::f32, {4}}, large{DType::f32, {int64_t{1} << 20}};
    const KernelSpec none{"no_such_op", {}, {x}, {x}}, big{"neg", {}, {large}, {large}};
    std::vector<std::string> notes;
    KernelBench bench = quick(0.02);
    bench.most_bytes = 1 << 20;
    CHECK(measure_kernels(device, {{none, none}, {big, big}}, bench, notes).empty());
    REQUIRE(notes.size() == 2);
    CHECK_THAT(notes[0], Catch::Contains("no_such_op"));
    CHECK_THAT(notes[1], Catch::Contains("8.0 MiB, more than the limit of 1.0 MiB"));
    notes.clear();
    CHECK(measure_kernels(device, {{big, big}}, quick(0), notes).empty());
    CHECK(notes ==
          std::vector<std::string>{"the time limit was reached before 1 kernel: neg f32[1048576] -> f32[1048576]"});
}

TEST_CASE("the grid has complete specs of every family, none twice") {
    const auto device = cpu_device(false);
    for (const DType dtype : {DType::f32, DType::bf16}) {
        std::map<std::string, int> ops;
        const std::vector<KernelCase> cases = kernel_grid(*device, dtype);
        for (const KernelCase& c : cases) {
            ++ops[c.row.op];
            CHECK(device->why_not(c.row) == "");
        }
        for (const char* op : {"matmul", "matmul_dw", "attention", "attention_grad", "rmsnorm", "layernorm_grad",
                               "softmax", "cross_entropy", "embedding", "adamw", "add", "gelu", "swiglu_grad"})
            CHECK(ops[op] > 0);
        CHECK((ops["cast"] > 0) == (dtype != DType::f32));
        CHECK(ops["matmul"] > 60);
    }
}

TEST_CASE("quartiles of samples") {
    const Measured m = measured_of({5, 1, 3, 2, 4});
    CHECK(m.seconds == 3);
    CHECK(*m.least_s == 1);
    CHECK(*m.spread == Approx(2.0 / 3));
    CHECK(m.samples == 5);
    CHECK(measured_of({2}).seconds == 2);
    CHECK(measured_of({1, 2}).seconds == 1.5);
}

TEST_CASE("collectives and messages are timed between members, by size") {
    WireBench bench;
    bench.transport = "threads";
    bench.budget_s = 0.2;
    bench.bytes = {1024, 16384};
    const std::shared_ptr<Transport> transport = threads_transport();
    for (const int64_t ranks : {2, 3}) {
        std::vector<std::vector<WireCost>> found(static_cast<size_t>(ranks));
        run_ranks(ranks, [&](int64_t rank, Rendezvous& rendezvous) {
            std::vector<char> memory(static_cast<size_t>(wire_bytes(bench, ranks)));
            const Memory arena{memory.data(), static_cast<int64_t>(memory.size()), MemoryKind::device, ""};
            Group group{"wires", "wires", {}, static_cast<int>(rank)};
            for (int64_t r = 0; r < ranks; ++r) group.ranks.push_back(r);
            const auto made = transport->make(group, rendezvous, std::span(&arena, 1), std::chrono::seconds(60));
            found[static_cast<size_t>(rank)] = measure_wires(*made, rendezvous, arena, bench);
        });
        CHECK(found[1].empty());
        REQUIRE(found[0].size() == 5 * 2);
        for (const WireCost& row : found[0]) {
            CHECK(row.time.seconds > 0);
            CHECK(row.time.samples >= 7);
            CHECK(row.ranks == (row.op == "message" ? 2 : ranks));
            CHECK(row.bytes > 1000);
            CHECK(row.bytes <= 16384);
            CHECK(*row.processor_s >= 0);
        }
        CHECK(found[0][0].op == "all_reduce");
        CHECK(found[0][9].op == "message");
    }
}
