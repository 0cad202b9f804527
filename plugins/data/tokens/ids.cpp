#include "ids.h"

#include <algorithm>
#include <cstring>

#include "readings.h"

namespace sequences {

using orrery::DataFile;
using orrery::Error;

namespace {

constexpr int64_t piece = 1 << 16;     ///< bytes that are checked at once
constexpr int64_t most_pieces = 1024;  ///< pieces that are checked in a file over 256 MiB

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

Spec read_token_spec(orrery::Config& options, const orrery::Origin& asked) {
    Spec spec = read_spec(options, asked, 0);
    spec.plain = false;
    spec.width = options.integer("token_bytes", 2);
    // The configuration's value is for files without a width of their own.
    spec.width_asked = options.find("token_bytes") != nullptr;
    spec.width_known = options.has("token_bytes");
    if (spec.width == 2 || spec.width == 4) return spec;
    const std::string place = options.find("token_bytes") ? options.path() + ": " : "data.";
    throw Error(options.where("token_bytes"), place + "token_bytes is " + text(spec.width) + ", expected 2 or 4");
}

int64_t vocabulary_of(const Spec& spec, std::string_view source) {
    if (spec.vocab > 0) return spec.vocab;
    throw Error("data.vocab is missing: token file \"" + spec.path +
                "\" does not say how many ids there are\n  set data.vocab to its tokenizer's number of ids (256 after "
                "`orrery tokenize`), or give vocab = to " +
                std::string(source));
}

Ids::Ids(const Spec& spec, int64_t ids)
    : spec_(spec),
      file_(spec.path, spec.width, spec.plain, spec.asked),
      // Ids for which the model has no row are as invalid as those beyond data.vocab.
      ids_(spec.vocab > 0 && ids > 0 ? std::min(spec.vocab, ids) : std::max(spec.vocab, ids)) {
    if (spec.width_asked && file_.says_width() && file_.width() != spec.width)
        throw Error(spec.asked, "data file " + spec.path + ": token_bytes is " + text(spec.width) + ", its " +
                                    "header or index says " + text(file_.width()) +
                                    "\n  leave token_bytes out: the file says it");
    if (!spec.width_known && !file_.says_width())
        if (const std::string problem = width_problem(begin_of(file_), ids_); !problem.empty())
            throw Error(spec.asked, "data file " + spec.path + ": " + problem);
    if (count() == 0)
        throw Error(spec.asked,
                    "data file " + spec.path +
                        " is empty\n  set data.path to a file with text or tokens, or write this one again");
    if (ids_ > 0) check_all();
}

void Ids::check_all() const {
    const int64_t all = file_.tokens(), most = std::min(all, piece / file_.width());
    const bool whole = file_.bytes() <= DataFile::scan_limit;
    const int64_t pieces = whole ? (all + most - 1) / most : most_pieces;
    Bytes bytes(static_cast<size_t>(most * file_.width()));
    for (int64_t i = 0; i < pieces; ++i) {
        const int64_t from = whole ? i * most : (all - most) * i / (pieces - 1), count = std::min(most, all - from);
        file_.read(-1, from, count, bytes.data());
        check_range(bytes, from, count);
    }
}

int64_t Ids::id_at(const Bytes& bytes, int64_t at) const {
    if (file_.width() == 1) return bytes[static_cast<size_t>(at)];
    if (file_.width() == 2) {
        uint16_t value;
        std::memcpy(&value, bytes.data() + 2 * at, 2);
        return value;
    }
    uint32_t value;
    std::memcpy(&value, bytes.data() + 4 * at, 4);
    return value;
}

void Ids::check_range(const Bytes& bytes, int64_t from, int64_t count) const {
    if (ids_ <= 0) return;
    const uint32_t most = file_.width() == 1   ? greatest<uint8_t>(bytes.data(), count)
                          : file_.width() == 2 ? greatest<uint16_t>(bytes.data(), count)
                                               : greatest<uint32_t>(bytes.data(), count);
    if (most < ids_) return;
    for (int64_t i = 0; i < count; ++i)
        if (const int64_t id = id_at(bytes, i); id >= ids_)
            throw Error(spec_.asked, "data file " + spec_.path + ": token " + text(from + i) + " has id " + text(id) +
                                         ", at byte " + text(file_.byte_of(from + i)) + "; the model's vocabulary is " +
                                         text(ids_) + "\n  give the model vocab = " + text(id + 1) +
                                         " or more, or tokenize again" +
                                         (spec_.plain ? "" : other_reading(begin_of(file_), file_.width(), ids_)));
}

void Ids::read(int64_t sample, int64_t from, int64_t count, int32_t* to) const {
    thread_local Bytes bytes;
    bytes.resize(static_cast<size_t>(count * file_.width()));
    file_.read(sample, from, count, bytes.data());
    if (file_.bytes() > DataFile::scan_limit) check_range(bytes, from, count);
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int32_t>(id_at(bytes, i));
}

}  // namespace sequences
