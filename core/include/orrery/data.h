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

/// An array that a data source provides. It fills the program input of the same name.
struct DataArray {
    std::string name;
    DType dtype = DType::f32;
    /// Names and sizes of the dims of one sample. The program input has one more dim, "batch", before them.
    std::vector<std::pair<std::string, int64_t>> dims;

    Shape shape() const {  // shape of one sample, without dim "batch"
        Shape sizes;
        for (const auto& dim : dims) sizes.push_back(dim.second);
        return sizes;
    }
    bool operator==(const DataArray&) const = default;
};

enum class Split : uint8_t { train, validation };

/// One draw of a sample by the run. Each epoch is another permutation, and validation samples are never trained on.
struct DataSample {
    int64_t number = 0;  ///< index of the sample in the source, below samples()
    int64_t drawn = 0;   ///< samples of this split that the run drew of the source before it, over all epochs
    uint64_t seed = 0;   ///< random seed of the data: one for the run, and one for each source of a mixture
    Split split = Split::train;
    double held_out = 0;  ///< share of the source that the run holds out
};

/// The order in which training draws samples: it depends on the index alone, not on the mesh or the batch size.
class ORRERY_API DataOrder {
public:
    virtual ~DataOrder();
    virtual int64_t samples(Split split) const = 0;
    /// Index in the source of the sample that the job draws as its `index`-th, counted over all ranks and epochs.
    virtual int64_t position(Split split, int64_t index) const = 0;
    /// What read() gets for the `index`-th draw, apart from `held_out`. `seed`: of the run's data. By default the
    /// position, `index` and `seed`; the order of a mixture returns those of the source that it draws from.
    virtual DataSample draw(Split split, int64_t index, uint64_t seed) const;
    /// Lines to print before a run that draws `drawn` training samples.
    virtual std::string told(int64_t drawn) const;
};

class DataSource;

/// The default order of a source: each epoch is another permutation, derived from the seed. `held_out` is the share of
/// samples for validation: evenly spaced blocks of 16, which are read in the order of the source. Throws Error at
/// `asked` when the opened source has too few samples for that.
ORRERY_API std::unique_ptr<DataOrder> permuted_order(const DataSource& source, double held_out, uint64_t seed,
                                                     const Origin& asked);
/// The same order of `count` things of a source: `kind` is what they are called, "documents".
ORRERY_API std::unique_ptr<DataOrder> permuted_order(const DataSource& source, int64_t count, std::string_view kind,
                                                     double held_out, uint64_t seed, const Origin& asked);

/// A source that another source (a mixture) draws from, with its weight.
struct DataPart {
    std::shared_ptr<DataSource> source;
    double weight = 1;
    Origin asked;
};

/// Provides the inputs of a program: a sequence of samples, each with one tensor per array. What read() writes depends
/// only on the sample and the block, so every rank and every mesh sees the same batches. A source is created while the
/// script runs, which needs only shapes, and opened before samples are read. Errors name the file, what was found and
/// what to do.
class ORRERY_API DataSource {
public:
    virtual ~DataSource();

    /// Called first when the script passes other sources to draw from, { { source, weight }, ... }. Returns false, the
    /// default, when this source draws from no other.
    virtual bool over(std::vector<DataPart> parts);
    /// The arrays that this source provides; the list never changes.
    virtual const std::vector<DataArray>& arrays() const = 0;
    /// Number of different ids (token ids are below it), for data.vocab of a script. Throws Error saying what to set
    /// when the number is not known; by default it always throws.
    virtual int64_t vocabulary() const;
    /// True when the ids are bytes of text. A run that has a tokenizer refuses such a source.
    virtual bool byte_ids() const { return false; }
    /// The file or folder that the script named; "" when there is none.
    virtual std::string path() const;
    /// False while the location of the samples is not known: a plan can be checked, but open() throws.
    virtual bool complete() const { return true; }

