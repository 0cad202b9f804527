#include "sim/software/tp_chunks.h"

#include <catch2/catch.hpp>
#include <map>

#include "compile/pipeline.h"
#include "layout_models.h"
#include "orrery/p2p.h"
#include "plan/access.h"
#include "plan/print.h"
#include "plan/repeat.h"
#include "sim/simulate.h"

using namespace orrery;
using namespace orrery::test;

namespace {

bool is_product(const KernelSpec& spec) { return spec.op.starts_with("matmul"); }
bool is_whole(const KernelSpec& spec) { return spec.op.starts_with("matmul_dw") || spec.attributes.flag("trans_a"); }

double operations(const KernelSpec& spec) {
    return 2 * static_cast<double>(spec.outputs[0].count()) * static_cast<double>(spec.inputs[0].shape.back());
}

/// Products by their operations, collectives by their bytes, other kernels by what they make.
class Linear final : public Prices {
public:
    Demand kernel(const KernelSpec& spec, int64_t) override {
        const bool product = is_product(spec) && !is_whole(spec);
        return {product ? operations(spec) * per_operation : static_cast<double>(spec.outputs[0].count()) * other,
                {},
                0,
                ""};
    }
    Demand copy(int64_t, int64_t) override { return {}; }
    Demand collective(Opcode, AxisId, int64_t bytes, const std::vector<int64_t>&,
                      const std::vector<int64_t>&) override {
        return {static_cast<double>(bytes) * per_byte, {}, 0, ""};
    }
    Demand message(AxisId, int64_t bytes, int64_t, int64_t, const std::vector<int64_t>&) override {
        return {static_cast<double>(bytes) * per_sent_byte, {}, 0, ""};
    }
    double capacity(ResourceId) const override { return 1; }

