#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"

namespace orrery {

/// Begins a file of tokens. Throws Error, Fault::usage, where it cannot be made, or what has its name is not a file.
void begin_tokens(AtomicFile& file);

/// Megatron's pair of files: NAME.bin, the ids of all documents one after the other, and NAME.idx, how long each is and
/// where it begins (Megatron-LM, IndexedDataset: version 1, a sequence a document). Beside them NAME.mask, a bit a
/// token from the lowest on, where some tokens are no targets. All three, or none, have their names in the end.
class TokenPair {
public:
    /// `token_bytes`: 2 for u16, 4 for i32. Throws Error if the files cannot be created.
    TokenPair(const std::string& name, int token_bytes, bool mask);

    /// Adds a document whose first `ignored` tokens are not targets. Throws Fault::failed if the disk is full.
    void add(std::span<const int32_t> ids, int64_t ignored = 0);
    void finish();

    int64_t tokens() const { return tokens_; }
    int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }

private:
    void write_index();
    void write_mask(int64_t tokens, bool ignored);

    int token_bytes_;
    bool mask_;
    AtomicFile bin_, idx_, bits_;
    std::vector<int32_t> lengths_;
    std::vector<char> bytes_;
    int64_t tokens_ = 0;
    uint8_t last_bits_ = 0;  ///< the last byte of the mask, not yet full
};

}  // namespace orrery
