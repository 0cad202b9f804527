// What the strategies cost, against closed forms: bytes that a rank sends a step, bytes of model state, activations.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <map>

#include "plan/lint.h"
#include "plan/summary.h"
#include "trial.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

constexpr int64_t blocks = 2, embed = 32, batch = 8, seq = 8;

std::unique_ptr<Experiment> made(const std::string& model, const std::string& mesh, const std::string& script,
                                 int64_t microbatches = 1, const std::string& precision = "f32") {
    return experiment("tests/equivalence/models.lua",
                      fmt::format("[mesh]\n{}\n[train]\nsteps = 2\nsequences_per_step = {}\nmicrobatches = {}\n"
                                  "precision = \"{}\"\n[data]\npath = \"none\"\ntokens_per_sequence = {}\n"
                                  "[script]\nmodel = \"{}\"\nbucket_mib = 0\n{}\n",
                                  mesh, batch, microbatches, precision, seq, model, script));
}

/// Bytes that a rank sends in one step, by kind, as the plan says.
std::map<Opcode, int64_t> planned(const Plan& plan) {
    std::map<Opcode, int64_t> bytes;
    const PlanSummary summed = summary(plan);
    for (const auto& traffic : summed.classes.at(0).traffic) bytes[traffic.opcode] += traffic.bytes_sent;
    return bytes;
}

/// The same; the communicators must count as many.
std::map<Opcode, int64_t> sent(const Program& program, const Mesh& mesh, const CompileOptions& options) {
    const auto lowered = test::compile(program, mesh, options);
    const std::map<Opcode, int64_t> bytes = planned(lowered.plan);
    int64_t all = 0, counted = 0;
    for (const auto& [kind, one] : bytes) all += one;
    for (const auto& rank : run_drawn(lowered, 1, 40).traffic)
        for (const Traffic& traffic : rank) counted += traffic.bytes_sent;
    CHECK(counted == all * mesh.ranks());
    return bytes;
}
std::map<Opcode, int64_t> sent(const Experiment& made, const CompileOptions& options = {}) {
    return sent(made.train(), made.mesh, options);
}

/// What `orrery check` says that a layer sends and keeps in a micro-batch over cp by the strategy context.
LayerTraffic of_a_layer(const Experiment& made) {
    std::vector<LayerTraffic> layers;
    redistributions(test::compile(made.train(), made.mesh, {}).plan, {}, &layers);
    std::erase_if(layers, [](const LayerTraffic& one) { return !one.by.starts_with("context"); });
    REQUIRE(layers.size() == 1);
    CHECK(layers[0].axis == "cp");
    return layers[0];
}

/// Options with the contract of the threads transport on every axis.
CompileOptions threads(const Mesh& mesh) {
    Config none;
    CompileOptions options;
    for (const Axis& axis : mesh.axes())
        options.contracts[axis.name] = test::registry().transport("threads", {})(none)->contract();
    return options;
}

/// Bytes of all params; of those that backward ops read, of matrices, and of those whose gradient is a sum: the sum
/// over micro-batches comes first then, so that it is scattered once.
struct Sizes {
    int64_t all = 0, read_backward = 0, matrices = 0, tied = 0;
};

Sizes sizes_of(const Program& program) {
    std::vector<char> read(program.values.size(), 0);
    for (const Op& op : program.ops)
        for (ValueId input : op.inputs) read[static_cast<size_t>(input)] |= op.phase == Phase::backward;
    Sizes sizes;
    for (ValueId param : program.params()) {
        const TensorType& type = program.value(param).type;
        sizes.all += 4 * type.count();
        if (read[static_cast<size_t>(param)]) sizes.read_backward += 4 * type.count();
        if (type.shape.size() > 1) sizes.matrices += 4 * type.count();
        const Value& grad = program.value(program.grad_of(param));
        if (program.op(grad.op).kind == "add") sizes.tied += 4 * type.count();
    }
    return sizes;
}

}  // namespace

