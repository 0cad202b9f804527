#include "token_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace sequences {

using orrery::DataFile;
using orrery::Error;

namespace {

constexpr int64_t index_header = 34, llmc_header = 1024;
constexpr int64_t most_looked_at = 16 << 20;  ///< bytes of an index that is checked completely before the run

/// Megatron-LM's DType, by code (megatron/core/datasets/indexed_dataset.py).
constexpr const char* types[] = {"", "uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"};

const std::string whole = "write the pair again, or copy both of its files whole";

}  // namespace

TokenFile::TokenFile(const std::string& path, int64_t width, bool plain, const orrery::Origin& asked)
    : asked_(asked), ids_(path, "a file of text or of tokens", asked), width_(width) {
    const bool named_so = path.size() > 4 && path.compare(path.size() - 4, 4, ".bin") == 0;
    const std::string name = named_so ? path.substr(0, path.size() - 4) : path;
    std::error_code none;
    if (!plain && named_so && std::filesystem::exists(name + ".idx", none)) {
        index_.emplace(name + ".idx", "NAME.bin of a pair, whose NAME.idx can be read", asked_);
        read_index(path);
        if (std::filesystem::exists(name + ".mask", none)) open_mask(name + ".mask");
        return;
    }
    if (!plain && named_so && std::filesystem::exists(name + ".mask", none))
        throw Error(asked_, "data file " + path + " has a " + name + ".mask beside it, and no " + name +
                                ".idx: the three belong together\n  " + whole +
                                "; or remove the mask, for all tokens to be targets");
    refuse_index(path);
    if (!plain && read_header()) return;
    if (ids_.bytes() % width_ != 0)
        throw Error(asked_, "data file " + path + " has " + text(ids_.bytes()) + " bytes, not a multiple of " +
                                text(width_) +
                                " (data.token_bytes): it is truncated, or its tokens have another width");
    tokens_ = ids_.bytes() / width_;
}

/// Refuses NAME.idx in place of NAME.bin, or an array with a header: its bytes would be read as ids.
void TokenFile::refuse_index(const std::string& path) const {
    char start[7] = {};
    if (ids_.bytes() < static_cast<int64_t>(sizeof start)) return;
    ids_.read(-1, 0, start, sizeof start);
    if (std::string(start, sizeof start) == "MMIDIDX")
        throw Error(asked_, "data file " + path + " is an index of a pair\n  name the file of its tokens, NAME.bin");
    if (std::string(start, 6) == "\x93NUMPY")
        throw Error(asked_, "data file " + path +
                                " is a NumPy .npy file, not raw ids\n  write the ids with "
                                "array.astype(\"uint16\").tofile(NAME.bin), or \"uint32\" and "
                                "data.token_bytes = 4");
}

template <class T>
T TokenFile::number(const DataFile& file, int64_t at) const {
    T value;
    file.read(-1, at, &value, sizeof value);
    return value;
}

void TokenFile::refuse(const DataFile& file, int64_t at, const std::string& why, const std::string& remedy) const {
    throw Error(asked_, "data file " + file.path() + ", byte " + text(at) + ": " + why + "\n  " + remedy);
}

