// Documents packed in rows without padding, with the position of each token in its document.
#include <algorithm>
#include <numeric>

#include "orrery/plugin.h"
#include "rows.h"
#include "store.h"

namespace {

using documents::Part;
using documents::Rows;
using documents::Store;
using orrery::DataSample;
using orrery::Error;
using orrery::Split;
using sequences::text;

enum Array : size_t { tokens, targets, positions, numbers, places };  ///< in the order of `names`
constexpr const char* names[] = {"tokens", "targets", "positions", "documents", "places"};

struct Options {
    sequences::Spec spec;
    bool lines = false;
    std::string field;
    int64_t separator = -1;
};

Options read_options(orrery::Config& options, const orrery::Origin& asked) {
    const std::string path = options.text("path", "");
    const bool ids = path.ends_with(".bin");
    Options read{ids ? sequences::read_token_spec(options, asked) : sequences::read_spec(options, asked, 256),
                 path.ends_with(".jsonl"), "", -1};
    read.spec.bytes = !ids;
    if (read.lines) {
        read.field = options.text("field", "text");
        return read;
    }
    if (!options.has("separator")) return read;
    read.separator = options.integer("separator", -1);
    if (read.separator < 0)
        throw Error(options.where("separator"), options.path() + ": separator is " + text(read.separator) +
                                                    ", expected the id that ends each document");
    return read;
}

class Order final : public orrery::DataOrder {
public:
    Order(std::shared_ptr<const Rows> rows, std::string about) : rows_(std::move(rows)), about_(std::move(about)) {}

    int64_t samples(Split split) const override { return rows_->count(split); }
    int64_t position(Split split, int64_t index) const override {
        const int64_t before = split == Split::train ? 0 : rows_->count(Split::train);
        return before + index % rows_->count(split);
    }
    std::string told(int64_t) const override {
        return about_ + "; in the first epoch the ends of " + text(rows_->cuts()) + " of its " +
               text(rows_->count(Split::train)) +
               " rows cut a document; its rest begins the next row as a document of its own";
    }

private:
    std::shared_ptr<const Rows> rows_;
    std::string about_;
};

class Documents final : public orrery::DataSource {
public:
    explicit Documents(Options options) : options_(std::move(options)) {
        for (const char* name : names) arrays_.push_back({name, orrery::DType::i32, {{"seq", options_.spec.sequence}}});
    }

    const std::vector<orrery::DataArray>& arrays() const override { return arrays_; }
    int64_t vocabulary() const override { return vocabulary_of(options_.spec, "o.data.documents"); }
    bool byte_ids() const override { return options_.spec.bytes; }
    std::string path() const override { return options_.spec.path; }
    bool complete() const override { return !path().empty(); }
    int64_t samples() const override { return store_->tokens() / length(); }
    const std::string& digest() const override { return digest_; }
    std::string require_unchanged() override { return store_->require_unchanged(); }
    std::string place() const override { return "data file " + path(); }

    void open(int64_t ids) override {
        const sequences::Spec& spec = options_.spec;
        if (!complete())
            throw Error(spec.asked, "no data: path is missing\n  set data.path, or give path = to o.data.documents");
        store_ = options_.lines ? documents::open_lines(spec, options_.field, ids)
                                : documents::open_tokens(spec, options_.separator, ids);
        rows_.clear();
        if (samples() < 1)
            throw Error(spec.asked, place() + " has " + text(store_->tokens()) + " tokens; one row has " +
                                        text(length()) +
                                        "\n  use more data, or shorter rows (data.tokens_per_sequence)");
        uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a of the ends: the same tokens may have others
        for (const int64_t begin : store_->begins()) hash = (hash ^ static_cast<uint64_t>(begin)) * 0x100000001b3u;
        digest_ = store_->digest() + "-" + std::to_string(hash);
    }

    std::unique_ptr<orrery::DataOrder> order(double held_out, uint64_t seed,
                                             const orrery::Origin& asked) const override {
        int64_t longer = 0;
        for (int64_t i = 0; i < store_->documents(); ++i) longer += store_->size(i) > length();
        const std::string about = place() + ": " + text(store_->documents()) + " documents of " +
                                  text(store_->tokens()) + " tokens, " + text(longer) +
                                  " of them longer than a row of " + text(length());
        return std::make_unique<Order>(rows(held_out, seed, asked), about);
    }

    std::vector<std::pair<std::string, int64_t>> identity() const override {
        return {{"data_tokens", store_->tokens()}, {"sequence", length()}, {"documents", store_->documents()}};
    }

    std::string where(const DataSample& sample) const override {
        constexpr size_t most = 8;
        const auto [rows, row] = row_of(sample);
        const std::vector<Part> pieces = rows->row(sample.split, row);
        std::string all = place() + ", row " + text(row) +
                          (sample.split == Split::train ? " in epoch " + text(rows->epoch(row))
                                                        : std::string(" of the held-out ones")) +
                          ": document";
        for (size_t i = 0; i < std::min(most, pieces.size()); ++i) {
            const Part& piece = pieces[i];
            all += (i == 0 ? " " : ", ") + text(piece.document);
            if (i == 0) all += " (at byte " + text(store_->byte_of(piece.document)) + ")";
            if (piece.from > 0) all += " from its token " + text(piece.from);
        }
        return all + (pieces.size() > most ? " and " + text(static_cast<int64_t>(pieces.size() - most)) + " more" : "");
    }

