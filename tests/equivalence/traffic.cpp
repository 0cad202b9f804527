// Every byte of a data-parallel step: counters of the communicators, the plan's summary and the closed form.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "orrery/p2p.h"
#include "plan/summary.h"
#include "trial.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

struct Sizes {
    int64_t gradients = 0;  ///< arrays
    int64_t bytes = 0;      ///< of all gradients, f32
    int64_t largest = 0;
};

Sizes sizes_of(const Program& program) {
    Sizes sizes;
    for (const auto& [param, grad] : program.grads()) {
        const int64_t bytes = program.value(grad).type.bytes();
        CHECK(bytes == 4 * program.value(param).type.count());
        ++sizes.gradients;
        sizes.bytes += bytes;
        sizes.largest = std::max(sizes.largest, bytes);
    }
    return sizes;
}

/// The train program of a model without strategies, marked for `dp` by hand, with messages of at most `bucket` bytes.
Program program_of(const std::string& model, int64_t microbatches, int64_t bucket) {
    auto made = experiment("tests/equivalence/models.lua",
                           fmt::format("[train]\nsteps = 3\nsequences_per_step = 12\nmicrobatches = {}\n"
                                       "[data]\npath = \"none\"\ntokens_per_sequence = 8\n[script]\nmodel = \"{}\"\n",
                                       microbatches, model));
    Program& program = made->train();
    for (ValueId input : program.inputs())
        if (const auto batch = program.dim(input, "batch")) program.store(input, "dp", Placement::split(*batch), {});
    program.bucket("dp", bucket, {});
    return std::move(program);
}

test::Ran run(const test::Lowered& lowered, int64_t steps) { return run_drawn(lowered, steps, 40); }

struct Sent {
    int64_t collectives = 0, messages = 0, bytes = 0;
    bool operator==(const Sent&) const = default;
};

/// What one rank counted over the axis, per step.
Sent counted(const test::Ran& ran, size_t rank, size_t axis, int64_t steps) {
    const Traffic& t = ran.traffic[rank][axis];
    CHECK((t.collectives % steps == 0 && t.messages % steps == 0 && t.bytes_sent % steps == 0));
    return {t.collectives / steps, t.messages / steps, t.bytes_sent / steps};
}

/// What the rank must send for the plan's messages: all but its own block to its owners, its own block to all others.
Sent derived(const Plan& plan, int64_t rank) {
    Sent sent;
    for (const Instruction& i : plan.class_of(rank).stream) {
        if (i.opcode != Opcode::all_reduce) continue;
        const auto members = static_cast<int>(plan.mesh.size(i.axis));
        const TensorType& type = i.operands[0].type;
        const int64_t mine = size_of(type.dtype) * part_of(type.count(), members, static_cast<int>(rank)).count;
        ++sent.collectives;
        sent.messages += 2 * (members - 1);
        sent.bytes += type.bytes() - mine + (members - 1) * mine;
    }
    return sent;
}

