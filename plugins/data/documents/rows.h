// Rows of packed documents: which tokens of which documents a row has.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "orrery/data.h"

namespace documents {

/// Tokens of one document in a row.
struct Part {
    int64_t document = 0;  ///< number in the file
    int64_t from = 0;      ///< index of its first token in the document
    int64_t count = 0;     ///< tokens
    bool ends = false;     ///< whether the last one is the document's last token
};

/// Documents laid end to end and cut in rows of `length` tokens, without padding. In training each epoch is another
/// permutation of the documents, and the next epoch begins where the one before ends, within a row:
///
///     epoch 0: documents 2 0 1      epoch 1: 0 2 1
///     2 2 2 0 | 0 0 0 1 | 1 0 0 0 | 0 2 2 2 | 1 1
///
/// So n epochs have every token n times. Documents that are held out (`permuted_order` of documents) are laid end to
/// end in the file's order, all documents where none is held out; what is left after the last whole row is not
/// evaluated.
///
/// A row is found by a table of the lengths of every 64 documents of its epoch (8 bytes for each), made when the first
/// of its rows is asked for, from the order of all documents (0.3 us each). Callable from several threads.
class Rows {
public:
    using Begins = std::shared_ptr<const std::vector<int64_t>>;

    /// `begins`: the first token of each document, and the number of tokens. Throws Error at `asked` where there are
    /// too few documents to hold out the share, or too few tokens for a row.
    Rows(const orrery::DataSource& source, Begins begins, int64_t length, double held_out, uint64_t seed,
         const orrery::Origin& asked);

    /// Number of whole rows in an epoch, or of those that are held out.
    int64_t count(orrery::Split split) const {
        return split == orrery::Split::validation && whole_ ? 0 : tokens_of(split) / length_;
    }
    /// The pieces of a row, counted over all epochs.
    std::vector<Part> row(orrery::Split split, int64_t row) const;
    /// The epoch in which a training row begins.
    int64_t epoch(int64_t row) const { return row * length_ / train_; }
    /// Number of times that a row's end cuts a document in the first epoch.
    int64_t cuts() const;

private:
    struct Table {
        int64_t epoch = 0;          ///< -1: documents that are held out
        std::vector<int64_t> upto;  ///< tokens before every 64th document
        int64_t cuts = 0;
    };

    int64_t tokens_of(orrery::Split split) const { return split == orrery::Split::train ? train_ : held_; }
    int64_t documents(orrery::Split split) const;
    int64_t document(orrery::Split split, int64_t index) const;
    int64_t size(int64_t document) const {
        const auto at = begins_->begin() + document;
        return at[1] - at[0];
    }
    std::shared_ptr<const Table> table(orrery::Split split, int64_t epoch) const;
    Table made(orrery::Split split, int64_t epoch) const;

    Begins begins_;
    const int64_t length_;
    std::unique_ptr<orrery::DataOrder> order_;  ///< of documents
    const bool whole_;                          ///< no document is held out
    int64_t train_ = 0, held_ = 0;              ///< tokens to train on and to evaluate
    mutable std::mutex mutex_;
    mutable std::vector<std::shared_ptr<const Table>> tables_;  ///< those used last, the newest at the end
};

}  // namespace documents