    int64_t pairs(const DataSample& sample) const override {
        int64_t sum = 0;
        for (const Part& piece : pieces_of(sample)) sum += piece.count * (piece.count + 1) / 2;
        return sum;
    }

    void read(size_t array, const DataSample& sample, const orrery::Shape& offset,
              const orrery::Tensor& block) const override {
        auto* const to = static_cast<int32_t*>(block.data);
        if (array == places) return std::iota(to, to + block.shape[0], static_cast<int32_t>(offset[0]));
        const std::vector<Part> pieces = pieces_of(sample);
        fill(array, sample, pieces, offset[0], block.shape[0], to);
        if (array == targets && all_ignored(to, block.shape[0])) require_targets(sample, pieces);
    }

private:
    struct Drawn {
        double held_out;
        uint64_t seed;
        std::shared_ptr<const Rows> rows;
    };
    static constexpr size_t most_drawn = 8;  ///< sources of a mixture may be one file with a seed for each

    int64_t length() const { return options_.spec.sequence; }

    std::shared_ptr<const Rows> rows(double held_out, uint64_t seed, const orrery::Origin& asked) const {
        const std::lock_guard lock(mutex_);
        for (const Drawn& one : rows_)
            if (one.held_out == held_out && one.seed == seed) return one.rows;
        if (rows_.size() == most_drawn) rows_.erase(rows_.begin());
        const Rows::Begins begins(store_, &store_->begins());
        rows_.push_back({held_out, seed, std::make_shared<const Rows>(*this, begins, length(), held_out, seed, asked)});
        return rows_.back().rows;
    }

    /// A row of training is found by the number of draws before it, one to evaluate by its number in the source.
    std::pair<std::shared_ptr<const Rows>, int64_t> row_of(const DataSample& sample) const {
        std::shared_ptr<const Rows> of = rows(sample.held_out, sample.seed, options_.spec.asked);
        if (sample.split == Split::train) return {of, sample.drawn};
        return {of, sample.number - (sample.held_out > 0 ? of->count(Split::train) : 0)};
    }

    std::vector<Part> pieces_of(const DataSample& sample) const {
        const auto [rows, row] = row_of(sample);
        return rows->row(sample.split, row);
    }

    /// Writes elements [from, from + count) of a row.
    void fill(size_t array, const DataSample& sample, const std::vector<Part>& pieces, int64_t from, int64_t count,
              int32_t* to) const {
        int64_t begin = 0;
        for (size_t i = 0; i < pieces.size(); begin += pieces[i].count, ++i) {
            const Part& piece = pieces[i];
            const int64_t first = std::max(begin, from), end = std::min(begin + piece.count, from + count);
            if (first >= end) continue;
            int32_t* const out = to + (first - from);
            const int64_t in = first - begin;  // index in the piece
            if (array == numbers) std::fill(out, out + (end - first), static_cast<int32_t>(i));
            if (array == positions) std::iota(out, out + (end - first), static_cast<int32_t>(in));
            if (array == tokens) store_->read(sample.number, piece.document, piece.from + in, end - first, out);
            if (array != targets) continue;
            const bool last = piece.ends && end == begin + piece.count;
            const int64_t wanted = end - first - (last ? 1 : 0), next = piece.from + in + 1;
            if (last) out[wanted] = -1;
            if (wanted == 0) continue;
            store_->read(sample.number, piece.document, next, wanted, out);
            store_->ignore(sample.number, piece.document, next, wanted, out);
        }
    }

    static bool all_ignored(const int32_t* ids, int64_t count) {
        return std::all_of(ids, ids + count, [](int32_t id) { return id < 0; });
    }

    /// Throws Error if no target of the whole row counts.
    void require_targets(const DataSample& sample, const std::vector<Part>& pieces) const {
        std::vector<int32_t> whole(static_cast<size_t>(length()));
        fill(targets, sample, pieces, 0, length(), whole.data());
        if (!all_ignored(whole.data(), length())) return;
        throw Error(options_.spec.asked,
                    where(sample) + ": none of the " + text(length()) +
                        " targets of this row counts: each of its documents has one token, or the mask ignores all of "
                        "them\n  remove such documents, or use longer rows (data.tokens_per_sequence)",
                    orrery::Fault::failed);
    }

    Options options_;
    std::vector<orrery::DataArray> arrays_;
    std::shared_ptr<Store> store_;
    std::string digest_;
    mutable std::mutex mutex_;
    mutable std::vector<Drawn> rows_;
};

void add(orrery::Registry& registry) {
    registry.add_data("documents", [](orrery::Config& options, const orrery::Origin& asked) {
        return std::make_unique<Documents>(read_options(options, asked));
    });
}

}  // namespace

ORRERY_PLUGIN("data.documents", "0.1", add);