/// Reads the index: "MMIDIDX\0\0", version, type, counts of sequences and of document ends; then lengths (i32), offsets
/// (i64) and document ends (i64).
void TokenFile::read_index(const std::string& bin) {
    const DataFile& file = *index_;
    const int64_t bytes = file.bytes();
    if (bytes < index_header)
        refuse(file, bytes, "it is truncated here, in the " + text(index_header) + " bytes of its header", whole);
    char magic[9];
    file.read(-1, 0, magic, sizeof magic);
    if (std::memcmp(magic, "MMIDIDX\0\0", sizeof magic) != 0)
        refuse(file, 0, "it is not a Megatron index: it does not begin with \"MMIDIDX\"",
               "write the pair with `orrery tokenize` or Megatron's preprocess_data.py, or move the .idx away for " +
                   bin + " to be read as ids only");
    if (const auto version = number<uint64_t>(file, 9); version != 1)
        refuse(file, 9, "it is of version " + std::to_string(version) + ", supported is 1", whole);
    const auto code = number<uint8_t>(file, 17);
    if (code != 4 && code != 8)
        refuse(file, 17,
               "its tokens are of type " + text(code) + (code > 0 && code < 9 ? std::string(", ") + types[code] : "") +
                   "; supported are 4, int32, and 8, uint16",
               "write the pair with one of these types");
    width_ = code == 4 ? 4 : 2;
    says_width_ = true;
    const auto sequences = number<uint64_t>(file, 18), documents = number<uint64_t>(file, 26);
    const uint64_t most = static_cast<uint64_t>(bytes) / 8;
    const uint64_t need = std::min(sequences, most) * 12 + std::min(documents, most) * 8 + index_header;
    if (sequences > most || documents > most || need > static_cast<uint64_t>(bytes))
        refuse(file, bytes,
               "it is truncated here; its header says " + std::to_string(sequences) + " sequences and " +
                   std::to_string(documents) + " ends of documents",
               whole);
    if (need + sequences == static_cast<uint64_t>(bytes) && sequences > 0)
        refuse(file, static_cast<int64_t>(need), "it has modes of sequences, of several kinds of data",
               "name a pair with tokens only");
    if (need < static_cast<uint64_t>(bytes))
        refuse(file, static_cast<int64_t>(need), text(bytes - static_cast<int64_t>(need)) + " bytes follow its end",
               whole);
    sequences_ = static_cast<int64_t>(sequences);
    documents_ = static_cast<int64_t>(documents);
    const int64_t last = index_header + 4 * (sequences_ - 1);
    check_sequences(sequences_ > 0 ? number<int32_t>(file, last) : 0);
}

/// Checks the ends, and all of an index up to 16 MiB.
void TokenFile::check_sequences(int64_t last_length) {
    const DataFile& file = *index_;
    const int64_t offsets = index_header + 4 * sequences_, ends = offsets + 8 * sequences_;
    const int64_t last = sequences_ > 0 ? number<int64_t>(file, ends - 8) : 0, bytes = ids_.bytes();
    if (last_length < 0 || last < 0 || last > bytes || last + last_length * width_ != bytes)
        refuse(file, ends - 8,
               "the last sequence is " + text(last_length) + " tokens of " + text(width_) + " bytes from byte " +
                   text(last) + " on; " + ids_.path() + " has " + text(bytes) +
                   " bytes: it is truncated, or of another index",
               whole);
    if (documents_ > 0 && number<int64_t>(file, file.bytes() - 8) != sequences_)
        refuse(file, file.bytes() - 8, "the last document does not end with the last sequence", whole);
    tokens_ = bytes / width_;
    if (file.bytes() > most_looked_at) return;
    std::vector<int32_t> lengths(static_cast<size_t>(sequences_));
    std::vector<int64_t> begins(lengths.size());
    file.read(-1, index_header, lengths.data(), 4 * sequences_);
    file.read(-1, offsets, begins.data(), 8 * sequences_);
    int64_t begin = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
        if (lengths[i] < 0 || begins[i] != begin)
            refuse(file, offsets + 8 * static_cast<int64_t>(i),
                   "sequence " + text(static_cast<int64_t>(i)) + " begins at byte " + text(begins[i]) +
                       ", where those before it end at " + text(begin),
                   whole);
        begin += lengths[i] * width_;
    }
}

void TokenFile::open_mask(const std::string& path) {
    mask_.emplace(path, "NAME.bin of a pair, whose NAME.mask can be read", asked_);
    if (const int64_t need = (tokens_ + 7) / 8; mask_->bytes() != need)
        refuse(*mask_, std::min(need, mask_->bytes()),
               mask_->bytes() < need ? "it is truncated here: one bit a token needs " + text(need) + " bytes"
                                     : "its end is expected here, it has " + text(mask_->bytes()) + " bytes",
               "tokenize again, or remove it for all tokens to be targets");
}

