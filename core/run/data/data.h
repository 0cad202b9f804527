#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "orrery/data.h"
#include "orrery/error.h"

namespace orrery {

/// A data source and how a training draws samples from it.
struct DataSpec {
    struct Part {
        std::string plugin;
        std::shared_ptr<DataSource> source;
    };

    std::shared_ptr<DataSource> source;
    std::string plugin, held_out_plugin;   ///< names of the plugins of `source` and `held_out`: "data/text"
    std::shared_ptr<DataSource> held_out;  ///< source for evaluation, with the same arrays; null: a share of `source`
    int64_t sequences_per_step = 0;        ///< samples of a full step: the size of the dim "batch"
    int64_t ids = 0;                       ///< number of token ids that the model knows; 0: it has none
    double validation = 0.05;              ///< share of the source's samples that is held out, in evenly spaced blocks
    uint64_t seed = 0;
    std::vector<Part> parts;  ///< if `source` or `held_out` are mixtures: all sources in them, also in nested ones
    Origin origin;
};

/// The samples of an opened source in the order in which training draws them. Every tenth block of samples (for
/// validation = 0.1) is held out, or evaluation reads another source.
class Dataset {
public:
    /// Opens the source and makes its order. Throws Error as DataSource::open and DataSource::order do.
    explicit Dataset(const DataSpec& spec);

    const DataSpec& spec() const { return spec_; }
    DataSource& source(Split split = Split::train) const;
    /// Name of the plugin of the source that `split` reads: "data/text".
    const std::string& plugin(Split split = Split::train) const;
    /// Name of the plugin of the source that this thread read last; in a mixture, that of the part.
    std::string plugin_of_last_read(Split split) const;
    int64_t samples(Split split) const;
    const std::string& digest() const { return source().digest(); }
    /// Names and values of the data that must be the same on all ranks.
    std::vector<std::pair<std::string, std::string>> agreement() const;

    /// Position in the source of the index-th drawn sample (DataOrder::position); held-out samples are not permuted.
    int64_t position(Split split, int64_t index) const;
    /// The index-th draw of the split, as DataSource::read gets it.
    DataSample sample(Split split, int64_t index) const;
    /// Location of the index-th drawn sample, for messages.
    std::string where(Split split, int64_t index) const { return source(split).where(sample(split, index)); }
    /// The draws [first, first + count) in the order in which they are the rows of a batch: that of `equal_parts` by
    /// DataSource::pairs, so that it depends on the global batch alone; in sequence where the source has no pairs.
    void rows(Split split, int64_t first, int64_t count, std::vector<int64_t>& draws) const;
    /// Writes a block of one array of the index-th drawn sample to `block`; see DataSource::read.
    void read(Split split, int64_t index, size_t array, const Shape& offset, const Tensor& block) const;
    /// Calls DataSource::require_unchanged on the sources for training and evaluation.
    std::string require_unchanged();
    /// Lines to print before a run that draws `drawn` training samples (DataOrder::told).
    std::string told(int64_t drawn) const { return order_->told(drawn); }

private:
    DataSpec spec_;
    std::shared_ptr<const DataOrder> order_;
};

/// Reads the batch of step s + 1 on a thread of its own while step s computes.
class Prefetch {
public:
    using Fill = std::function<void(int64_t step, std::byte* batch)>;
    /// `one`, `other`: memory for one batch each, used alternately. They must outlive this object.
    Prefetch(Fill fill, int64_t first_step, std::byte* one, std::byte* other);
    ~Prefetch();
    /// Returns the batch of the next step, valid until the next call. Rethrows an exception of the fill function.
    std::byte* next();
    /// Seconds that calls of next() have waited for a batch, in total.
    double waited_s() const { return waited_s_; }

private:
    void work();

    Fill fill_;
    int64_t step_;
    std::byte *ready_, *shown_;
    std::exception_ptr error_;
    bool full_ = false, stop_ = false;
    double waited_s_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;
};

/// Writes a token file from a text file, one token per byte. Returns the number of tokens.
int64_t tokenize_bytes(const std::string& text_path, const std::string& bin_path, int token_bytes);

}  // namespace orrery
