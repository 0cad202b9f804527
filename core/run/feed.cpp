#include "run/feed.h"

#include <fmt/format.h>

#include <cstring>

namespace orrery {

namespace {

ValueId data_input(const Program& program, std::string_view name) {
    const auto id = program.find(name);
    if (!id)
        throw Error(fmt::format("program \"{}\" has no input \"{}\"\n  give o.trace the signature of the data source",
                                program.name, name));
    const Value& value = program.value(*id);
    if (value.type.dtype != DType::i32 || value.dims != std::vector<std::string>{"batch", "seq"})
        throw Error(value.origin,
                    fmt::format("input \"{}\" is {}; the data source gives i32[batch,seq]", name, value.type.text()));
    return *id;
}

}  // namespace

void check_inputs(const Program& program) {
    data_input(program, "tokens");
    data_input(program, "targets");
    for (const Value& value : program.values) {
        const bool filled =
            value.name == "tokens" || value.name == "targets" || value.name == "step" || value.name == "seed";
        if (value.role == Role::input && !filled)
            throw Error(value.origin, fmt::format("nothing fills the input \"{}\" {}: data sources have \"tokens\" and "
                                                  "\"targets\"\n  make what it held in the traced function, of these "
                                                  "and of o.constant, or leave it out",
                                                  value.name, value.type.text()));
    }
}

Feed::Feed(const Program& program, const Mesh& mesh, int64_t rank, const Dataset& data) : data_(data) {
    check_inputs(program);
    tokens_ = data_input(program, "tokens");
    targets_ = data_input(program, "targets");
    const Value& value = program.value(tokens_);
    if (program.value(targets_).layout != value.layout)
        throw Error(value.origin, "inputs \"tokens\" and \"targets\" have different layouts; mark both the same");
    batch_ = value.type.shape[0];
    const Shape local = value.layout.local_shape(value.type.shape, mesh);
    for (int64_t micro = 0; micro < mesh.microbatches(); ++micro) {
        const Shape offset = value.layout.offset(value.type.shape, mesh, rank, micro);
        parts_.push_back({offset[0], offset[1], local[0], local[1]});
    }
}

void Feed::fill(Split split, int64_t first, Prefetch::Batch& batch) const {
    batch.resize(2);
    int64_t count = 0;
    for (const Part& part : parts_) count += part.samples * part.tokens;
    for (auto& buffer : batch) buffer.resize(static_cast<size_t>(count) * sizeof(int32_t));
    auto* tokens = reinterpret_cast<int32_t*>(batch[0].data());
    auto* targets = reinterpret_cast<int32_t*>(batch[1].data());
    for (const Part& part : parts_)
        for (int64_t i = 0; i < part.samples; ++i, tokens += part.tokens, targets += part.tokens)
            data_.read(split, first + part.sample + i, part.token, part.tokens, tokens, targets);
}

void Feed::upload(Session& session, Executor& executor, const Prefetch::Batch& batch) const {
    // Of a pipeline, one stage reads the tokens and another the targets.
    if (executor.holds(tokens_)) session.upload(executor.tensor(tokens_), batch[0].data());
    if (executor.holds(targets_)) session.upload(executor.tensor(targets_), batch[1].data());
}

uint32_t step_seed(uint64_t run_seed, int64_t step) {
    uint64_t x = run_seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(step);  // murmur3's finalizer
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return static_cast<uint32_t>(x ^ (x >> 33));
}

void set_step(Session& session, Executor& executor, const Program& program, uint64_t run_seed, int64_t step) {
    if (const auto id = program.find("step"); id && executor.holds(*id)) {
        const auto number = static_cast<float>(step);
        session.upload(executor.tensor(*id), &number);
    }
    if (const auto id = program.find("seed"); id && executor.holds(*id)) {
        const uint32_t seed = step_seed(run_seed, step);
        session.upload(executor.tensor(*id), &seed);
    }
}

}  // namespace orrery
