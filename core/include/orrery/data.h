#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/config.h"
#include "orrery/tensor.h"

namespace orrery {

/// An array that a data source offers, under the name of the input that it fills.
struct DataArray {
    std::string name;
    DType dtype = DType::f32;
    /// Names and sizes of one sample's dims. The input has the dim "batch" before them.
    std::vector<std::pair<std::string, int64_t>> dims;

    Shape shape() const {  // of one sample
        Shape sizes;
        for (const auto& dim : dims) sizes.push_back(dim.second);
        return sizes;
    }
    bool operator==(const DataArray&) const = default;
};

enum class Split : uint8_t { train, validation };

/// In which order a training draws a source's samples: a function of the index alone, whatever the mesh and the batch.
class ORRERY_API DataOrder {
public:
    virtual ~DataOrder();
    virtual int64_t samples(Split split) const = 0;
    /// Number in the source of the index-th sample drawn, on all ranks together; it may go beyond samples(split).
    virtual int64_t position(Split split, int64_t index) const = 0;
    /// Lines to tell before a run that draws so many to train on.
    virtual std::string told(int64_t drawn) const;
};

/// One draw of a sample. The core draws: each epoch is another permutation, and held-out samples are never trained on.
struct DataSample {
    int64_t number = 0;  ///< which of the source's samples, below samples()
    int64_t drawn = 0;   ///< how many the run has drawn of this split before it, on all ranks, over all epochs
    uint64_t seed = 0;   ///< of the data
};

class DataSource;

/// The order of a source by itself: each epoch another permutation, keyed by the seed; `held_out`: the share of samples
/// for validation, in blocks of 16 that are evenly spaced and read as they lie. Throws Error at `asked` where the
/// opened source has too few for that.
ORRERY_API std::unique_ptr<DataOrder> permuted_order(const DataSource& source, double held_out, uint64_t seed,
                                                     const Origin& asked);

/// A source that another one draws from, and how much.
struct DataPart {
    std::shared_ptr<DataSource> source;
    double weight = 1;
    Origin asked;
};

/// Where the inputs of a program come from: a row of samples, each with one element per array. What read() writes is a
/// function of the sample and the block alone, so that every rank and mesh sees the same batches.
/// Made while a script runs, when only shapes matter; opened when its contents do. Errors name the file, what was found
/// and what to do.
class ORRERY_API DataSource {
public:
    virtual ~DataSource();

    /// Before all else where the script gives it sources, { { source, weight }, ... }; false, as by default: takes
    /// none.
    virtual bool over(std::vector<DataPart> parts);
    /// What it offers; the same from the start on.
    virtual const std::vector<DataArray>& arrays() const = 0;
    /// How many ids its integers have, as data.vocab of a script. Throws Error with what to set where that is not
    /// known; by default always.
    virtual int64_t vocabulary() const;
    /// Its ids are bytes of text, whatever tokenizer a run has: such a run is refused. By default not.
    virtual bool byte_ids() const { return false; }
    /// The file or folder that was asked for; "" where there is none.
    virtual std::string path() const;
    /// False: nothing says yet where the samples are. Its shapes are enough to prove a plan; open() throws.
    virtual bool complete() const { return true; }

    /// Opens what it reads, anew where it is open. `ids`: how many the model has rows and logits for, 0: it has
    /// neither. Throws Error at missing, damaged or too little data, and at ids beyond those where it is cheap to look
    /// at all.
    virtual void open(int64_t ids) = 0;

    // From here on: after open().
    virtual int64_t samples() const = 0;
    /// By default `permuted_order`.
    virtual std::unique_ptr<DataOrder> order(double held_out, uint64_t seed, const Origin& asked) const;
    /// Where a sample lies, for messages and `orrery data`. By default place() and its number.
    virtual std::string where(int64_t sample) const;
    /// Tells contents apart: ranks compare it at the start, and a checkpoint is only resumed where it is the same.
    virtual const std::string& digest() const = 0;
    /// Numbers that a checkpoint must agree with besides the digest, by name. By default the count of samples.
    virtual std::vector<std::pair<std::string, int64_t>> identity() const;
    /// Writes a block of one sample of an array to host memory: it begins at `offset` and has block.shape, one entry
    /// per dim of the array, dense, row-major. Called from a thread of its own, while the run computes, and from
    /// several in `verify`. Throws Fault::failed naming the sample where it cannot be read any more.
    virtual void read(size_t array, const DataSample& sample, const Shape& offset, const Tensor& block) const = 0;
    /// Called before each checkpoint and evaluation. Throws Fault::failed when what is read is not any more what
    /// `digest` says. Returns what to say once, "" where nothing has changed. By default nothing ever does.
    virtual std::string require_unchanged();
    /// "data file text.txt", for messages.
    virtual std::string place() const = 0;
};

/// One array of a file, where its bytes lie: dense, row-major, little-endian.
struct StoredArray {
    std::string name;
    TensorType type;
    int64_t begin = 0;  ///< bytes from the start of the file
};

/// A regular file that samples are read from: opened once, never mapped, so that one that is cut short meanwhile is an
/// error and no signal. Reads may come from several threads.
class ORRERY_API DataFile {
public:
    /// Above this no source looks at all bytes before the run: 256 MiB.
    static constexpr int64_t scan_limit = int64_t{256} << 20;

    /// `what`: "a file of text or of tokens", for the remedy. Throws Error at `asked` where it is no readable file.
    DataFile(std::string path, std::string_view what, const Origin& asked);
    ~DataFile();

    const std::string& path() const;
    int64_t bytes() const;  ///< when it was opened
    /// Reads exactly `bytes` bytes. Throws Fault::failed where the file has become shorter, naming the sample that they
    /// are of, or with -1 that it was looked through.
    void read(int64_t sample, int64_t begin, void* to, int64_t bytes) const;
    /// What the header of a safetensors or NumPy file (.npy, version 1 to 3) says, by the end of the path; in a .npy
    /// the array is called after the file. Throws Error naming the file and what is wrong, as an array beyond its end.
    std::vector<StoredArray> arrays() const;
    /// CRC-32C of the contents in hex: of all up to `scan_limit`, of 1024 evenly spaced pieces of a larger file. Reads
    /// them the first time.
    const std::string& digest();
    /// As DataSource::require_unchanged: throws when the file that is read has another size or contents; a new time
    /// alone has it read again. Returns what to say where its name is gone or is another file's, of other contents:
    /// what was opened is read on, but a restart would not find it.
    std::string require_unchanged();

private:
    struct Opened;
    std::unique_ptr<Opened> opened_;
};

}  // namespace orrery
