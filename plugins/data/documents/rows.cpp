#include "rows.h"

#include <algorithm>

#include "token_file.h"

namespace documents {

using orrery::Error;
using orrery::Split;
using sequences::text;

namespace {

constexpr int64_t stride = 64;     ///< documents between two numbers of a table
constexpr size_t most_tables = 3;  ///< two epochs, as one ends while the next begins, and what is held out

}  // namespace

Rows::Rows(const orrery::DataSource& source, Begins begins, int64_t length, double held_out, uint64_t seed,
           const orrery::Origin& asked)
    : begins_(std::move(begins)),
      length_(length),
      order_(orrery::permuted_order(source, static_cast<int64_t>(begins_->size()) - 1, "documents", held_out, seed,
                                    asked)),
      whole_(held_out == 0) {
    for (int64_t i = 0; i < documents(Split::validation); ++i) held_ += size(document(Split::validation, i));
    train_ = begins_->back() - (whole_ ? 0 : held_);
    for (const Split split : {Split::train, Split::validation}) {
        if (tokens_of(split) >= length || (split == Split::validation && whole_)) continue;
        throw Error(asked,
                    source.place() + ": the " + text(documents(split)) + " documents " +
                        (split == Split::train ? "to train on" : "that are held out") + " have " +
                        text(tokens_of(split)) + " tokens, and one row has " + text(length) +
                        "\n  use more data, shorter rows (data.tokens_per_sequence), or another data.validation");
    }
}

int64_t Rows::documents(Split split) const {
    return split == Split::validation && whole_ ? static_cast<int64_t>(begins_->size()) - 1 : order_->samples(split);
}

int64_t Rows::document(Split split, int64_t index) const {
    return split == Split::validation && whole_ ? index : order_->position(split, index);
}

Rows::Table Rows::made(Split split, int64_t epoch) const {
    Table made{split == Split::train ? epoch : -1, {}, 0};
    const int64_t count = documents(split);
    made.upto.reserve(static_cast<size_t>(count / stride + 1));
    int64_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (i % stride == 0) made.upto.push_back(at);
        const int64_t tokens = size(document(split, epoch * count + i));
        if (tokens > 0) made.cuts += (at + tokens - 1) / length_ - at / length_;
        at += tokens;
    }
    return made;
}

std::shared_ptr<const Rows::Table> Rows::table(Split split, int64_t epoch) const {
    const int64_t key = split == Split::train ? epoch : -1;
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(tables_.begin(), tables_.end(), [&](const auto& one) { return one->epoch == key; });
    std::shared_ptr<const Table> table =
        found != tables_.end() ? *found : std::make_shared<const Table>(made(split, epoch));
    if (found != tables_.end())
        tables_.erase(found);
    else if (tables_.size() == most_tables)
        tables_.erase(tables_.begin());
    tables_.push_back(table);
    return table;
}

std::vector<Part> Rows::row(Split split, int64_t row) const {
    const int64_t all = tokens_of(split), count = documents(split);
    int64_t epoch = row * length_ / all, skip = row * length_ % all;
    const std::shared_ptr<const Table> table = this->table(split, epoch);
    const auto after = std::upper_bound(table->upto.begin(), table->upto.end(), skip);
    int64_t i = (after - table->upto.begin() - 1) * stride;
    skip -= *(after - 1);
    std::vector<Part> pieces;
    for (int64_t left = length_; left > 0; ++i) {
        if (i == count) i = 0, ++epoch;
        const int64_t document = this->document(split, epoch * count + i), tokens = size(document);
        if (skip >= tokens) {
            skip -= tokens;
            continue;
        }
        const int64_t taken = std::min(left, tokens - skip);
        pieces.push_back({document, skip, taken, skip + taken == tokens});
        left -= taken;
        skip = 0;
    }
    return pieces;
}

int64_t Rows::cuts() const { return table(Split::train, 0)->cuts; }

}  // namespace documents
