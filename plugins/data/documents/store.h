// Where the tokens of documents are read from.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ids.h"

namespace documents {

/// The documents of a file, in its order.
class Store {
public:
    virtual ~Store() = default;
    /// Index of the first token of each document among all tokens, and the number of tokens.
    const std::vector<int64_t>& begins() const { return begins_; }
    int64_t documents() const { return static_cast<int64_t>(begins_.size()) - 1; }
    int64_t tokens() const { return begins_.back(); }
    int64_t size(int64_t document) const {
        return begins_[static_cast<size_t>(document) + 1] - begins_[static_cast<size_t>(document)];
    }

    /// Reads tokens [from, from + count) of a document for sample `sample`.
    virtual void read(int64_t sample, int64_t document, int64_t from, int64_t count, int32_t* to) const = 0;
    /// Sets the targets that a mask ignores to -1: those that are tokens [from, from + count) of a document.
    virtual void ignore(int64_t, int64_t, int64_t, int64_t, int32_t*) const {}
    /// The byte of the file where a document begins.
    virtual int64_t byte_of(int64_t document) const = 0;
    virtual std::string digest() = 0;
    virtual std::string require_unchanged() = 0;

protected:
    std::vector<int64_t> begins_;
};

/// Documents of a token file, or of a text with one token a byte. The last token of a document is `separator`; -1: the
/// index of the pair says where documents end. Reads the whole file, or the index. Throws Error if the separator does
/// not occur, or if there is neither a separator nor an index.
std::unique_ptr<Store> open_tokens(const sequences::Spec& spec, int64_t separator, int64_t ids);

/// Documents of a file of JSON lines: the strings under the key `field`, one token a byte. Reads the whole file. Throws
/// Error with the line that has no such string, or is not JSON.
std::unique_ptr<Store> open_lines(const sequences::Spec& spec, const std::string& field, int64_t ids);

}  // namespace documents
