// A file of ids split in samples, for data/text and data/tokens.
#pragma once
#include <memory>

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

/// Reads the options of both plugins: path, seq (data.tokens_per_sequence), vocab.
Spec read_spec(orrery::Config& options, const orrery::Origin& asked, int64_t vocab);

/// A file of ids split in samples of `sequence` ids, each with the next id as the last target: "tokens" and "targets",
/// i32[seq]; targets that a mask ignores are -1. Ids are checked against the vocabulary and the model: all in files up
/// to 256 MiB; of larger ones 64 MiB, evenly spread, and the others when they are read.
class Sequences final : public orrery::DataSource {
public:
    explicit Sequences(Spec spec);

    const std::vector<orrery::DataArray>& arrays() const override { return arrays_; }
    int64_t vocabulary() const override;
    bool byte_ids() const override { return spec_.bytes; }
    std::string path() const override { return spec_.path; }
    bool complete() const override { return !spec_.path.empty(); }
    void open(int64_t ids) override;
    int64_t samples() const override { return samples_; }
    const std::string& digest() const override { return digest_; }
    std::vector<std::pair<std::string, int64_t>> identity() const override;
    void read(size_t array, const orrery::DataSample& sample, const orrery::Shape& offset,
              const orrery::Tensor& block) const override;
    std::string where(int64_t sample) const override;
    std::string require_unchanged() override { return file_->require_unchanged(); }
    std::string place() const override { return "data file " + spec_.path; }

private:
    using Bytes = std::vector<unsigned char>;
    int64_t id_at(const Bytes& bytes, int64_t at) const;
    void check_all() const;
    /// Throws Error at the first invalid id of `count` ids, the first of which is token `from`.
    void check_range(const Bytes& bytes, int64_t from, int64_t count) const;
    void check_size() const;

    Spec spec_;
    std::vector<orrery::DataArray> arrays_;
    std::unique_ptr<TokenFile> file_;
    int64_t samples_ = 0;
    int64_t ids_ = 0;  ///< ids below this are valid, 0: all
    std::string digest_;
};

}  // namespace sequences
