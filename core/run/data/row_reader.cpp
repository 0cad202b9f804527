#include "run/data/row_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "base/text.h"
#include "compile/program_set.h"

namespace orrery {

namespace {

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

const DataArray* find(const DataSource& source, std::string_view name) {
    const auto& arrays = source.arrays();
    const auto found = std::ranges::find(arrays, name, &DataArray::name);
    return found == arrays.end() ? nullptr : &*found;
}

/// Whether the host numbers the tokens of rows that the source does not number.
bool made_by_host(const Value& input, const DataSource& source) {
    if (!numbers_places(input.name) || input.type.dtype != DType::i32) return false;
    if (input.dims != std::vector<std::string>{"batch", "seq"}) return false;
    if (input.name != "places" && (find(source, "documents") || find(source, "positions"))) return false;
    return std::ranges::any_of(source.arrays(), [&](const DataArray& array) {
        return std::ranges::any_of(
            array.dims, [&](const auto& dim) { return dim.first == "seq" && dim.second == input.type.shape[1]; });
    });
}

}  // namespace

Shape without_batch(const Shape& shape) { return {shape.begin() + 1, shape.end()}; }

bool is_data_input(const Value& value) { return value.role == Role::input && filler_of(value) == Filler::data; }

std::optional<size_t> array_of(const Value& input, const DataSource& source) {
    const DataArray* const found = find(source, input.name);
    if (!found && made_by_host(input, source)) return std::nullopt;
    if (!found)
        throw Error(
            input.origin,
            fmt::format("no data for the input {} {}: {}\n  name one of these arrays in the signature of o.trace, "
                        "compute the input in the traced function, or remove it",
                        quote(input.name), input.type.text(), offers(source)));
    const Shape& shape = input.type.shape;
    const bool batched = !shape.empty() && !input.dims.empty() && input.dims[0] == "batch";
    if (!batched || input.type.dtype != found->dtype || without_batch(shape) != found->shape())
        throw Error(input.origin, fmt::format("input {} is {}{}; {}\n  give o.trace the signature of the data source",
                                              quote(input.name), input.type.text(),
                                              batched ? "" : " and has no first dim \"batch\"", offers(source)));
    return static_cast<size_t>(found - source.arrays().data());
}

const std::vector<TokenRun>& RowOrders::runs(Split split, int64_t draw, int64_t length) const {
    const DataArray* const documents =
        order_.kind == TokenOrder::Kind::balanced ? find(data_.source(split), "documents") : nullptr;
    const auto [found, added] = known_.try_emplace({length, documents ? draw : -1});
    if (!added) return found->second;
    std::vector<int32_t> numbers;
    if (documents && documents->dtype == DType::i32 && documents->shape() == Shape{length}) {
        numbers.resize(static_cast<size_t>(length));
        const auto array = static_cast<size_t>(documents - data_.source(split).arrays().data());
        data_.read(split, draw, array, {0}, {numbers.data(), DType::i32, {length}});
    }
    return found->second = token_runs(order_, length, numbers);
}

RowReader::RowReader(const Value& input, const Dataset& data, const RowOrders& orders, const IdRange& allowed)
    : input_(input),
      data_(data),
      orders_(orders),
      allowed_(allowed),
      array_(array_of(input, data.source())),
      block_{nullptr, input.type.dtype, input.type.shape} {
    const auto seq = std::ranges::find(input.dims, "seq");
    if (seq != input.dims.end()) seq_ = static_cast<size_t>(seq - input.dims.begin()) - 1;
}

void RowReader::blocks(Split split, int64_t draw, const Shape& offset, const Shape& shape, const Visit& visit) const {
    if (orders_.natural() || !seq_) return visit(offset, shape, 0);
    const size_t seq = *seq_;
    const std::vector<TokenRun>& runs = orders_.runs(split, draw, input_.type.shape[seq + 1]);
    const int64_t inner = std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(seq) + 1, shape.end(), int64_t{1},
                                          std::multiplies<>());
    const int64_t rows = std::accumulate(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(seq), int64_t{1},
                                         std::multiplies<>());
    for (int64_t row = 0; row < rows; ++row) {  // indices of the dims before seq
        Shape from = offset, size = shape;
        for (int64_t d = static_cast<int64_t>(seq) - 1, rest = row; d >= 0; --d) {
            const auto at = static_cast<size_t>(d);
            from[at] += rest % shape[at];
            rest /= shape[at];
            size[at] = 1;
        }
        each_run(runs, offset[seq], shape[seq], [&](int64_t place, int64_t count, int64_t at) {
            from[seq] = place;
            size[seq] = count;
            visit(from, size, (row * shape[seq] + at) * inner);
        });
    }
}

void RowReader::read(Split split, int64_t draw, const Shape& offset, const Shape& shape, std::byte* to) const {
    const auto read = [&](const Shape& from, const Shape& size, std::byte* at) {
        if (!array_) return fill(from, size, at);
        block_.data = at;
        block_.shape = size;
        data_.read(split, draw, *array_, from, block_);
    };
    if (orders_.natural())
        read(offset, shape, to);  // without allocations
    else
        blocks(split, draw, offset, shape, [&](const Shape& from, const Shape& size, int64_t first) {
            read(from, size, to + first * static_cast<int64_t>(size_of(block_.dtype)));
        });
    if (allowed_.count > 0 && block_.dtype == DType::i32) check_ids(split, draw, to, count_of(shape));
}

/// Writes numbers of tokens in a row that is one document.
void RowReader::fill(const Shape& offset, const Shape& shape, std::byte* to) const {
    auto* const numbers = reinterpret_cast<int32_t*>(to);
    if (input_.name == "documents")
        std::fill(numbers, numbers + shape[0], 0);
    else
        std::iota(numbers, numbers + shape[0], static_cast<int32_t>(offset[0]));
}

void RowReader::check_ids(Split split, int64_t draw, const std::byte* block, int64_t count) const {
    for (const int32_t id : std::span(reinterpret_cast<const int32_t*>(block), static_cast<size_t>(count)))
        if (id < allowed_.least || id >= allowed_.count)
            throw Error(input_.origin,
                        fmt::format("{} has the id {} in {}, where {}\n  give the model more ids, or fix the data "
                                    "that the plugin {} reads",
                                    data_.where(split, draw), id, quote(input_.name), orrery::text_of(allowed_),
                                    data_.plugin_of_last_read(split)),
                        Fault::failed);
}

std::string text_of(const IdRange& allowed) {
    return fmt::format("the model has ids 0 to {}{}", allowed.count - 1, allowed.least < 0 ? ", and ignores -1" : "");
}

void check_inputs(const Program& program, const DataSource& source) {
    bool any = false;
    for (const ValueId id : program.inputs())
        if (is_data_input(program.value(id))) any = array_of(program.value(id), source).has_value() || any;
    if (!any)
        throw Error(
            fmt::format("program {} has no input from the data source: {}\n  give o.trace the signature of the data "
                        "source",
                        quote(program.name), offers(source)));
}

}  // namespace orrery
