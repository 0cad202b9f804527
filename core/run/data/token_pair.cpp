#include "run/data/token_pair.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "base/regular_file.h"
#include "orrery/error.h"

namespace orrery {

void begin_tokens(AtomicFile& file) {
    if (const RegularFile there(file.path()); there.there() && !there.problem().empty())
        throw Error(fmt::format("token file {} {}", file.path(), there.problem()));
    file.open(Fault::usage);
}

TokenPair::TokenPair(const std::string& name, int token_bytes, bool mask)
    : token_bytes_(token_bytes), mask_(mask), bin_(name + ".bin"), idx_(name + ".idx"), bits_(name + ".mask") {
    begin_tokens(bin_);
    begin_tokens(idx_);
    if (mask_) begin_tokens(bits_);
}

void TokenPair::add(std::span<const int32_t> ids, int64_t ignored) {
    const auto length = static_cast<int64_t>(ids.size());
    if (length > INT32_MAX)
        throw Error(fmt::format("document {} has {} tokens, the maximum is {}: split the document", documents(), length,
                                INT32_MAX));
    const auto each = static_cast<size_t>(token_bytes_);
    bytes_.resize(ids.size() * each);
    for (size_t i = 0; i < ids.size(); ++i) std::memcpy(bytes_.data() + i * each, &ids[i], each);
    bin_.write({bytes_.data(), bytes_.size()});
    if (mask_) {
        write_mask(ignored, true);
        write_mask(length - ignored, false);
    } else {
        tokens_ += length;
    }
    lengths_.push_back(static_cast<int32_t>(length));
}

void TokenPair::write_mask(int64_t tokens, bool ignored) {
    for (int64_t i = 0; i < tokens; ++i) {
        last_bits_ = static_cast<uint8_t>(last_bits_ | (ignored ? 1u << tokens_ % 8 : 0u));
        if (++tokens_ % 8 != 0) continue;
        bits_.write({reinterpret_cast<const char*>(&last_bits_), 1});
        last_bits_ = 0;
    }
}

/// Writes the .idx file: "MMIDIDX\0\0", version, type code, number of sequences and of document ends; then lengths,
/// offsets and document ends.
void TokenPair::write_index() {
    const auto put = [&](const auto& value) { idx_.write({reinterpret_cast<const char*>(&value), sizeof value}); };
    const char magic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
    put(magic);
    put(uint64_t{1});
    put(static_cast<uint8_t>(token_bytes_ == 2 ? 8 : 4));  // Megatron's codes of uint16 and int32
    put(static_cast<uint64_t>(lengths_.size()));
    put(static_cast<uint64_t>(lengths_.size() + 1));
    idx_.write({reinterpret_cast<const char*>(lengths_.data()), lengths_.size() * sizeof(int32_t)});
    int64_t offset = 0;
    for (const int32_t length : lengths_) {
        put(offset);
        offset += static_cast<int64_t>(length) * token_bytes_;
    }
    for (int64_t i = 0; i <= documents(); ++i) put(i);
}

void TokenPair::finish() {
    if (mask_ && tokens_ % 8 != 0) bits_.write({reinterpret_cast<const char*>(&last_bits_), 1});
    write_index();
    std::vector<AtomicFile*> files{&idx_, &bin_};
    if (mask_) files.insert(files.begin(), &bits_);
    for (AtomicFile* file : files) file->close(true);
    // The .bin file is renamed last: without an .idx file it would be read as a headerless file whose tokens are all
    // targets. An existing .bin and an older mask are removed first.
    ::unlink(bin_.path().c_str());
    if (!mask_) ::unlink(bits_.path().c_str());
    for (AtomicFile* file : files) file->name(true);
}

}  // namespace orrery