TEST_CASE("ZeRO sends 2, a + 1 and 3 a units of S (P-1)/P", "[costs]") {
    for (const char* model : {"gpt", "llama"})
        for (int64_t ranks : {2, 4})
            for (int64_t a : {1, 2}) {
                const auto one = [&](int64_t bytes) { return bytes * (ranks - 1) / ranks; };
                const int64_t scalars = 2 * one(4) * 3;  // loss, count and the norm of the gradients
                for (int stage : {1, 2, 3}) {
                    const auto zero = made(model, fmt::format("dp = {}", ranks), fmt::format("zero = {}", stage), a);
                    const Sizes sizes = sizes_of(zero->train());
                    // Every param splits; the tied table's gradient does so at the end only, which is said.
                    REQUIRE(zero->train().remarks().size() == (stage > 1 && sizes.tied > 0 ? 1 : 0));
                    for (const Remark& note : zero->train().remarks())
                        CHECK_THAT(note.text, Catch::Matchers::Contains("stays whole over dp"));
                    auto bytes = sent(*zero);
                    INFO(model << " dp " << ranks << " micro " << a << " stage " << stage);
                    CHECK(bytes[Opcode::reduce_scatter] ==
                          one(sizes.all - sizes.tied) * (stage == 1 ? 1 : a) + one(sizes.tied));
                    // Biases and embedding tables are not read by the backward pass: 3 a is the most that there is.
                    CHECK(bytes[Opcode::all_gather] ==
                          (stage == 3 ? a * one(sizes.all + sizes.read_backward) : one(sizes.all)));
                    CHECK(bytes[Opcode::all_reduce] == scalars);
                    fmt::print("  {:<6} dp {} micro {} ZeRO-{}: {:.2f} units of S (P-1)/P, the closed form has {}\n",
                               model, ranks, a, stage,
                               static_cast<double>(bytes[Opcode::reduce_scatter] + bytes[Opcode::all_gather]) /
                                   static_cast<double>(one(sizes.all)),
                               stage == 1   ? 2
                               : stage == 2 ? a + 1
                                            : 3 * a);
                }
            }
}

TEST_CASE("data and zero over dp x cp send 2, 2, a + 1 and 3 a units of S (N-1)/N of all N ranks", "[costs]") {
    constexpr int64_t N = 4;
    const auto one = [](int64_t bytes) { return bytes * (N - 1) / N; };
    for (const char* model : {"gpt", "llama"})
        for (int64_t a : {1, 2})
            for (int stage : {0, 1, 2, 3}) {
                const auto two = made(model, "dp = 2\ncp = 2", fmt::format("zero = {}", stage), a);
                CompileOptions options;
                options.transports = test::one_transport(two->mesh);
                const Sizes sizes = sizes_of(two->train());
                auto bytes = sent(*two, options);
                INFO(model << " dp 2 cp 2 micro " << a << " stage " << stage);
                // Scalars: loss and count, and with a stage the norm of the gradients. Both axes are one message.
                CHECK(bytes[Opcode::all_reduce] == (stage == 0 ? 2 * one(sizes.all + 2 * 4) : 2 * one(4) * 3));
                CHECK(bytes[Opcode::reduce_scatter] ==
                      (stage == 0 ? 0 : one(sizes.all - sizes.tied) * (stage == 1 ? 1 : a) + one(sizes.tied)));
                CHECK(bytes[Opcode::all_gather] == (stage == 0   ? 0
                                                    : stage == 3 ? a * one(sizes.all + sizes.read_backward)
                                                                 : one(sizes.all)));
            }
}

