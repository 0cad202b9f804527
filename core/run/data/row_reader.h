#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compile/ids.h"
#include "layout/token_order.h"
#include "run/data/data.h"

namespace orrery {

/// The shape without its first dim, `batch`.
Shape without_batch(const Shape& shape);
/// Whether a data source fills the input; otherwise the host does.
bool is_data_input(const Value& value);
/// Describes the token ids that an input may have: "the model has ids 0 to 63, and ignores -1".
std::string text_of(const IdRange& allowed);
/// Throws Error at an input of a program that neither the data source nor the host fills.
void check_inputs(const Program& program, const DataSource& source);
/// Index of the source's array that fills a data input; nullopt if the source has none and the host fills it: i32
/// [batch,seq] of the name "positions" or "documents" (one document a row) or "places". Throws Error at the input,
/// listing the source's arrays, if nothing fills it or if its type or dims differ.
std::optional<size_t> array_of(const Value& input, const DataSource& source);

/// The order of tokens in each row that a program reads. Rows' runs are cached until forget(). One thread at a time.
class RowOrders {
public:
    /// `data` must outlive this object.
    RowOrders(const Dataset& data, TokenOrder order) : data_(data), order_(std::move(order)) {}

    bool natural() const { return order_.natural(); }
    /// The tokens of a draw's row in order; reads its documents if the order depends on them. Valid until forget().
    const std::vector<TokenRun>& runs(Split split, int64_t draw, int64_t length) const;
    void forget() const { known_.clear(); }

private:
    const Dataset& data_;
    const TokenOrder order_;
    /// By number of tokens, and draw or, if the same for all draws, -1.
    mutable std::map<std::pair<int64_t, int64_t>, std::vector<TokenRun>> known_;
};

/// Reads blocks of rows for one data input, with tokens in the order of the program. One thread at a time.
class RowReader {
public:
    /// `input`, `data` and `orders` must outlive this object. Throws Error as array_of does.
    RowReader(const Value& input, const Dataset& data, const RowOrders& orders, const IdRange& allowed);

    /// Writes a block of a draw's row to `to`, dense and row-major. `offset`, `shape`: of the block in the row, without
    /// the dim `batch`. Throws Fault::failed if it has an id that is not allowed.
    void read(Split split, int64_t draw, const Shape& offset, const Shape& shape, std::byte* to) const;
    /// The blocks of the row as the source has it that make up a block of the ordered row: calls visit(offset, shape,
    /// index of the block's first element in the ordered block).
    using Visit = std::function<void(const Shape& offset, const Shape& shape, int64_t first)>;
    void blocks(Split split, int64_t draw, const Shape& offset, const Shape& shape, const Visit& visit) const;

    const std::optional<size_t>& array() const { return array_; }

private:
    void check_ids(Split split, int64_t draw, const std::byte* block, int64_t count) const;
    void fill(const Shape& offset, const Shape& shape, std::byte* to) const;

    const Value& input_;
    const Dataset& data_;
    const RowOrders& orders_;
    IdRange allowed_;
    std::optional<size_t> array_;
    std::optional<size_t> seq_;  ///< the row's dim `seq`
    mutable Tensor block_;       ///< scratch tensor of read()
};

}  // namespace orrery
