// What data/text and data/tokens share: a file of ids cut in samples.
#pragma once
#include <optional>

#include "orrery/data.h"

namespace sequences {

/// How many bytes an id has, and what is called what in messages and the configuration.
struct Spec {
    std::string path;
    int64_t width = 1;     ///< bytes of an id: 1, 2 or 4, little-endian
    int64_t sequence = 0;  ///< ids in one sample
    int64_t vocab = 0;     ///< 0: not known
    orrery::Origin asked;
};

/// Reads the options that both have: path, seq (data.tokens_per_sequence), vocab.
Spec read_spec(orrery::Config& options, const orrery::Origin& asked, int64_t vocab);

/// A file of ids cut in samples of `sequence` ids, each with the id after it as the last target: "tokens" and
/// "targets", i32[seq]. Ids are checked against the vocabulary and the model: all in files up to 256 MiB, those of
/// larger ones as they are read.
class Sequences final : public orrery::DataSource {
public:
    explicit Sequences(Spec spec);

    const std::vector<orrery::DataArray>& arrays() const override { return arrays_; }
    int64_t vocabulary() const override;
    std::string path() const override { return spec_.path; }
    bool complete() const override { return !spec_.path.empty(); }
    void open(int64_t ids) override;
    int64_t samples() const override { return samples_; }
    const std::string& digest() const override { return digest_; }
    std::vector<std::pair<std::string, int64_t>> identity() const override;
    void read(size_t array, const orrery::DataSample& sample, const orrery::Shape& offset,
              const orrery::Tensor& block) const override;
    std::string require_unchanged() override { return file_->require_unchanged(); }
    std::string place() const override { return "data file " + spec_.path; }

private:
    using Bytes = std::vector<unsigned char>;
    /// Ids [from, from + count) as they are stored, for sample `sample`; -1: for all of them.
    const Bytes& stored(int64_t from, int64_t count, int64_t sample, Bytes& buffer) const;
    int64_t id_at(const Bytes& bytes, int64_t at) const;
    void check_range(const Bytes& bytes, int64_t from, int64_t count) const;
    void check_size() const;

    Spec spec_;
    std::vector<orrery::DataArray> arrays_;
    std::optional<orrery::DataFile> file_;
    int64_t tokens_ = 0, samples_ = 0;
    int64_t ids_ = 0;  ///< those allowed, 0: all
    std::string digest_;
};

}  // namespace sequences
