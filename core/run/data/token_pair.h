#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files/atomic_file.h"

namespace orrery {

/// Opens a token file for writing. Throws Error, Fault::usage, if it cannot be created or if its path is taken by
/// something that is not a regular file.
void begin_tokens(AtomicFile& file);

/// Writes Megatron's pair of token files: NAME.bin has the ids of all documents, NAME.idx the length and offset of each
/// (Megatron-LM, IndexedDataset: version 1, one sequence per document). If some tokens are not targets, NAME.mask has a
/// bit for each token, lowest bit first. The files are written under temporary names and renamed together at the end.
class TokenPair {
public:
    /// `token_bytes`: bytes per id in NAME.bin: 2 for u16, 4 for i32. Throws Error if the files cannot be created.
    TokenPair(const std::string& name, int token_bytes, bool mask);

    /// Adds a document; its first `ignored` tokens are not targets. Throws Fault::failed if the disk is full.
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
    uint8_t last_bits_ = 0;  ///< last byte of the mask, until its eight bits are known
};

}  // namespace orrery