    double per_operation = 0, per_byte = 0, per_sent_byte = 0, other = 0;
};

Network network(const Mesh& mesh) {
    Network all;
    for (const Axis& axis : mesh.axes()) all[axis.name] = accelerator_contract();
    return all;
}

struct Job {
    int layers = 2;
    int64_t batch = 2, micros = 1, written = written_micros;
    bool sequence = false;
};

Plan made(const Job& job, const Mesh& mesh) {
    Model m = deep(job.layers, job.batch, 32);
    m.split_names({{"mlp", "tp"}, {"batch", "dp"}});
    if (job.sequence) m.split_names({{"seq", "tp"}});
    const Mesh all = mesh.with_microbatches(job.micros);
    CompileOptions options;
    options.contracts = network(mesh);
    options.written_micros = job.written;
    Persistent persistent;
    return plan_of(distribute(m.program, all), all, persistent, options);
}

const Mesh mesh({{"dp", 2}, {"tp", 4}});
const AxisId tp = 1;

/// What a step asks for, in all.
struct Totals {
    double operations = 0;
    int64_t bytes = 0, products = 0, collectives = 0;
    std::vector<std::string> others;  ///< in the order of issue
};

Totals work_of(const Plan& plan) {
    Totals work;
    for (const RankClass& c : plan.classes)
        for (size_t i = 0; i < c.stream.size(); ++i) {
            const Instruction& one = c.stream[i];
            const bool product = one.opcode == Opcode::kernel && is_product(c.kernels[static_cast<size_t>(one.kernel)]);
            if (product) {
                work.operations += operations(c.kernels[static_cast<size_t>(one.kernel)]);
                ++work.products;
            } else if (one.axis == tp) {
                work.bytes += std::max(one.operands[0].type.bytes(), one.operands[1].type.bytes());
                ++work.collectives;
            } else if (one.opcode == Opcode::kernel) {
                const KernelSpec& spec = c.kernels[static_cast<size_t>(one.kernel)];
                if (spec.op != "transpose") work.others.push_back(spec.op + spec.outputs[0].text());
            } else {
                work.others.emplace_back(name_of(one.opcode));
            }
        }
    return work;
}

/// A gather or sum beside one product [16, 8] x [8, 8], and a norm at the other end.
Plan pair(Opcode opcode, bool transposed) {
    Plan plan;
    plan.mesh = Mesh({{"tp", 2}});
    RankClass c;
    c.ranks = {0, 1};
    const auto operand = [&](int buffer, Shape shape) {
        return Operand{buffer, 0, {DType::f32, std::move(shape)}, none, 0};
    };
    c.buffers.resize(8);
    const auto launch = [&](const std::string& op, std::vector<Operand> operands, std::vector<int> waits) {
        KernelSpec spec{op, {}, {}, {}};
        if (op == "transpose") spec.attributes.set("perm", std::vector<int64_t>{1, 0, 2});
        for (size_t i = 0; i + 1 < operands.size(); ++i) spec.inputs.push_back(operands[i].type);
        spec.outputs.push_back(operands.back().type);
        Instruction i;
        i.kernel = static_cast<int>(c.kernels.size());
        i.operands = std::move(operands);
        i.waits = std::move(waits);
        c.kernels.push_back(spec);
        c.stream.push_back(i);
        return static_cast<int>(c.stream.size()) - 1;
    };
    const auto collective = [&](Operand in, Operand out, std::vector<int> waits) {
        Instruction i;
        i.opcode = opcode;
        i.queue = 1;
        i.axis = 0;
        i.operands = {std::move(in), std::move(out)};
        i.waits = std::move(waits);
        c.stream.push_back(i);
        return static_cast<int>(c.stream.size()) - 1;
    };
    const Operand weight = operand(7, {8, 8});
    if (opcode == Opcode::all_gather) {
        const int norm = launch("rmsnorm", {operand(0, {8, 8}), operand(1, {8, 8})}, {});
        const int gathered = collective(operand(1, {8, 8}), operand(2, {16, 8}), {norm});
        if (transposed) launch("transpose", {operand(2, {2, 8, 8}), operand(3, {8, 2, 8})}, {gathered});
        launch("matmul", {operand(transposed ? 3 : 2, {16, 8}), weight, operand(4, {16, 8})},
               transposed ? std::vector<int>{} : std::vector<int>{gathered});
    } else {
        int last = launch("matmul", {operand(0, {16, 8}), weight, operand(1, {16, 8})}, {});
        if (transposed) last = launch("transpose", {operand(1, {8, 2, 8}), operand(2, {2, 8, 8})}, {});
        const Shape out = opcode == Opcode::all_reduce ? Shape{16, 8} : Shape{8, 8};
        const int summed = collective(operand(transposed ? 2 : 1, {16, 8}), operand(3, out), {last});
        launch("rmsnorm", {operand(3, out), operand(4, out)}, {summed});
    }
    plan.classes = {c};
    plan.fingerprint = "whole";
    return plan;
}

}  // namespace

TEST_CASE("tp chunks: a pair takes the longer of both and a chunk of the shorter") {
    for (const Opcode opcode : {Opcode::all_gather, Opcode::reduce_scatter, Opcode::all_reduce})
        for (const bool transposed : {false, true})
            for (const auto& [c, p] : {std::pair{8.0, 2.0}, std::pair{2.0, 8.0}, std::pair{4.0, 4.0}})
                for (const int64_t n : {2, 4, 8}) {
                    CAPTURE(name_of(opcode), transposed, c, p, n);
                    const Plan plan = pair(opcode, transposed);
                    const TpChunked chunked = tp_chunked(plan, 0, n);
                    CHECK(chunked.cut == 1);
                    CHECK(chunked.all == 1);
                    CHECK(chunked.plan.fingerprint == for_prices_alone);
                    Linear prices;
                    prices.per_byte = c / (16 * 8 * 4);
                    prices.per_operation = p / (2 * 16 * 8 * 8);
                    const Network contracts = network(plan.mesh);
                    CHECK(simulate(plan, contracts, prices).step_s == Approx(c + p).epsilon(1e-9));
                    const Simulated run = simulate(chunked.plan, contracts, prices);
                    const double each = std::min(c, p) / static_cast<double>(n);
                    const bool exchanged =
                        n == 2 && opcode != Opcode::all_reduce;  // half of the rows are the rank's own
                    const double step = exchanged ? p / 2 + std::max(c, p / 2) : std::max(c, p) + each;
                    CHECK(run.step_s == Approx(step).epsilon(1e-9));
                    CHECK(run.actors[0].computing == Approx(p).epsilon(1e-9));
                    CHECK(run.actors[0].communicating == Approx(c).epsilon(1e-9));
                }
}

