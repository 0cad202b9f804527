#include "run/data/input_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/text.h"
#include "compile/program_set.h"

namespace orrery {

namespace {

Shape below(const Shape& shape) { return {shape.begin() + 1, shape.end()}; }

/// "tokens" i32[batch,seq 64]
std::string text_of(const DataArray& array) {
    std::string dims = "batch";
    for (const auto& [name, size] : array.dims) dims += fmt::format(",{} {}", name, size);
    return fmt::format("{} {}[{}]", quote(array.name), name_of(array.dtype), dims);
}

std::string offers(const DataSource& source) {
    std::vector<std::string> all;
    for (const DataArray& array : source.arrays()) all.push_back(text_of(array));
    return fmt::format("{} offers {}", source.place(), all.empty() ? "nothing" : join(all, ", "));
}

void check_ids(std::span<const int32_t> ids, const IdRange& allowed, const Value& input, const DataSource& source,
               int64_t sample) {
    for (const int32_t id : ids)
        if (id < allowed.least || id >= allowed.count)
            throw Error(input.origin,
                        fmt::format("{}: sample {} has the id {} in {}, where the model has ids {} to {}{}\n  give the "
                                    "model more of them, or mend the data",
                                    source.place(), sample, id, quote(input.name), 0, allowed.count - 1,
                                    allowed.least < 0 ? ", and ignores -1" : ""),
                        Fault::failed);
}

}  // namespace

bool is_data_input(const Value& value) {
    return value.role == Role::input && filler_of(value) == Filler::data;
}

size_t array_of(const Value& input, const DataSource& source) {
    const auto& arrays = source.arrays();
    const auto found =
        std::find_if(arrays.begin(), arrays.end(), [&](const auto& array) { return array.name == input.name; });
    if (found == arrays.end())
        throw Error(input.origin,
                    fmt::format("nothing fills the input {} {}: {}\n  name one of these in the signature of o.trace, "
                                "make what it held in the traced function, of these and of o.constant, or leave it out",
                                quote(input.name), input.type.text(), offers(source)));
    const Shape& shape = input.type.shape;
    const bool batched = !shape.empty() && !input.dims.empty() && input.dims[0] == "batch";
    if (!batched || input.type.dtype != found->dtype || below(shape) != found->shape())
        throw Error(input.origin, fmt::format("input {} is {}{}; {}\n  give o.trace the signature of the data source",
                                              quote(input.name), input.type.text(),
                                              batched ? "" : " and has no first dim \"batch\"", offers(source)));
    return static_cast<size_t>(found - arrays.begin());
}

void check_inputs(const Program& program, const DataSource& source) {
    bool any = false;
    for (const ValueId id : program.inputs()) {
        if (!is_data_input(program.value(id))) continue;
        array_of(program.value(id), source);
        any = true;
    }
    if (!any)
        throw Error(
            fmt::format("program {} has no input that data fills: {}\n  give o.trace the signature of the data "
                        "source",
                        quote(program.name), offers(source)));
}

void read_block(const Dataset& data, Split split, int64_t first, const Value& input, size_t array,
                const IdRange& allowed, const Shape& offset, const TensorType& local, std::byte* to) {
    const Shape from = below(offset), shape = below(local.shape);
    const Tensor block{nullptr, local.dtype, shape};
    for (int64_t i = 0; i < local.shape[0]; ++i, to += block.bytes()) {
        data.read(split, first + i, array, from, {to, local.dtype, shape});
        if (allowed.count > 0 && local.dtype == DType::i32)
            check_ids({reinterpret_cast<const int32_t*>(to), static_cast<size_t>(block.count())}, allowed, input,
                      data.source(), data.position(split, first + i));
    }
}

InputFeed::InputFeed(const Program& program, const Mesh& mesh, int64_t rank, const Dataset& data,
                     const std::map<std::string, IdRange>& ids)
    : data_(data) {
    check_inputs(program, data.source());
    for (const ValueId id : program.inputs()) {
        const Value& value = program.value(id);
        if (!is_data_input(value)) continue;
        const Shape& whole = value.type.shape;
        const auto known = ids.find(value.name);
        Input input{id,
                    value,
                    array_of(value, data.source()),
                    known == ids.end() ? IdRange{} : known->second,
                    {value.type.dtype, value.layout.local_shape(whole, mesh)},
                    {}};
        for (int64_t micro = 0; micro < mesh.microbatches(); ++micro)
            input.offsets.push_back(value.layout.offset(whole, mesh, rank, micro));
        batch_ = whole[0];
        inputs_.push_back(std::move(input));
    }
}

void InputFeed::fill(Split split, int64_t first, Prefetch::Batch& batch) const {
    batch.resize(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
        const Input& input = inputs_[i];
        const auto bytes = static_cast<size_t>(input.local.bytes());
        batch[i].resize(bytes * input.offsets.size());
        std::byte* to = batch[i].data();
        for (const Shape& offset : input.offsets) {
            read_block(data_, split, first + offset[0], input.value, input.array, input.allowed, offset, input.local,
                       to);
            to += bytes;
        }
    }
}

void InputFeed::upload(Session& session, Executor& executor, const Prefetch::Batch& batch) const {
    for (size_t i = 0; i < inputs_.size(); ++i)  // of a pipeline, one stage reads the tokens and another the targets
        if (executor.holds(inputs_[i].id)) session.upload(executor.tensor(inputs_[i].id), batch[i].data());
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
