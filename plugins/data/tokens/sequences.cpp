#include "sequences.h"

#include <algorithm>
#include <cstring>

namespace sequences {

using orrery::DataFile;
using orrery::DType;
using orrery::Error;

namespace {

constexpr int64_t piece = 1 << 18;  ///< ids that are looked through at once

std::string text(int64_t number) { return std::to_string(number); }

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
    // Ids that the model has no row for are as wrong as those beyond data.vocab.
    ids_ = spec_.vocab > 0 && ids > 0 ? std::min(spec_.vocab, ids) : std::max(spec_.vocab, ids);
    file_.emplace(spec_.path, "a file of text or of tokens", spec_.asked);
    tokens_ = file_->bytes() / spec_.width;
    samples_ = (tokens_ - 1) / spec_.sequence;
    check_size();
    if (Bytes bytes; ids_ > 0 && file_->bytes() <= DataFile::scan_limit)
        for (int64_t from = 0; from < tokens_; from += piece) {
            const int64_t count = std::min(piece, tokens_ - from);
            check_range(stored(from, count, -1, bytes), from, count);
        }
    digest_ = file_->digest();
}

void Sequences::check_size() const {
    const int64_t bytes = file_->bytes();
    std::string problem;
    if (bytes == 0)
        problem = " is empty\n  set data.path to a file with text or tokens, or write this one again";
    else if (bytes % spec_.width != 0)
        problem = " has " + text(bytes) + " bytes, not a multiple of " + text(spec_.width) +
                  " (data.token_bytes): it is truncated, or its tokens have another width";
    else if (samples_ < 1)
        problem = " has " + text(tokens_) + " tokens; one sample needs " + text(spec_.sequence + 1) + " (sequence " +
                  text(spec_.sequence) + " and the token after it)";
    if (!problem.empty()) throw Error(spec_.asked, place() + problem);
}

const Sequences::Bytes& Sequences::stored(int64_t from, int64_t count, int64_t sample, Bytes& buffer) const {
    buffer.resize(static_cast<size_t>(count * spec_.width));
    file_->read(sample, from * spec_.width, buffer.data(), count * spec_.width);
    return buffer;
}

int64_t Sequences::id_at(const Bytes& bytes, int64_t at) const {
    if (spec_.width == 1) return bytes[static_cast<size_t>(at)];
    if (spec_.width == 2) {
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
    for (int64_t i = 0; i < count; ++i)
        if (const int64_t id = id_at(bytes, i); id >= ids_)
            throw Error(spec_.asked, place() + ": token " + text(from + i) + " has id " + text(id) +
                                         ", the model's vocabulary is " + text(ids_) +
                                         "\n  give the model vocab = " + text(id + 1) + " or more, or tokenize again");
}

std::vector<std::pair<std::string, int64_t>> Sequences::identity() const {
    return {{"data_tokens", tokens_}, {"sequence", spec_.sequence}};
}

void Sequences::read(size_t array, const orrery::DataSample& sample, const orrery::Shape& offset,
                     const orrery::Tensor& block) const {
    const int64_t count = block.shape[0], later = array == 0 ? 0 : 1;
    const int64_t from = sample.number * spec_.sequence + offset[0] + later;
    thread_local Bytes buffer;
    const Bytes& bytes = stored(from, count, sample.number, buffer);
    if (file_->bytes() > DataFile::scan_limit) check_range(bytes, from, count);
    auto* out = static_cast<int32_t*>(block.data);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(id_at(bytes, i));
}

}  // namespace sequences