TEST_CASE("a mixture sends 4 B (P-1)/P of slabs of B bytes a micro-batch, over one axis or several together",
          "[costs]") {
    constexpr int64_t experts = 8, chosen = 2;
    struct {
        const char *mesh, *script;
        int64_t split, ranks, parts;  ///< parts of the tokens; ranks P that share experts; groups of a sequence
    } const cases[] = {
        {"ep = 2", "experts_over = \"ep\"", 2, 2, 1},
        {"dp = 2\nep = 2", "experts_over = \"ep\"", 4, 2, 1},
        {"dp = 2\nep = 2\ntp = 2", "experts_over = \"ep\"\nsequence = true\nzero = 1", 4, 2, 1},
        {"dp = 2\ncp = 2", "experts_over = \"dp cp\"\ncp = \"ring\"\nparts = 2", 4, 4, 2},
        {"dp = 2\nep = 2", "experts_over = \"ep dp\"", 4, 4, 1},
        {"dp = 2\ntp = 2", "experts_over = \"dp tp\"\nsequence = true\nparts = 2", 4, 4, 2},
    };
    for (const auto& one : cases)
        for (const int64_t a : {1, 2}) {
            const auto mixture = made("mixtral", one.mesh, one.script, a);
            CompileOptions options = threads(mixture->mesh);
            options.transports = test::one_transport(mixture->mesh);
            auto bytes = sent(*mixture, options);
            const int64_t tokens = seq / one.parts, slots = (5 * tokens * chosen + 4 * experts - 1) / (4 * experts);
            const int64_t groups = batch * one.parts / one.split / a;  // of a rank in a micro-batch
            const int64_t slab = groups * experts * slots * embed * 4, loads = groups * experts * 4;
            INFO(one.mesh << " " << one.script << " micro " << a);
            CHECK(bytes[Opcode::all_to_all] == blocks * a * (4 * slab + loads) * (one.ranks - 1) / one.ranks);
            for (const auto& moved : redistributions(test::compile(mixture->train(), mixture->mesh, options).plan))
                CHECK(!moved.implicit);
        }
}

TEST_CASE("dispatch by rows sends a token once to each block of experts, with the numbers of its slots and weights",
          "[costs]") {
    struct {
        const char *mesh, *script;
        int64_t split, ranks, parts, experts, chosen, blocks;  ///< as above
        double share;                                          ///< of tokens that go to a block
        int64_t tokens = seq, embed = 32;
    } const cases[] = {
        {"ep = 2", "experts_over = \"ep\"", 2, 2, 1, 8, 2, 2, 1 - 6.0 / 28},
        {"ep = 2", "experts_over = \"ep\"", 2, 2, 1, 8, 2, 4, 1 - 15.0 / 28},
        {"dp = 2\nep = 2\ntp = 2", "experts_over = \"ep\"\nsequence = true\nzero = 1", 4, 2, 1, 8, 2, 2, 1 - 6.0 / 28},
        {"dp = 2\ncp = 2", "experts_over = \"dp cp\"\ncp = \"ring\"\nparts = 2", 4, 4, 2, 8, 2, 4, 1 - 15.0 / 28},
        {"ep = 8", "experts_over = \"ep\"", 8, 8, 1, 64, 8, 8, 0.67906, 64, 512},
    };
    for (const auto& one : cases)
        for (const char* precision : {"f32", "bf16"}) {
            const auto program = [&](int64_t expert_blocks) {
                return experiment("tests/equivalence/models.lua",
                                  fmt::format("[mesh]\n{}\n[train]\nsteps = 2\nsequences_per_step = {}\nprecision = "
                                              "\"{}\"\n[data]\npath = \"none\"\ntokens_per_sequence = {}\n[script]\n"
                                              "model = \"mixtral\"\nembed = {}\nexperts = {}\ntop_k = {}\n"
                                              "expert_blocks = {}\nbucket_mib = 0\n{}\n",
                                              one.mesh, batch, precision, one.tokens, one.embed, one.experts,
                                              one.chosen, expert_blocks, one.script));
            };
            const auto all_to_alls = [&](const Experiment& made) {
                CompileOptions options = threads(made.mesh);
                options.transports = test::one_transport(made.mesh);
                const MarkedProgram* smallest = made.find("train at 1.25");  // of slabs there is one capacity
                const Program& program = smallest ? smallest->program : made.train();
                // Ranks send unequal parts of a scalar in a sum over 8 of them: what they count is not 8 times one.
                return (one.ranks < 8 ? sent(program, made.mesh, options)
                                      : planned(test::compile(program, made.mesh, options).plan))
                    .at(Opcode::all_to_all);
            };
            INFO(one.mesh << " " << one.script << " blocks " << one.blocks << " " << precision);
            const int64_t tokens = one.tokens / one.parts, groups = batch * one.parts / one.split;
            const auto room = std::min(tokens, static_cast<int64_t>(std::ceil(1.25 * tokens * one.share)));
            const int64_t size = std::string_view(precision) == "f32" ? 4 : 2;
            // Of a row: x and its gradient there and back; numbers of slots there; weights there, their gradients back.
            const int64_t row = 4 * one.embed * size + 3 * one.chosen * 4;
            const int64_t bytes = groups * (one.blocks * room * row + one.experts * 4);  // the loads, too
            const int64_t rows = all_to_alls(*program(one.blocks));
            CHECK(rows == blocks * bytes * (one.ranks - 1) / one.ranks);
            if (one.experts == 64) CHECK(static_cast<double>(rows) / all_to_alls(*program(0)) <= 0.72);
        }
}

