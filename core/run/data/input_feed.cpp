#include "run/data/input_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/text.h"
#include "compile/program_set.h"

namespace orrery {

namespace {

Shape below(const Shape& shape) { return {shape.begin() + 1, shape.end()}; }

/// Describes an array of a data source: "tokens" i32[batch,seq 64].
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

void check_ids(std::span<const int32_t> ids, const IdRange& allowed, const Value& input, const Dataset& data,
               Split split, int64_t index) {
    for (const int32_t id : ids)
        if (id < allowed.least || id >= allowed.count)
            throw Error(input.origin,
                        fmt::format("{} has the id {} in {}, where {}\n  give the model more ids, or fix the data "
                                    "that the plugin {} reads",
                                    data.where(split, index), id, quote(input.name), text_of(allowed),
                                    data.plugin_of_last_read(split)),
                        Fault::failed);
}

}  // namespace

std::string text_of(const IdRange& allowed) {
    return fmt::format("the model has ids 0 to {}{}", allowed.count - 1, allowed.least < 0 ? ", and ignores -1" : "");
}

bool is_data_input(const Value& value) { return value.role == Role::input && filler_of(value) == Filler::data; }

size_t array_of(const Value& input, const DataSource& source) {
    const auto& arrays = source.arrays();
    const auto found =
        std::find_if(arrays.begin(), arrays.end(), [&](const auto& array) { return array.name == input.name; });
    if (found == arrays.end())
        throw Error(
            input.origin,
            fmt::format("no data for the input {} {}: {}\n  name one of these arrays in the signature of o.trace, "
                        "compute the input in the traced function, or remove it",
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
            fmt::format("program {} has no input from the data source: {}\n  give o.trace the signature of the data "
                        "source",
                        quote(program.name), offers(source)));
}

namespace {

/// Reads one block of each draw to `to`. `sample`: a tensor of the block's type; this function sets its data pointer.
void read_samples(const Dataset& data, Split split, std::span<const int64_t> draws, const Value& input, size_t array,
                  const IdRange& allowed, const Shape& offset, Tensor& sample, std::byte* to) {
    const int64_t bytes = sample.bytes();
    for (const int64_t draw : draws) {
        sample.data = to;
        data.read(split, draw, array, offset, sample);
        if (allowed.count > 0 && sample.dtype == DType::i32)
            check_ids({reinterpret_cast<const int32_t*>(to), static_cast<size_t>(sample.count())}, allowed, input, data,
                      split, draw);
        to += bytes;
    }
}

}  // namespace

void read_batch(const Dataset& data, Split split, int64_t first, const Value& input, size_t array,
                const IdRange& allowed, std::byte* to) {
    const Shape shape = below(input.type.shape);
    Tensor sample{nullptr, input.type.dtype, shape};
    std::vector<int64_t> draws;
    data.rows(split, first, input.type.shape[0], draws);
    read_samples(data, split, draws, input, array, allowed, Shape(shape.size(), 0), sample, to);
}

InputFeed::InputFeed(const Plan& plan, int64_t rank, const Dataset& data, const std::map<std::string, IdRange>& ids)
    : program_(plan.program), data_(data), places_(host_inputs(plan.program, plan.class_of(rank))) {
    check_inputs(program_, data.source());
    for (const ValueId id : program_.inputs()) {
        const Value& value = program_.value(id);
        if (!is_data_input(value)) continue;
        const Shape& whole = value.type.shape;
        batch_ = whole[0];
        const auto at = places_.offset(id);  // no offset if only another pipeline stage has this input
        if (!at) continue;
        const auto known = ids.find(value.name);
        const TensorType local{value.type.dtype, value.layout.local_shape(whole, plan.mesh)};
        Input& input = inputs_.emplace_back(Input{value,
                                                  array_of(value, data.source()),
                                                  known == ids.end() ? IdRange{} : known->second,
                                                  *at,
                                                  local,
                                                  {},
                                                  {},
                                                  Tensor{nullptr, local.dtype, below(local.shape)}});
        for (int64_t micro = 0; micro < plan.mesh.microbatches(); ++micro) {
            const Shape offset = value.layout.offset(whole, plan.mesh, rank, micro);
            input.samples.push_back(offset[0]);
            input.offsets.push_back(below(offset));
        }
    }
}

void InputFeed::fill(Split split, int64_t first, std::byte* to) const {
    data_.rows(split, first, batch_, draws_);
    for (const Input& input : inputs_) {
        std::byte* at = to + input.at;
        for (size_t micro = 0; micro < input.samples.size(); ++micro, at += input.local.bytes()) {
            const auto mine = std::span<const int64_t>(draws_).subspan(static_cast<size_t>(input.samples[micro]),
                                                                       static_cast<size_t>(input.local.shape[0]));
            read_samples(data_, split, mine, input.value, input.array, input.allowed, input.offsets[micro],
                         input.sample, at);
        }
    }
}

void InputFeed::set_step(uint64_t run_seed, int64_t step, std::byte* to) const {
    orrery::set_step(program_, places_, run_seed, step, to);
}

void InputFeed::set_status(Status status, std::byte* to) const {
    for (const HostPlaces::Place& place : places_.places) {
        const Value& input = program_.value(place.value);
        if (filler_of(input) != Filler::status) continue;
        std::memset(to + place.offset, 0, static_cast<size_t>(input.type.bytes()));
        const float word = word_of(status);
        std::memcpy(to + place.offset, &word, sizeof word);
    }
}

uint32_t step_seed(uint64_t run_seed, int64_t step) {
    uint64_t x = run_seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(step);  // mixed by murmur3's finalizer
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return static_cast<uint32_t>(x ^ (x >> 33));
}

void set_step(const Program& program, const HostPlaces& places, uint64_t run_seed, int64_t step, std::byte* to) {
    const auto number = static_cast<float>(step);
    const uint32_t seed = step_seed(run_seed, step);
    for (const HostPlaces::Place& place : places.places) {
        const Filler filler = filler_of(program.value(place.value));
        if (filler == Filler::step) std::memcpy(to + place.offset, &number, sizeof number);
        if (filler == Filler::seed) std::memcpy(to + place.offset, &seed, sizeof seed);
    }
}

}  // namespace orrery
