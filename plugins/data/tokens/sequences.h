// What data/text and data/tokens share: a file of ids cut in samples.
#pragma once
#include <memory>

#include "token_file.h"

namespace sequences {

/// How many bytes an id has, and what is called what in messages and the configuration.
struct Spec {
    std::string path;
    int64_t width = 1;         ///< bytes of an id where the file does not say: 1, 2 or 4, little-endian
    bool width_asked = false;  ///< the script's call says so
    bool width_known = true;   ///< the call or the configuration says so, or there is one width alone
    bool plain = true;         ///< ids and nothing else: no header, index or mask is looked for
    int64_t sequence = 0;      ///< ids in one sample
    int64_t vocab = 0;         ///< 0: not known
    bool bytes = false;        ///< ids are bytes of text
    orrery::Origin asked;
};

/// Reads the options that both have: path, seq (data.tokens_per_sequence), vocab.
Spec read_spec(orrery::Config& options, const orrery::Origin& asked, int64_t vocab);

/// A file of ids cut in samples of `sequence` ids, each with the id after it as the last target: "tokens" and
/// "targets", i32[seq]; targets that a mask ignores are -1. Ids are checked against the vocabulary and the model: all
/// in files up to 256 MiB; of larger ones 64 MiB, evenly spread, and the others as they are read.
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
    /// Throws Error at the first of `count` ids, of which the first is token `from`, that is not allowed.
    void check_range(const Bytes& bytes, int64_t from, int64_t count) const;
    void check_size() const;

    Spec spec_;
    std::vector<orrery::DataArray> arrays_;
    std::unique_ptr<TokenFile> file_;
    int64_t samples_ = 0;
    int64_t ids_ = 0;  ///< those allowed, 0: all
    std::string digest_;
};

}  // namespace sequences
