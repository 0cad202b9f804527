// The ids of a file, checked against the vocabulary and the model.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "token_file.h"

namespace sequences {

struct Spec {
    std::string path;
    int64_t width = 1;         ///< bytes of an id unless the file says: 1, 2 or 4, little-endian
    bool width_asked = false;  ///< the script's call sets it
    bool width_known = true;   ///< the call or the configuration sets it, or there is only one width
    bool plain = true;         ///< ids only: no header, index or mask is looked for
    int64_t sequence = 0;      ///< ids in a sample
    int64_t vocab = 0;         ///< 0: unknown
    bool bytes = false;        ///< ids are bytes of text
    orrery::Origin asked;
};

/// Reads the options that data/text, data/tokens and data/documents share: path, seq (data.tokens_per_sequence), vocab.
Spec read_spec(orrery::Config& options, const orrery::Origin& asked, int64_t vocab);
/// Reads them, and token_bytes, for a token file.
Spec read_token_spec(orrery::Config& options, const orrery::Origin& asked);
/// The vocabulary that the options give. Throws Error saying what to set where they give none.
int64_t vocabulary_of(const Spec& spec, std::string_view source);

/// An opened file of ids. Ids are checked against the vocabulary and the model: all in files up to 256 MiB; of larger
/// ones 64 MiB, evenly spread, and the others when they are read.
class Ids {
public:
    /// `ids`: number of ids that the model has, 0: any. Throws Error naming the file and the first invalid id, or why
    /// its ids seem to have another width.
    Ids(const Spec& spec, int64_t ids);

    const TokenFile& file() const { return file_; }
    TokenFile& file() { return file_; }
    int64_t count() const { return file_.tokens(); }
    /// Reads the ids [from, from + count) for sample `sample`; -1: for none.
    void read(int64_t sample, int64_t from, int64_t count, int32_t* to) const;

private:
    using Bytes = std::vector<unsigned char>;
    int64_t id_at(const Bytes& bytes, int64_t at) const;
    void check_all() const;
    /// Throws Error at the first invalid id of `count` ids, the first of which is token `from`.
    void check_range(const Bytes& bytes, int64_t from, int64_t count) const;

    Spec spec_;
    TokenFile file_;
    int64_t ids_ = 0;  ///< ids below this are valid, 0: all
};

}  // namespace sequences