/// Reads llm.c's header: 256 int32, of which the first three are magic, version and number of tokens
/// (dev/data/data_common.py).
bool TokenFile::read_header() {
    struct Kind {
        int32_t magic, version;
        int64_t width;
    };
    constexpr Kind kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};  // for GPT-2's ids and for Llama 3's
    int32_t header[3];
    if (ids_.bytes() < llmc_header) return false;
    ids_.read(-1, 0, header, sizeof header);
    const Kind* const kind =
        std::find_if(std::begin(kinds), std::end(kinds), [&](const Kind& one) { return one.magic == header[0]; });
    if (kind == std::end(kinds)) return false;
    // With an implausible version it is not a header: two ids may be any number.
    if (header[1] != kind->version && (header[1] < 0 || header[1] > 255)) return false;
    if (header[1] != kind->version)
        refuse(ids_, 4,
               "it has llm.c's header of version " + text(header[1]) + ", supported is " + text(kind->version) +
                   " of magic " + text(kind->magic),
               "write it with llm.c's dev/data, or cut the header off");
    begin_ = llmc_header;
    width_ = kind->width;
    says_width_ = true;
    tokens_ = header[2];
    if (const int64_t end = begin_ + tokens_ * width_; tokens_ < 0 || end != ids_.bytes())
        refuse(ids_, std::min(std::max<int64_t>(end, 0), ids_.bytes()),
               "llm.c's header says " + text(tokens_) + " tokens of " + text(width_) + " bytes, which end at byte " +
                   text(end) + "; the file has " + text(ids_.bytes()),
               "write it again, or copy it whole");
    return true;
}

void TokenFile::read(int64_t sample, int64_t from, int64_t count, unsigned char* to) const {
    ids_.read(sample, byte_of(from), to, count * width_);
}

void TokenFile::ignore(int64_t sample, int64_t from, int64_t count, int32_t* targets) const {
    thread_local std::vector<unsigned char> bits;
    const int64_t first = from / 8;
    bits.resize(static_cast<size_t>((from + count + 7) / 8 - first));
    mask_->read(sample, first, bits.data(), static_cast<int64_t>(bits.size()));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t token = from + i;
        if (bits[static_cast<size_t>(token / 8 - first)] >> token % 8 & 1) targets[i] = -1;
    }
}

int64_t TokenFile::document_of(int64_t token) const {
    if (!index_ || sequences_ == 0) return -1;
    const int64_t offsets = index_header + 4 * sequences_, ends = offsets + 8 * sequences_;
    // The last number in [at, at + 8 * count) that is at most `limit`.
    const auto last_upto = [&](int64_t at, int64_t count, int64_t limit) {
        int64_t low = 0, high = count;
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            (number<int64_t>(*index_, at + 8 * middle) <= limit ? low : high) = middle;
        }
        return low;
    };
    const int64_t sequence = last_upto(offsets, sequences_, token * width_);
    return documents_ > 1 ? last_upto(ends, documents_ - 1, sequence) : -1;
}

std::vector<int64_t> TokenFile::document_begins() const {
    if (!index_) return {};
    const DataFile& file = *index_;
    const int64_t offsets = index_header + 4 * sequences_, ends = offsets + 8 * sequences_;
    if (documents_ < 2) refuse(file, ends, "it has no ends of documents", whole);
    std::vector<int64_t> begins(static_cast<size_t>(sequences_)), documents(static_cast<size_t>(documents_));
    file.read(-1, offsets, begins.data(), 8 * sequences_);
    file.read(-1, ends, documents.data(), 8 * documents_);
    begins.push_back(tokens_ * width_);
    int64_t before = 0;
    for (size_t i = 0; i < documents.size(); ++i) {
        int64_t& of = documents[i];
        if (of < 0 || of > sequences_ || (i == 0 && of != 0))
            refuse(file, ends + 8 * static_cast<int64_t>(i),
                   "document " + text(static_cast<int64_t>(i)) + " begins with sequence " + text(of) + " of " +
                       text(sequences_),
                   whole);
        of = begins[static_cast<size_t>(of)] / width_;
        if (of < before || of > tokens_)
            refuse(file, ends + 8 * static_cast<int64_t>(i),
                   "document " + text(static_cast<int64_t>(i)) + " begins with token " + text(of) +
                       ", the one before it with " + text(before),
                   whole);
        before = of;
    }
    return documents;
}

std::string TokenFile::digest() { return ids_.digest() + (mask_ ? "-" + mask_->digest() : ""); }

std::string TokenFile::require_unchanged() {
    const std::string said = ids_.require_unchanged();
    if (!mask_) return said;
    const std::string more = mask_->require_unchanged();
    return said + (said.empty() || more.empty() ? "" : "\n") + more;
}

}  // namespace sequences