TEST_CASE("context by heads sends 2 (P-1)/P b (T/P) D e (2 H + 2 G) a layer, its gradients 2 S (P-1)/P", "[costs]") {
    constexpr int64_t heads = 4, head_dim = embed / heads;
    for (const char* model : {"gpt", "llama"})
        for (int64_t ranks : {2, 4})
            for (int64_t a : {1, 2}) {
                const auto split = made(model, fmt::format("cp = {}", ranks), "cp = \"heads\"", a);
                const Sizes sizes = sizes_of(split->train());
                const auto one = [&](int64_t bytes) { return bytes * (ranks - 1) / ranks; };
                // Llama's 2 key/value heads are repeated for 4 ranks.
                const int64_t groups = std::string(model) == "gpt" ? heads : std::max<int64_t>(2, ranks);
                const int64_t layer = 2 * one(batch * seq / ranks * head_dim * 4 * (2 * heads + 2 * groups));
                const int64_t positions = std::string(model) == "gpt" ? seq * embed * 4 : 0;  // split as the sequence
                auto bytes = sent(*split);
                INFO(model << " cp " << ranks << " micro " << a);
                CHECK(bytes[Opcode::all_to_all] == blocks * layer);
                const LayerTraffic told = of_a_layer(*split);
                CHECK(told.bytes == layer / a);
                CHECK(told.counts == std::map<std::string, int64_t>{{"all_to_all", 8}});
                const int64_t scalars = positions > 0 ? 3 : 2;  // loss, count; the norm, when a gradient is split
                CHECK(bytes[Opcode::all_reduce] == 2 * one(sizes.all - positions + scalars * 4));
                CHECK(bytes[Opcode::all_gather] == one(positions));
            }
}

TEST_CASE("context by heads within a key/value head of tp gathers it, in the bytes of a repeated one", "[costs]") {
    constexpr int64_t P = 2, H = 2, D = embed / 4,
                      G = 2;  // on a rank; its one of llama's 2 key/value heads counts twice
    const auto split = made("llama", "cp = 2\ntp = 2", "vocab = 400\ncp = \"heads\"", 2);
    auto bytes = sent(*split);
    const int64_t each = 2 * (P - 1) * (batch * seq / P * D * 4) / P;
    CHECK(bytes[Opcode::all_to_all] == blocks * each * 2 * H);
    CHECK(bytes[Opcode::all_gather] + bytes[Opcode::reduce_scatter] == blocks * each * 2 * G);
    CHECK(bytes[Opcode::all_gather] == bytes[Opcode::reduce_scatter]);
}

