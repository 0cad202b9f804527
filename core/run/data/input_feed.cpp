#include "run/data/input_feed.h"

#include <cstring>

#include "compile/islands.h"
#include "compile/program_set.h"

namespace orrery {

void read_batch(const Dataset& data, Split split, int64_t first, const Value& input, const IdRange& allowed,
                const TokenOrder& order, std::byte* to) {
    const RowOrders orders(data, order);
    const RowReader reader(input, data, orders, allowed);
    const TensorType row{input.type.dtype, without_batch(input.type.shape)};
    std::vector<int64_t> draws;
    data.rows(split, first, input.type.shape[0], draws);
    for (const int64_t draw : draws) {
        reader.read(split, draw, Shape(row.shape.size(), 0), row.shape, to);
        to += row.bytes();
    }
}

InputFeed::InputFeed(const Plan& plan, int64_t rank, const Dataset& data, const std::map<std::string, IdRange>& ids)
    : program_(plan.program),
      data_(data),
      places_(host_inputs(plan.program, plan.class_of(rank))),
      orders_(std::make_shared<RowOrders>(data, token_order(plan.program, plan.mesh))) {
    check_inputs(program_, data.source());
    const std::vector<std::string> islands =
        program_.updates.empty() ? std::vector<std::string>() : program_.axes_with(islands_option);
    if (!islands.empty() && plan.mesh.find(islands.front()))
        island_ = plan.mesh.member(rank, *plan.mesh.find(islands.front()));
    for (const ValueId id : program_.inputs()) {
        const Value& value = program_.value(id);
        if (!is_data_input(value)) continue;
        const Shape& whole = value.type.shape;
        batch_ = whole[0];
        const auto at = places_.offset(id);  // no offset if only another pipeline stage has this input
        if (!at) continue;
        const auto known = ids.find(value.name);
        const Shape local = value.layout.local_shape(whole, plan.mesh);
        Input& input =
            inputs_.emplace_back(Input{RowReader(value, data, *orders_, known == ids.end() ? IdRange{} : known->second),
                                       *at,
                                       local[0],
                                       {value.type.dtype, without_batch(local)},
                                       {},
                                       {}});
        for (int64_t micro = 0; micro < plan.mesh.microbatches(); ++micro) {
            const Shape offset = value.layout.offset(whole, plan.mesh, rank, micro);
            input.samples.push_back(offset[0]);
            input.offsets.push_back(without_batch(offset));
        }
    }
}

void InputFeed::fill(Split split, int64_t first, std::byte* to) const {
    data_.rows(split, first, batch_, draws_);
    orders_->forget();
    for (const Input& input : inputs_) {
        std::byte* at = to + input.at;
        for (size_t micro = 0; micro < input.samples.size(); ++micro)
            for (int64_t i = input.samples[micro]; i < input.samples[micro] + input.rows; ++i, at += input.row.bytes())
                input.reader.read(split, draws_[static_cast<size_t>(i)], input.offsets[micro], input.row.shape, at);
    }
}

bool InputFeed::same_places(const InputFeed& other) const {
    const auto& mine = places_.places;
    const auto& others = other.places_.places;
    if (places_.bytes != other.places_.bytes || mine.size() != others.size()) return false;
    for (size_t i = 0; i < mine.size(); ++i) {
        const Value &a = program_.value(mine[i].value), &b = other.program_.value(others[i].value);
        if (mine[i].offset != others[i].offset || a.name != b.name || a.type != b.type || a.layout != b.layout)
            return false;
    }
    return true;
}

void InputFeed::set_step(uint64_t run_seed, int64_t step, std::byte* to) const {
    orrery::set_step(program_, places_, island_seed(run_seed, island_), step, to);
}

void InputFeed::set_status(Status status, std::byte* to) const { orrery::set_status(program_, places_, status, to); }

void set_status(const Program& program, const HostPlaces& places, Status status, std::byte* to) {
    for (const HostPlaces::Place& place : places.places) {
        const Value& input = program.value(place.value);
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
