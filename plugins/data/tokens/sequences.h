// A file of ids split in samples, for data/text and data/tokens.
#pragma once
#include <memory>

#include "ids.h"

namespace sequences {

/// A file of ids split in samples of `sequence` ids, each with the next id as the last target: "tokens" and "targets",
/// i32[seq]; targets that a mask ignores are -1.
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
    std::string where(const orrery::DataSample& sample) const override;
    std::string require_unchanged() override { return ids_->file().require_unchanged(); }
    std::string place() const override { return "data file " + spec_.path; }

private:
    Spec spec_;
    std::vector<orrery::DataArray> arrays_;
    std::unique_ptr<Ids> ids_;
    int64_t samples_ = 0;
    std::string digest_;
};

}  // namespace sequences