TEST_CASE("tp chunks: through mapped buffers a chunk costs what a message of its ring costs") {
    for (const Opcode opcode : {Opcode::all_gather, Opcode::reduce_scatter, Opcode::all_reduce}) {
        CAPTURE(name_of(opcode));
        const Plan plan = pair(opcode, false);
        const TpChunked chunked = tp_chunked(plan, 0, 4);
        Linear prices;
        prices.per_byte = 100;  // of collectives, of which none is left
        prices.per_sent_byte = 8.0 / (16 * 8 * 4);
        prices.per_operation = 1.0 / (2 * 16 * 8 * 8);
        SimulateOptions options;
        options.mapped = chunked.chunks;
        const Simulated run = simulate(chunked.plan, network(plan.mesh), prices, options);
        const double sent = opcode == Opcode::all_reduce ? 8 : 4;  // of two members, (n - 1) / n of the bytes
        CHECK(run.step_s == Approx(sent + 0.25).epsilon(1e-9));
        CHECK(run.carried.begin()->second == "mapped buffers");
    }
}

TEST_CASE("tp chunks: chunks of sizes that do not divide add up") {
    const TpChunked chunked = tp_chunked(pair(Opcode::all_gather, false), 0, 3);
    std::vector<int64_t> rows, bytes;
    for (const Instruction& i : chunked.plan.classes[0].stream) {
        if (i.axis != none) bytes.push_back(i.operands[1].type.bytes());
        if (i.axis == none && i.operands.size() == 3) rows.push_back(i.operands[0].type.shape[0]);
    }
    CHECK(rows == std::vector<int64_t>{5, 5, 6});
    CHECK(bytes == std::vector<int64_t>{168, 168, 176});  // of 64 floats of a member 21, 21 and 22, from both
    CHECK(tp_chunked(pair(Opcode::all_gather, false), 0, 32).cut == 0);  // 16 rows have no 32 chunks
    Plan fused = pair(Opcode::all_gather, false);
    fused.classes[0].kernels[1].op = "matmul_gelu_grad";
    CHECK(tp_chunked(fused, 0, 4).cut == 1);
    fused.classes[0].kernels[1].op = "matmul_dw";
    CHECK(tp_chunked(fused, 0, 4).cut == 0);
    Plan lookup = pair(Opcode::reduce_scatter, false);
    lookup.classes[0].kernels[0].op = "embedding";
    CHECK(tp_chunked(lookup, 0, 4).cut == 0);  // no product
}

TEST_CASE("tp chunks: a plan's work stays the same, and nothing but the pairs moves") {
    for (const bool sequence : {false, true})
        for (const int64_t batch : {2, 4}) {
            CAPTURE(sequence, batch);
            const Plan plan = made({2, batch, 1, written_micros, sequence}, mesh);
            const TpChunked chunked = tp_chunked(plan, tp, 4);
            const Totals whole = work_of(plan), cut = work_of(chunked.plan);
            // Forward and backward of each layer have one sum behind a product, and with `sequence` one gather before.
            CHECK(chunked.cut >= (sequence ? 8 : 4));
            CHECK(chunked.cut <= chunked.all);
            CHECK(cut.collectives == whole.collectives + 3 * chunked.cut);
            CHECK(cut.products == whole.products + 3 * chunked.cut);
            CHECK(cut.operations == whole.operations);
            CHECK(cut.bytes == whole.bytes);
            CHECK(cut.others == whole.others);

            Linear prices;
            prices.per_operation = 1e-9;
            prices.per_byte = 1e-9;
            prices.other = 1e-9;
            const Simulated before = simulate(plan, network(mesh), prices);
            const Simulated after = simulate(chunked.plan, network(mesh), prices);
            CHECK(after.step_s < before.step_s);
            CHECK(after.actors[0].exposed.at(tp) < before.actors[0].exposed.at(tp));
        }
}

