#include "sequences.h"

#include <algorithm>
#include <cstring>

#include "readings.h"

namespace sequences {

using orrery::DataFile;
using orrery::DType;
using orrery::Error;

namespace {

constexpr int64_t piece = 1 << 16;     ///< bytes that are checked at once
constexpr int64_t most_pieces = 1024;  ///< pieces that are checked in a file over 256 MiB

std::string text(int64_t number) { return std::to_string(number); }

/// The largest of `count` ids, in runs of constant length, which compilers vectorize.
template <class T>
uint32_t greatest(const unsigned char* bytes, int64_t count) {
    constexpr int64_t run = 64;
    T most[run] = {};
    int64_t at = 0;
    for (; at + run <= count; at += run) {
        T ids[run];
        std::memcpy(ids, bytes + at * static_cast<int64_t>(sizeof(T)), sizeof ids);
        for (int64_t i = 0; i < run; ++i) most[i] = std::max(most[i], ids[i]);
    }
    for (; at < count; ++at) {
        T id;
        std::memcpy(&id, bytes + at * static_cast<int64_t>(sizeof(T)), sizeof id);
        most[0] = std::max(most[0], id);
    }
    return *std::max_element(std::begin(most), std::end(most));
}

}  // namespace

Spec read_spec(orrery::Config& options, const orrery::Origin& asked, int64_t vocab) {
    Spec spec;
    spec.asked = asked;
    spec.path = options.text("path", "");
    const int64_t configured = options.integer("tokens_per_sequence", 0);
    spec.sequence = options.integer("seq", configured);
    if (options.has("seq") && spec.sequence < 1)
        throw Error(options.where("seq"),
                    options.path() + ": seq is the integer " + text(spec.sequence) + ", expected at least 1");
    if (spec.sequence < 1)
        throw Error(asked, options.path() +
                               ": seq is missing\n  give it here or as data.tokens_per_sequence in the configuration");
    spec.vocab = options.integer("vocab", vocab);
    if (spec.vocab < 0)
        throw Error(options.where("vocab"),
                    options.path() + ": vocab is the integer " + text(spec.vocab) + ", expected at least 1");
    return spec;
}

Sequences::Sequences(Spec spec) : spec_(std::move(spec)) {
    for (const char* name : {"tokens", "targets"}) arrays_.push_back({name, DType::i32, {{"seq", spec_.sequence}}});
}

int64_t Sequences::vocabulary() const {
    if (spec_.vocab > 0) return spec_.vocab;
    throw Error("data.vocab is missing: token file \"" + spec_.path +
                "\" does not say how many ids there are\n  set data.vocab to its tokenizer's number of ids (256 after "
                "`orrery tokenize`), or give vocab = to o.data.tokens");
}

void Sequences::open(int64_t ids) {
    if (!complete())
        throw Error(spec_.asked,
                    "no data: path is missing\n  set data.path, or give path = to o.data.text or o.data.tokens");
    // Ids for which the model has no row are as invalid as those beyond data.vocab.
    ids_ = spec_.vocab > 0 && ids > 0 ? std::min(spec_.vocab, ids) : std::max(spec_.vocab, ids);
    file_ = std::make_unique<TokenFile>(spec_.path, spec_.width, spec_.plain, spec_.asked);
    if (spec_.width_asked && file_->says_width() && file_->width() != spec_.width)
        throw Error(spec_.asked, place() + ": token_bytes is " + text(spec_.width) + ", its " +
                                     "header or index says " + text(file_->width()) +
                                     "\n  leave token_bytes out: the file says it");
    samples_ = (file_->tokens() - 1) / spec_.sequence;
    if (!spec_.width_known && !file_->says_width())
        if (const std::string problem = width_problem(begin_of(*file_), ids_); !problem.empty())
            throw Error(spec_.asked, place() + ": " + problem);
    check_size();
    if (ids_ > 0) check_all();
    digest_ = file_->digest();
}

void Sequences::check_size() const {
    std::string problem;
    if (file_->tokens() == 0)
        problem = " is empty\n  set data.path to a file with text or tokens, or write this one again";
    else if (samples_ < 1)
        problem = " has " + text(file_->tokens()) + " tokens; one sample needs " + text(spec_.sequence + 1) +
                  " (sequence " + text(spec_.sequence) + " and the token after it)";
    if (!problem.empty()) throw Error(spec_.asked, place() + problem);
}

void Sequences::check_all() const {
    const int64_t all = file_->tokens(), most = std::min(all, piece / file_->width());
    const bool whole = file_->bytes() <= DataFile::scan_limit;
    const int64_t pieces = whole ? (all + most - 1) / most : most_pieces;
    Bytes bytes(static_cast<size_t>(most * file_->width()));
    for (int64_t i = 0; i < pieces; ++i) {
        const int64_t from = whole ? i * most : (all - most) * i / (pieces - 1), count = std::min(most, all - from);
        file_->read(-1, from, count, bytes.data());
        check_range(bytes, from, count);
    }
}

int64_t Sequences::id_at(const Bytes& bytes, int64_t at) const {
    if (file_->width() == 1) return bytes[static_cast<size_t>(at)];
    if (file_->width() == 2) {
        uint16_t value;
        std::memcpy(&value, bytes.data() + 2 * at, 2);
        return value;
    }
    uint32_t value;
    std::memcpy(&value, bytes.data() + 4 * at, 4);
    return value;
}

void Sequences::check_range(const Bytes& bytes, int64_t from, int64_t count) const {
    if (ids_ <= 0) return;
    const uint32_t most = file_->width() == 1   ? greatest<uint8_t>(bytes.data(), count)
                          : file_->width() == 2 ? greatest<uint16_t>(bytes.data(), count)
                                                : greatest<uint32_t>(bytes.data(), count);
    if (most < ids_) return;
    for (int64_t i = 0; i < count; ++i)
        if (const int64_t id = id_at(bytes, i); id >= ids_)
            throw Error(spec_.asked, place() + ": token " + text(from + i) + " has id " + text(id) + ", at byte " +
                                         text(file_->byte_of(from + i)) + "; the model's vocabulary is " + text(ids_) +
                                         "\n  give the model vocab = " + text(id + 1) + " or more, or tokenize again" +
                                         (spec_.plain ? "" : other_reading(begin_of(*file_), file_->width(), ids_)));
}

std::vector<std::pair<std::string, int64_t>> Sequences::identity() const {
    return {{"data_tokens", file_->tokens()}, {"sequence", spec_.sequence}};
}

std::string Sequences::where(int64_t sample) const {
    const int64_t first = sample * spec_.sequence, document = file_->document_of(first);
    return place() + ", byte " + text(file_->byte_of(first)) + ": sample " + text(sample) + ", token " + text(first) +
           (document < 0 ? "" : " in document " + text(document));
}

void Sequences::read(size_t array, const orrery::DataSample& sample, const orrery::Shape& offset,
                     const orrery::Tensor& block) const {
    const int64_t count = block.shape[0], later = array == 0 ? 0 : 1;
    const int64_t from = sample.number * spec_.sequence + offset[0] + later;
    thread_local Bytes bytes;
    bytes.resize(static_cast<size_t>(count * file_->width()));
    file_->read(sample.number, from, count, bytes.data());
    if (file_->bytes() > DataFile::scan_limit) check_range(bytes, from, count);
    auto* out = static_cast<int32_t*>(block.data);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(id_at(bytes, i));
    if (later == 1 && file_->has_mask()) file_->ignore(sample.number, from, count, out);
}

}  // namespace sequences