    /// Opens the files of this source, again if they are open already. `ids` is the number of embedding rows and logits
    /// of the model, 0 when it has neither. Throws Error for missing, damaged or too little data, and for token ids >=
    /// `ids` when checking all of them is cheap.
    virtual void open(int64_t ids) = 0;

    // The functions below may be called only after open().
    virtual int64_t samples() const = 0;
    /// The order in which training draws samples; by default `permuted_order`.
    virtual std::unique_ptr<DataOrder> order(double held_out, uint64_t seed, const Origin& asked) const;
    /// Location of a sample in the source, for messages and `orrery data`. By default place() and the sample number.
    virtual std::string where(const DataSample& sample) const;
    /// Pairs of query and key that causal attention computes in a sample of packed documents; 0, the default, where all
    /// samples cost the same. The samples of a batch are ordered by it, so that equal parts of a batch cost nearly the
    /// same.
    virtual int64_t pairs(const DataSample& sample) const;
    /// Checksum of the contents: ranks compare it, and a checkpoint can be resumed only with the same digest.
    virtual const std::string& digest() const = 0;
    /// Named numbers that must equal those in a checkpoint, as the digest must. By default the number of samples.
    virtual std::vector<std::pair<std::string, int64_t>> identity() const;
    /// Writes a block of array `array` of one sample to `block`, in host memory, dense and row-major. The block begins
    /// at index `offset` and has shape block.shape (one size per dim). Called from a separate thread while the run
    /// computes, and from several in `verify`. Throws Fault::failed naming the sample when it can no longer be read.
    virtual void read(size_t array, const DataSample& sample, const Shape& offset, const Tensor& block) const = 0;
    /// Called before each checkpoint and evaluation. Throws Fault::failed when the contents no longer match digest().
    /// Returns a warning to print once, or "". The default returns "".
    virtual std::string require_unchanged();
    /// Name of the source, for messages: "data file text.txt".
    virtual std::string place() const = 0;
};

/// One array stored in a file: dense, row-major, little-endian.
struct StoredArray {
    std::string name;
    TensorType type;
    int64_t begin = 0;  ///< offset of the first element, in bytes from the start of the file
};

/// A regular file that samples are read from. It is opened once and never mapped, so that a file truncated during the
/// run is an error and not a signal. Reads may come from several threads.
class ORRERY_API DataFile {
public:
    /// Sources check every byte of a file of up to this size before the run (256 MiB); of larger files only parts.
    static constexpr int64_t scan_limit = int64_t{256} << 20;

    /// `what`, a remedy in errors: "a file of text or of tokens". Throws Error at `asked` if the file cannot be read.
    DataFile(std::string path, std::string_view what, const Origin& asked);
    ~DataFile();

    const std::string& path() const;
    int64_t bytes() const;  ///< size in bytes when the file was opened
    /// Reads exactly `bytes` bytes. Throws Fault::failed when the file has become shorter, naming the sample; sample -1
    /// means that the whole file was being checked.
    void read(int64_t sample, int64_t begin, void* to, int64_t bytes) const;
    /// The arrays in the header of a safetensors or NumPy file (.npy, version 1 to 3; the extension decides). A .npy
    /// array is named after its file. Throws Error naming the file and what is wrong, such as an array beyond its end.
    std::vector<StoredArray> arrays() const;
    /// CRC-32C of the contents in hex: of every byte up to `scan_limit`, of 1024 evenly spaced pieces of a larger file.
    /// The first call reads the file.
    const std::string& digest();
    /// Throws Fault::failed when the file has another size or other contents than when it was opened, or, above
    /// `scan_limit`, a newer modification time. Returns a warning when the path is gone or names a file with other
    /// contents: the run continues with the file that it opened, but a restart would not find it.
    std::string require_unchanged();

private:
    struct Opened;
    std::unique_ptr<Opened> opened_;
};

}  // namespace orrery
