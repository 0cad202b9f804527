#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/regular_file.h"
#include "orrery/error.h"

namespace orrery {

/// Where training text comes from and how it is cut in samples.
struct DataSpec {
    enum class Kind : uint8_t { text, tokens };
    Kind kind = Kind::text;  ///< text: one token a byte; tokens: little-endian integers
    std::string path;
    int token_bytes = 2;   ///< tokens: 2 (u16) or 4 (u32)
    int64_t sequence = 0;  ///< tokens in one sample
    int64_t sequences_per_step = 0;
    int64_t vocab = 0;         ///< 0: not checked
    double validation = 0.05;  ///< share of samples held out, in evenly spaced blocks
    uint64_t seed = 0;
    Origin origin;  ///< the script line, for messages
};

enum class Split : uint8_t { train, validation };

/// A file of tokens cut in samples of `sequence` tokens, each with the token after it as the last target.
/// Every tenth block of samples (for validation = 0.1) is held out. The file is read, not mapped: one that is cut
/// short meanwhile is an error of the sample, not a SIGBUS.
class Dataset {
public:
    /// Throws Error naming file, size and need: missing, empty, shorter than one sample, truncated token, token beyond
    /// the vocabulary (files up to 256 MiB are scanned here, larger ones sample by sample).
    explicit Dataset(const DataSpec& spec);

    const DataSpec& spec() const { return spec_; }
    int64_t tokens() const { return tokens_; }
    int64_t samples(Split split) const;
    /// CRC-32C of the contents in hex: of the whole file up to 256 MiB, of 1024 evenly spaced pieces of a larger one.
    const std::string& digest() const { return digest_; }

    /// Number in the file of the index-th sample drawn: a permutation of the split per epoch, a function of
    /// (seed, epoch, index) alone. Validation is read in file order.
    int64_t position(Split split, int64_t index) const;
    /// Writes `count` tokens and their successors of a drawn sample, from token `first` of it. O(count).
    /// Throws Fault::failed naming file and sample where the file is shorter than it was.
    void read(Split split, int64_t index, int64_t first, int64_t count, int32_t* tokens, int32_t* targets) const;
    /// Throws Fault::failed when the file that is read has another size or contents: what is trained on is no longer
    /// what `digest` says. A new time alone has it read again, up to 256 MiB. Returns what to say where its name is
    /// gone or is another file's, of other contents: what was opened is read on, but a restart would not find it.
    /// "" where nothing has changed since the last call.
    std::string require_unchanged();

private:
    using Bytes = std::vector<unsigned char>;
    /// Tokens [from, from + count) as they are stored, for sample `sample`; -1: for all of them.
    const Bytes& stored(int64_t from, int64_t count, int64_t sample, Bytes& buffer) const;
    int64_t token(const Bytes& bytes, int64_t at) const;
    void check_range(const Bytes& bytes, int64_t from, int64_t count) const;
    void check_size();
    void check_all() const;
    std::string name_changed();
    std::string read_digest(const RegularFile& file) const;

    DataSpec spec_;
    RegularFile file_;
    struct stat known_ {};  ///< of the file, when it was last looked at
    struct stat named_ {};  ///< what had its name then
    int width_ = 1;
    int64_t file_bytes_ = 0;
    int64_t tokens_ = 0;
    std::string digest_;
    int64_t all_samples_ = 0;
    int64_t every_ = 0;  ///< one block in `every_` is held out, 0: none
};

/// Runs a fill function for step s + 1 on a thread of its own while step s computes.
/// A batch is a list of byte buffers, one per program input.
class Prefetch {
public:
    using Batch = std::vector<std::vector<std::byte>>;
    using Fill = std::function<void(int64_t step, Batch&)>;
    Prefetch(Fill fill, int64_t first_step);
    ~Prefetch();
    /// The batch of the next step, in order; valid until the next call. Rethrows what the fill threw.
    const Batch& next();
    /// Seconds that all calls of next() have waited.
    double waited_s() const { return waited_s_; }

private:
    void work();

    Fill fill_;
    int64_t step_;
    Batch ready_, shown_;
    std::exception_ptr error_;
    bool full_ = false, stop_ = false;
    double waited_s_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;
};

/// Writes a token file from text, one token a byte. Returns the number of tokens.
int64_t tokenize_bytes(const std::string& text_path, const std::string& bin_path, int token_bytes);

}  // namespace orrery