TEST_CASE("context by gathering sends (P-1) (2 U + U') a layer, (P-1) (U + U') where it keeps what it gathers",
          "[costs]") {
    for (const char* model : {"gpt", "llama"})
        for (int64_t ranks : {2, 4})
            for (const bool keep : {false, true}) {
                const auto split =
                    made(model, fmt::format("cp = {}", ranks), fmt::format("cp = \"gather\"\nkeep = {}", keep), 2);
                const Sizes sizes = sizes_of(split->train());
                const auto one = [&](int64_t bytes) { return bytes * (ranks - 1) / ranks; };
                const int64_t groups = std::string(model) == "gpt" ? 4 : 2, head_dim = embed / 4;
                const int64_t U = 2 * batch * (seq / ranks) * groups * head_dim * 4;
                const int64_t positions = std::string(model) == "gpt" ? seq * embed * 4 : 0;  // split as the sequence
                auto bytes = sent(*split);
                INFO(model << " cp " << ranks << " keep " << keep);
                CHECK(bytes[Opcode::all_gather] == blocks * (ranks - 1) * U * (keep ? 1 : 2) + one(positions));
                CHECK(bytes[Opcode::reduce_scatter] == blocks * (ranks - 1) * U);
                const int64_t scalars = positions > 0 ? 3 : 2;
                CHECK(bytes[Opcode::all_reduce] == 2 * one(sizes.all - positions + scalars * 4));
                CHECK(bytes.size() == 3);
                const LayerTraffic told = of_a_layer(*split);
                CHECK(told.bytes == (ranks - 1) * U * (keep ? 2 : 3) / 2);  // in each of 2 micro-batches
                CHECK(told.counts ==
                      std::map<std::string, int64_t>{{"all_gather", keep ? 2 : 4}, {"reduce_scatter", 2}});
                CHECK(told.kept == (keep ? ranks * U / 2 : 0));
            }
}

TEST_CASE("context by a ring sends (P-1) (2 U + U') a layer, and with heads inside each axis what a rank holds",
          "[costs]") {
    constexpr int64_t D = embed / 4;
    for (const char* model : {"gpt", "llama"})
        for (int64_t ranks : {2, 4}) {
            const auto split = made(model, fmt::format("cp = {}", ranks), "cp = \"ring\"", 2);
            const Sizes sizes = sizes_of(split->train());
            const auto one = [&](int64_t bytes) { return bytes * (ranks - 1) / ranks; };
            const int64_t G = std::string(model) == "gpt" ? 4 : 2, U = 2 * batch * (seq / ranks) * G * D * 4;
            const int64_t positions = std::string(model) == "gpt" ? seq * embed * 4 : 0;  // split as the sequence
            auto bytes = sent(*split, threads(split->mesh));
            INFO(model << " cp " << ranks);
            CHECK(bytes[Opcode::send] == blocks * (ranks - 1) * 3 * U);
            CHECK(bytes[Opcode::all_gather] == one(positions));
            CHECK(bytes[Opcode::all_reduce] == 2 * one(sizes.all - positions + (positions > 0 ? 3 : 2) * 4));
            CHECK(bytes.size() == 3);
        }
    const auto both = made("llama", "co = 2\ncp = 2", "co = \"ring\"\ncp = \"heads\"", 2);
    const int64_t rows = batch * seq / 4;  // of a rank, with all heads; by heads, twice as many with half of the heads
    auto bytes = sent(*both, threads(both->mesh));
    CHECK(bytes[Opcode::send] == blocks * 3 * 2 * (2 * rows) * 1 * D * 4);
    CHECK(bytes[Opcode::all_to_all] == blocks * 2 * (rows * D * 4) * (2 * 4 + 2 * 2) / 2);
}

