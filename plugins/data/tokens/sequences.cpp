#include "sequences.h"

namespace sequences {

using orrery::DType;
using orrery::Error;

Sequences::Sequences(Spec spec) : spec_(std::move(spec)) {
    for (const char* name : {"tokens", "targets"}) arrays_.push_back({name, DType::i32, {{"seq", spec_.sequence}}});
}

int64_t Sequences::vocabulary() const { return vocabulary_of(spec_, "o.data.tokens"); }

void Sequences::open(int64_t ids) {
    if (!complete())
        throw Error(spec_.asked,
                    "no data: path is missing\n  set data.path, or give path = to o.data.text or o.data.tokens");
    ids_ = std::make_unique<Ids>(spec_, ids);
    samples_ = (ids_->count() - 1) / spec_.sequence;
    if (samples_ < 1)
        throw Error(spec_.asked, place() + " has " + text(ids_->count()) + " tokens; one sample needs " +
                                     text(spec_.sequence + 1) + " (sequence " + text(spec_.sequence) +
                                     " and the token after it)");
    digest_ = ids_->file().digest();
}

std::vector<std::pair<std::string, int64_t>> Sequences::identity() const {
    return {{"data_tokens", ids_->count()}, {"sequence", spec_.sequence}};
}

std::string Sequences::where(const orrery::DataSample& sample) const {
    const int64_t first = sample.number * spec_.sequence, document = ids_->file().document_of(first);
    return place() + ", byte " + text(ids_->file().byte_of(first)) + ": sample " + text(sample.number) + ", token " +
           text(first) + (document < 0 ? "" : " in document " + text(document));
}

void Sequences::read(size_t array, const orrery::DataSample& sample, const orrery::Shape& offset,
                     const orrery::Tensor& block) const {
    const int64_t count = block.shape[0], later = array == 0 ? 0 : 1;
    const int64_t from = sample.number * spec_.sequence + offset[0] + later;
    auto* out = static_cast<int32_t*>(block.data);
    ids_->read(sample.number, from, count, out);
    if (later == 1 && ids_->file().has_mask()) ids_->file().ignore(sample.number, from, count, out);
}

}  // namespace sequences
