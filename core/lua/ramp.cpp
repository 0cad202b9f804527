// A batch that grows: train_with records the step once more for each smaller size.
#include <fmt/format.h>

#include "layout/stages.h"
#include "lua/experiment.h"
#include "lua/fields.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

/// Sequences of one step: the size of the dim "batch".
int64_t full_batch(const Traced& traced) {
    for (const InputSpec& spec : traced.signature)
        for (size_t d = 0; d < spec.dims.size(); ++d)
            if (spec.dims[d] == "batch") return spec.type.shape[d];
    return 0;
}

/// The train step for a smaller batch of the ramp: micro-batches keep their size and get fewer.
Program smaller_step(lua_State* L, const Traced& traced, int64_t batch) {
    const int64_t full = full_batch(traced), micro = traced.microbatches == 1 ? full : traced.microbatches * batch;
    if (micro % full != 0)
        throw Error(
            where(L),
            fmt::format("the ramp's batch of {} sequences is not made of whole micro-batches: {} of {} sequences "
                        "in a full step\n  choose train.ramp_start and train.ramp_increment as multiples of {}, or "
                        "other train.microbatches",
                        batch, traced.microbatches, full / traced.microbatches, full / traced.microbatches));
    const auto tape = named_tape(traced.name, true);
    ValueId loss_sum = none, count = none;
    record_forward(L, traced, tape, batch, loss_sum, count);
    const auto step = record_step(L, traced, std::move(*tape->program), micro / full);
    return std::move(*step->program);
}

std::vector<int64_t> ramp_sizes(lua_State* L, const Traced& traced) {
    if (traced.ramp.start == 0) return {};
    try {
        return BatchSizes(full_batch(traced), traced.ramp).sizes();
    } catch (const Error& error) {
        throw Error(where(L), error.what());
    }
}

}  // namespace

BatchRamp read_ramp(lua_State* L, Fields& fields) {
    Config& config = state_of(L).host().config().table("train");
    BatchRamp ramp;
    fields.push_field("ramp");
    if (!lua_isnil(L, -1)) {
        Fields given(L, -1, "ramp");
        for (const auto& [name, part] :
             {std::pair{"start", &ramp.start}, {"increment", &ramp.increment}, {"samples", &ramp.samples}}) {
            const auto value = given.integer(name, 1);
            if (!value) given.wrong(name, "a number of sequences");
            *part = *value;
        }
        given.finish();
        lua_pop(L, 1);
        return ramp;
    }
    lua_pop(L, 1);
    ramp.start = config.integer("ramp_start", 0);
    ramp.increment = config.integer("ramp_increment", 0);
    ramp.samples = config.integer("ramp_samples", 0);
    for (const char* key : {"ramp_start", "ramp_increment", "ramp_samples"}) {
        if (ramp == BatchRamp{} || config.integer(key, 0) > 0) continue;
        throw Error(config.origin(), fmt::format("train.{} is missing: a ramp of the batch needs train.ramp_start, "
                                                 "train.ramp_increment and train.ramp_samples",
                                                 key));
    }
    return ramp;
}

void record_ramp(lua_State* L, Traced& traced) {
    for (const int64_t batch : ramp_sizes(L, traced))
        if (batch < full_batch(traced)) traced.smaller.push_back(smaller_step(L, traced, batch));
}

void check_ramp(const Traced& traced, const Program& train, const Mesh& mesh) {
    if (stage_count(train, mesh) == 1) return;
    const int64_t full = full_batch(traced);
    for (const Program& smaller : traced.smaller) {
        if (smaller.microbatches() == traced.microbatches) continue;
        const Pipeline& pipeline = train.pipeline();
        throw Error(pipeline.origin,
                    fmt::format("schedule {} is made for the {} micro-batches of a step of {} sequences, but the "
                                "batch grows, and its step of {} sequences has {}\n"
                                "  leave the ramp out (train.ramp_start, train.ramp_increment and "
                                "train.ramp_samples, or ramp of train_with), or take one micro-batch where the "
                                "schedule can (train.microbatches = 1, or microbatches of train_with)",
                                pipeline.schedule, traced.microbatches, full,
                                full * smaller.microbatches() / traced.microbatches, smaller.microbatches()));
    }
}

}  // namespace orrery::lua