TEST_CASE("tensor parallelism sends 4 all-reduces a layer; sequence parallelism as much and a block's input again",
          "[costs]") {
    for (const char* model : {"llama", "gpt", "qwen2"})
        for (int64_t ranks : {2})
            for (int64_t a : {1, 2}) {
                INFO(model << " tp " << ranks << " micro " << a);
                const auto one = [&](int64_t bytes) { return bytes * (ranks - 1) / ranks; };
                const int64_t rows = batch * seq, stream = rows * embed * 4;
                const int64_t units = 4 * blocks + 2;              // and the embedding, and the head's dX
                const int64_t statistics = 2 * one(3 * rows * 4);  // row maximum, sum of exponentials, picked logit
                const int64_t norm = 2 * one(4);
                auto tensor = sent(*made(model, fmt::format("tp = {}", ranks), "vocab = 400", a));
                CHECK(tensor[Opcode::all_reduce] == 2 * one(units * stream) + statistics + norm);
                CHECK(tensor.size() == 1);

                const auto split = made(model, fmt::format("tp = {}", ranks), "vocab = 400\nsequence = true", a);
                auto sequence = sent(*split);
                int64_t between = 0;  // gradients of what is added or multiplied between the blocks
                for (ValueId param : split->train().params()) {
                    const Value& value = split->train().value(param);
                    if (value.dims == std::vector<std::string>{"embed"}) between += value.type.bytes();
                }
                CHECK(sequence[Opcode::all_reduce] == 2 * one(between) + statistics + norm);
                CHECK(sequence[Opcode::reduce_scatter] == one(units * stream));
                const int64_t positions = std::string(model) == "gpt" ? one(seq * embed * 4) : 0;  // their gradient
                const int64_t again = 2 * blocks + 1;  // for gradients of weights, the head's too
                CHECK(sequence[Opcode::all_gather] == one((units + again) * stream) + positions);
                for (const auto& moved : redistributions(test::compile(split->train(), split->mesh).plan))
                    CHECK(!moved.implicit);
                const std::string options = "vocab = 400\nsequence = true\nkeep_gathered = true";
                auto kept = sent(*made(model, fmt::format("tp = {}", ranks), options, a));
                CHECK(kept[Opcode::all_gather] == one(units * stream) + positions);
            }
}

namespace {

/// Whether the value is a param's copy in fewer bits, gathered or not.
bool low_copy(const Plan& plan, ValueId id) {
    while (id != none && plan.program.value(id).op != none) {
        const Op& op = plan.program.op(plan.program.value(id).op);
        if (op.kind != "cast" && op.kind != "all_gather") return false;
        id = op.inputs[0];
    }
    return id != none && plan.program.value(id).role == Role::param;
}

/// Bytes that a rank saves in the forward pass for the backward pass, without copies of params.
int64_t saved(const Plan& plan) {
    const RankClass& c = plan.classes.at(0);
    const auto phase = [&](int index) {
        const OpId op = c.stream[static_cast<size_t>(index)].op;
        return op == none ? Phase::update : plan.program.op(op).phase;
    };
    int64_t bytes = 0;
    for (const Buffer& b : c.buffers)
        if (b.arena == Arena::scratch && b.first >= 0 && phase(b.first) == Phase::forward &&
            phase(b.last) == Phase::backward && !low_copy(plan, b.value))
            bytes += b.bytes;
    return bytes;
}

/// Bytes of params, optimizer states, gradients and low-precision copies of params that a rank holds between the last
/// two micro-batches, when nothing else of the loop is alive.
int64_t model_state(const Plan& plan) {
    const RankClass& c = plan.classes[0];
    int between = 0;
    for (size_t i = 0; i < c.stream.size(); ++i)
        if (c.stream[i].fragment.micro == plan.mesh.microbatches() - 2) between = static_cast<int>(i);
    int64_t bytes = 0;
    for (const Buffer& b : c.buffers) {
        const bool alive = b.first <= between && b.last > between;
        const bool counts = b.arena == Arena::persistent
                                ? b.use == BufferUse::param || b.use == BufferUse::state
                                : alive && (b.use == BufferUse::gradient || low_copy(plan, b.value));
        if (counts) bytes += b.bytes;
    }
    return bytes;
}

}  // namespace