TEST_CASE("tp chunks: what stands still waits for the same") {
    const Plan plan = made({2, 2, 1, written_micros, true}, mesh);
    const TpChunked chunked = tp_chunked(plan, tp, 4);
    for (const RankClass& c : chunked.plan.classes) {
        for (int i = 0; i < static_cast<int>(c.stream.size()); ++i) {
            for (const int wait : c.stream[static_cast<size_t>(i)].waits) REQUIRE(wait < i);
            for_each_access(c, c.stream[static_cast<size_t>(i)], [&](const Operand& o, bool, bool) {
                const Buffer& b = c.buffers[static_cast<size_t>(o.buffer)];
                REQUIRE(b.first <= i);
                REQUIRE(b.last >= i);
            });
        }
    }
    // With free products and a price for collectives alone, chunks change nothing: all waits are there.
    Linear prices;
    prices.per_byte = 1e-9;
    CHECK(simulate(chunked.plan, network(mesh), prices).step_s ==
          Approx(simulate(plan, network(mesh), prices).step_s).epsilon(1e-6));
    Linear products;
    products.per_operation = 1e-9;
    CHECK(simulate(chunked.plan, network(mesh), products).step_s ==
          Approx(simulate(plan, network(mesh), products).step_s).epsilon(1e-6));
}

TEST_CASE("tp chunks: one chunk, another axis and a plan without tp change nothing") {
    const Plan plan = made({}, mesh);
    const auto same = [&](const TpChunked& chunked, const Plan& of) {
        CHECK(chunked.cut == 0);
        CHECK(chunked.plan.fingerprint == of.fingerprint);
        CHECK(print(chunked.plan) == print(of));
    };
    same(tp_chunked(plan, tp, 1), plan);
    same(tp_chunked(plan, 0, 4), plan);
    const Mesh alone({{"dp", 2}, {"tp", 1}});
    const Plan data = made({}, alone);
    same(tp_chunked(data, tp, 4), data);
}

TEST_CASE("tp chunks: a steady state that is stored once is cut as what it stands for") {
    for (const bool sequence : {false, true}) {
        CAPTURE(sequence);
        const Plan plan = made({2, 160, 80, written_micros, sequence}, mesh);
        REQUIRE(repeats(plan.classes[0]));
        const TpChunked chunked = tp_chunked(plan, tp, 4);
        const TpChunked written = tp_chunked(unrolled(plan), tp, 4);
        CHECK(chunked.cut >= 80 * (sequence ? 8 : 4));
        CHECK(chunked.all == written.all);
        CHECK(chunked.cut == written.cut);
        const RankClass &before = plan.classes[0], &after = chunked.plan.classes[0];
        CHECK(after.repeat.length() > before.repeat.length());
        CHECK(issues(after) == issues(written.plan.classes[0]));
        Linear prices;
        prices.per_operation = 1e-9;
        prices.per_byte = 1e-9;
        prices.other = 1e-9;
        const Simulated short_form = simulate(chunked.plan, network(mesh), prices);
        const Simulated long_form = simulate(written.plan, network(mesh), prices);
        CHECK(short_form.step_s == Approx(long_form.step_s).epsilon(1e-9));
        CHECK(short_form.step_s < simulate(plan, network(mesh), prices).step_s);
    }
}
