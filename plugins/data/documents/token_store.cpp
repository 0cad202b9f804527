#include <algorithm>

#include "store.h"

namespace documents {

using orrery::Error;
using sequences::text;

namespace {

constexpr int64_t piece = 1 << 16;  ///< ids that are read at once

class Tokens final : public Store {
public:
    Tokens(const sequences::Spec& spec, int64_t separator, int64_t ids) : ids_(spec, ids) {
        if (separator >= 0)
            split(spec, separator);
        else
            begins_ = ids_.file().document_begins();
        if (!begins_.empty()) return;
        throw Error(spec.asked, "data file " + spec.path +
                                    " does not say where its documents end\n  set data.separator to the id " +
                                    (spec.bytes ? "of the byte that ends each one, such as 10 for a newline"
                                                : "that ends each one, or write a pair with `orrery tokenize -o NAME`: "
                                                  "NAME.idx has the ends"));
    }

    void read(int64_t sample, int64_t document, int64_t from, int64_t count, int32_t* to) const override {
        ids_.read(sample, begin(document) + from, count, to);
    }
    void ignore(int64_t sample, int64_t document, int64_t from, int64_t count, int32_t* to) const override {
        if (ids_.file().has_mask()) ids_.file().ignore(sample, begin(document) + from, count, to);
    }
    int64_t byte_of(int64_t document) const override { return ids_.file().byte_of(begin(document)); }
    std::string digest() override { return ids_.file().digest(); }
    std::string require_unchanged() override { return ids_.file().require_unchanged(); }

private:
    int64_t begin(int64_t document) const { return begins_[static_cast<size_t>(document)]; }

    void split(const sequences::Spec& spec, int64_t separator) {
        std::vector<int32_t> read(static_cast<size_t>(std::min(piece, ids_.count())));
        begins_ = {0};
        for (int64_t from = 0; from < ids_.count(); from += piece) {
            const int64_t count = std::min(piece, ids_.count() - from);
            ids_.read(-1, from, count, read.data());
            for (int64_t i = 0; i < count; ++i)
                if (read[static_cast<size_t>(i)] == separator) begins_.push_back(from + i + 1);
        }
        if (begins_.size() == 1)
            throw Error(spec.asked, "data file " + spec.path + ": its separator " + text(separator) +
                                        " never comes in " + text(ids_.count()) +
                                        " tokens\n  set data.separator to the id that ends each document, as the "
                                        "tokenizer's end of text; its first ids are " +
                                        first_ids());
        if (begins_.back() < ids_.count()) begins_.push_back(ids_.count());
    }

    std::string first_ids() const {
        int32_t first[8];
        const int64_t count = std::min<int64_t>(8, ids_.count());
        ids_.read(-1, 0, count, first);
        std::string all;
        for (int64_t i = 0; i < count; ++i) all += (i > 0 ? ", " : "") + text(first[i]);
        return all;
    }

    sequences::Ids ids_;
};

}  // namespace

std::unique_ptr<Store> open_tokens(const sequences::Spec& spec, int64_t separator, int64_t ids) {
    return std::make_unique<Tokens>(spec, separator, ids);
}

}  // namespace documents