TEST_CASE("ZeRO holds 6 + 12/N, 2 + 16/N, 18/N bytes a parameter, in f32 8 + 8/N, 4 + 12/N, 16/N", "[costs]") {
    for (int64_t n : {2, 4})
        for (const char* precision : {"f32", "bf16"})
            for (int stage : {1, 2, 3}) {
                const auto zero =
                    made("llama", fmt::format("dp = {}", n), fmt::format("zero = {}", stage), 2, precision);
                const Plan plan = test::compile(zero->train(), zero->mesh).plan;
                const Sizes sizes = sizes_of(zero->train());
                const bool low = std::string(precision) == "bf16";
                const int64_t matrices = sizes.matrices / 4, gains = sizes.all / 4 - matrices;
                const int64_t whole[] = {0, 8, 4, 0}, split[] = {0, 8, 12, 16};
                const int64_t whole_low[] = {0, 6, 2, 0}, split_low[] = {0, 12, 16, 18};
                const int64_t expected = (low ? whole_low : whole)[stage] * matrices +
                                         (low ? split_low : split)[stage] * matrices / n +  // gains are not cast
                                         whole[stage] * gains + split[stage] * gains / n;
                INFO(precision << " dp " << n << " stage " << stage);
                CHECK(model_state(plan) == expected);
                fmt::print("  llama {} dp {} ZeRO-{}: {:.3f} bytes a parameter\n", precision, n, stage,
                           static_cast<double>(model_state(plan)) / static_cast<double>(sizes.all / 4));
            }
}

TEST_CASE("with a split sequence a layer saves what Megatron's does: 32 s b h / t bytes of gpt, 34 of Llama 3 8B",
          "[costs]") {
    // Korthikanti et al. 2022 count 34 with two dropout masks; fused attention saves no scores.
    constexpr int64_t t = 8, h = 1024, s = 256, H = 32, G = 8, mlp = 7 * h / 2;
    const auto layer = [&](const std::string& script) {
        int64_t bytes[2];
        for (const int64_t layers : {2, 3}) {
            const auto split = experiment(
                "scripts/gpt.lua",
                fmt::format("[mesh]\ntp = {}\n[train]\nsteps = 2\nsequences_per_step = 1\nprecision = \"bf16\"\n"
                            "[data]\npath = \"none\"\ntokens_per_sequence = {}\nvocab = 1024\n[script]\nlayers = {}\n"
                            "embed = {}\nheads = {}\n{}",
                            t, s, layers, h, H, script));
            bytes[layers - 2] = saved(test::compile(split->train(), split->mesh).plan);
        }
        return static_cast<double>(bytes[1] - bytes[0]) / (static_cast<double>(s * h) / t);
    };
    const std::string llama = fmt::format("model = \"llama\"\nkv_heads = {}\nmlp = {}\n", G, mlp);
    const double of_gpt = layer("sequence = true\n"), of_llama = layer("sequence = true\n" + llama);
    fmt::print("  a layer of gpt saves {:.2f} s b h / t bytes, of llama {:.2f}\n", of_gpt, of_llama);
    CHECK(std::abs(of_gpt / 32 - 1) < 0.08);
    CHECK(std::abs(of_llama / (12 + 4.0 * G / H + 6.0 * mlp / h) - 1) < 0.08);
    CHECK(layer("") > 1.5 * of_gpt);
}

TEST_CASE("recomputation changes no bit and frees the activations of all blocks but one", "[costs]") {
    const auto run = [](const std::string& recompute, int64_t& peak) {
        const auto gpt = made("gpt", "", "dropout = 0.1\nlayers = 6\nrecompute = \"" + recompute + "\"");
        const auto lowered = test::compile(gpt->train(), gpt->mesh);
        peak = summary(lowered.plan).classes.at(0).activations;
        return run_drawn(lowered, 3, 40).values;
    };
    int64_t kept = 0, full = 0, selective = 0;
    const test::Contents plain = run("", kept);
    CHECK(run("full", full) == plain);
    CHECK(run("selective", selective) == plain);
    fmt::print("  gpt, 6 blocks: {} bytes of activations kept, {} selective, {} full\n", kept, selective, full);
    CHECK(selective < kept);
    CHECK(3 * full < kept);
}