/// One step's messages and bytes, checked against the closed form; returns the number of all-reduces.
int64_t account(const std::string& model, int64_t dp, int64_t microbatches, int64_t bucket) {
    const Program program = program_of(model, microbatches, bucket);
    const Sizes sizes = sizes_of(program);
    const auto lowered = test::compile(program, Mesh({{"dp", dp, false}}).with_microbatches(microbatches));
    const int64_t scalars = 2 * 4;  // loss_sum and count; the gradients are whole on every rank, so their norm is local
    const int64_t closed = 2 * (sizes.bytes + scalars) * (dp - 1);  // of all ranks together

    const ClassSummary summary = orrery::summary(lowered.plan).classes.at(0);
    REQUIRE(summary.traffic.size() == 1);
    const ClassSummary::Traffic& planned = summary.traffic[0];
    CHECK(planned.opcode == Opcode::all_reduce);
    const int64_t steps = 3;
    const test::Ran ran = run(lowered, steps);
    int64_t all = 0;
    for (int64_t rank = 0; rank < dp; ++rank) {
        const Sent sent = counted(ran, static_cast<size_t>(rank), 0, steps);
        CHECK(sent == derived(lowered.plan, rank));
        CHECK(sent.collectives == planned.count);
        all += sent.bytes;
    }
    CHECK(all == closed);
    // A message of n elements does not cut in equal blocks: the summary's mean a rank rounds down once a message.
    CHECK(planned.bytes_sent * dp <= closed);
    CHECK(planned.bytes_sent * dp > closed - 2 * dp * planned.count);
    if (dp != 3) CHECK(planned.bytes_sent * dp == closed);

    int64_t largest = 0;
    for (const Instruction& i : lowered.plan.classes[0].stream)
        if (i.opcode == Opcode::all_reduce) largest = std::max(largest, i.operands[0].type.bytes());
    CHECK(largest <= std::max(bucket, sizes.largest));
    if (bucket == 0) CHECK(planned.count == sizes.gradients + 2);
    if (bucket >= sizes.bytes) CHECK(planned.count == 2);  // one of gradients, one of loss_sum and count
    fmt::print(
        "  {:<6} dp {}  micro {}  bucket {:>8}  {:>3} all-reduces  {:>7} B of gradients  {:>7} B a rank, the plan says "
        "{:>7}\n",
        model, dp, microbatches, bucket, planned.count, sizes.bytes,
        fmt::format("{:.1f}", static_cast<double>(all) / static_cast<double>(dp)), planned.bytes_sent);
    return planned.count;
}

}  // namespace

TEST_CASE("data parallelism sends 2 S (P-1)/P of gradients and scalars, and no byte more", "[traffic]") {
    fmt::print("bytes of one step, mean over the ranks; counted = 2 S (P-1)/P, S = gradients + 8\n");
    for (const char* model : {"gpt", "llama", "mlp"}) {
        for (int64_t dp : {2, 3, 4}) {
            const int64_t single = account(model, dp, 1, 0);
            const int64_t some = account(model, dp, 1, 16 << 10);
            CHECK(account(model, dp, 1, 25 << 20) == 2);
            CHECK((2 < some && some < single));
        }
        // Micro-batches add up before they are sent.
        account(model, 2, 2, 0);
        account(model, 2, 3, 25 << 20);
    }
}

TEST_CASE("two axes in one message: 2 S (N-1)/N of N ranks, where it was 2 S (P-1)/P for each axis", "[traffic]") {
    fmt::print("bytes of one step on rep x dp, mean over the ranks; S = gradients + 8\n");
    for (const char* model : {"gpt", "llama"})
        for (const int64_t dp : {2, 3})
            for (const int64_t bucket : {int64_t{0}, int64_t{25} << 20}) {
                Program program = program_of(model, 1, bucket);
                for (ValueId input : program.inputs())
                    if (const auto batch = program.dim(input, "batch"))
                        program.store(input, "rep", Placement::split(*batch), {});
                program.bucket("rep", bucket, {});
                const Mesh mesh({{"rep", 2}, {"dp", dp}});
                const int64_t N = mesh.ranks(), S = sizes_of(program).bytes + 2 * 4, steps = 2;
                const auto sent = [&](const std::map<std::string, std::string>& transports) {
                    CompileOptions options;
                    options.transports = transports;
                    const test::Ran ran = run(test::compile(program, mesh, options), steps);
                    Sent all;
                    for (const auto& rank : ran.traffic)
                        for (const Traffic& t : rank) {
                            all.collectives += t.collectives;
                            all.bytes += t.bytes_sent;
                        }
                    return Sent{all.collectives / steps / N, 0, all.bytes / steps};
                };
                const Sent apart = sent({}), joined = sent(test::one_transport(mesh));
                CHECK(apart.bytes == 2 * S * dp + 2 * S * 2 * (dp - 1));  // of all: N 2 S ((2-1)/2 + (dp-1)/dp)
                CHECK(joined.bytes == 2 * S * (N - 1));
                CHECK(joined.collectives < apart.collectives);
                if (bucket > 0) CHECK(joined.collectives == 2);
                fmt::print(
                    "  {:<6} rep 2 dp {}  bucket {:>8}  {:>3} all-reduces, {:>7} B a rank; apart {:>3}, {:>7} B\n",
                    model, dp, bucket, joined.collectives, joined.bytes / N, apart.collectives, apart.bytes / N);
            }
}
