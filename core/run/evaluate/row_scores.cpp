#include "run/evaluate/row_scores.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "ir/describe.h"
#include "run/data/input_feed.h"

namespace orrery {

DocumentRow::DocumentRow(int64_t positions)
    : tokens(static_cast<size_t>(positions)),
      targets(tokens.size()),
      documents_(tokens.size()),
      places_(tokens.size()) {
    std::iota(places_.begin(), places_.end(), 0);
}

bool DocumentRow::fills(const Value& input) {
    return (input.name == "tokens" || input.name == "targets" || numbers_places(input.name)) &&
           input.type.dtype == DType::i32 && input.dims == std::vector<std::string>{"batch", "seq"};
}

const std::vector<int32_t>& DocumentRow::array(const Value& input) const {
    if (input.name == "tokens") return tokens;
    if (input.name == "targets") return targets;
    return input.name == "documents" ? documents_ : places_;
}

void require_scorable(const Program& program, bool mean) {
    int found = 0;
    for (const ValueId id : program.inputs()) {
        const Value& input = program.value(id);
        if (filler_of(input) != Filler::data) continue;
        if (!DocumentRow::fills(input))
            throw Error(input.origin, fmt::format("to score a text, a program needs the inputs tokens and targets "
                                                  "i32[batch,seq]; {} has the input {}",
                                                  program.name, describe(program, id)));
        found += input.name == "tokens" || input.name == "targets" ? 1 : 0;
    }
    if (found != 2)
        throw Error(fmt::format("to score a text, a program needs the inputs tokens and targets; {} has {} of them",
                                program.name, found));
    if (mean)
        throw Error(
            fmt::format("the loss of {} has no token count: return the count as a second value, as "
                        "cross_entropy does",
                        program.name));
}

/// A program with host memory for its inputs and results, and the position of this rank's part in the inputs.
struct RowScores::Call {
    struct Input {
        const Value& value;
        int64_t at;                  ///< byte offset of the input in `block`
        Shape local;                 ///< local shape of one micro-batch
        std::vector<Shape> offsets;  ///< by micro-batch: global offset of this rank's part
    };

    Call(Session& session, const CompiledProgram& of)
        : compiled(of), executor(session.executor(of.plan)), results(session.device(), executor) {
        const Plan& plan = of.plan;
        const HostPlaces& places = executor.inputs();
        const TokenOrder order = token_order(plan.program, plan.mesh);
        block.emplace(session.device(), places.bytes);
        std::memset(block->data(), 0, static_cast<size_t>(places.bytes));
        for (const ValueId id : plan.program.inputs()) {
            const Value& value = plan.program.value(id);
            if (!DocumentRow::fills(value)) continue;
            length = value.type.shape[1];
            runs = token_runs(order, length, {});
            const auto at = places.offset(id);  // a pipeline stage may have only the tokens or only the targets
            if (!at) continue;
            Input& input =
                inputs.emplace_back(Input{value, *at, value.layout.local_shape(value.type.shape, plan.mesh), {}});
            for (int64_t micro = 0; micro < plan.mesh.microbatches(); ++micro)
                input.offsets.push_back(value.layout.offset(value.type.shape, plan.mesh, session.job().rank, micro));
        }
        set_step(plan.program, places, session.settings().seed, 1, block->data());
    }

    void fill(int64_t first, const FillRow& row) {
        DocumentRow filled(length);
        for (const Input& input : inputs) {
            const std::vector<int32_t>& array = filled.array(input.value);
            std::byte* to = block->data() + input.at;
            constexpr auto each = static_cast<int64_t>(sizeof(int32_t));
            const int64_t bytes = input.local[1] * each;
            for (const Shape& offset : input.offsets)
                for (int64_t i = 0; i < input.local[0]; ++i, to += bytes) {
                    row(first + offset[0] + i, filled.tokens, filled.targets);
                    each_run(runs, offset[1], input.local[1], [&](int64_t place, int64_t count, int64_t at) {
                        std::memcpy(to + at * each, array.data() + place, static_cast<size_t>(count * each));
                    });
                }
        }
    }

    const CompiledProgram& compiled;
    Executor& executor;
    HostResults results;
    std::optional<HostMemory> block;
    std::vector<Input> inputs;
    int64_t length = 0;
    std::vector<TokenRun> runs;  ///< the tokens of a row in the program's order
};

RowScores::RowScores(Session& session) : session_(session) {}
RowScores::~RowScores() = default;

RowScores::Call& RowScores::call_of(const CompiledProgram& program) {
    for (const auto& call : calls_)
        if (&call->compiled == &program) return *call;
    return *calls_.emplace_back(std::make_unique<Call>(session_, program));
}

RowSum RowScores::score(const CompiledProgram& program, int64_t first, const FillRow& fill, int64_t predicted) {
    Call& call = call_of(program);
    call.fill(first, fill);
    call.executor.run(call.block->data(), call.results.data());
    const RowSum sum{call.results.scalar("loss_sum"), call.results.scalar("count")};
    if (std::llround(sum.count) != predicted)
        throw Error(
            fmt::format("the loss of {} counts {:.0f} predictions of rows with {} targets: it is not a sum over "
                        "the targets that are not -1, as that of cross_entropy is",
                        program.plan.program.name, sum.count, predicted));
    return sum;
}

}  // namespace orrery
