// Where the ids of a file are: at its beginning, after llm.c's header, or as Megatron's index and mask say.
#pragma once
#include <optional>
#include <string>

#include "orrery/data.h"

namespace sequences {

/// A number in a message.
inline std::string text(int64_t number) { return std::to_string(number); }

/// An opened file of ids with its index and mask, if any.
class TokenFile {
public:
    /// `width`: bytes of an id unless the file says; `plain`: the file has ids only. Throws Error, naming file and
    /// byte, when header, index or mask are truncated, damaged, of an unsupported type, or of another file.
    TokenFile(const std::string& path, int64_t width, bool plain, const orrery::Origin& asked);

    int64_t tokens() const { return tokens_; }
    int64_t width() const { return width_; }  ///< 1, 2 or 4 bytes, little-endian
    bool says_width() const { return says_width_; }
    int64_t bytes() const { return ids_.bytes(); }
    int64_t byte_of(int64_t token) const { return begin_ + token * width_; }
    const std::string& path() const { return ids_.path(); }

    /// Reads the ids [from, from + count) as they are stored, for sample `sample`; -1: for none.
    void read(int64_t sample, int64_t from, int64_t count, unsigned char* to) const;
    bool has_mask() const { return mask_.has_value(); }
    /// Sets the targets that the mask ignores to -1; the first is token `from`.
    void ignore(int64_t sample, int64_t from, int64_t count, int32_t* targets) const;
    /// The document of a token, -1 when unknown.
    int64_t document_of(int64_t token) const;
    /// The first token of each document of the index, and the number of tokens; empty without an index. Reads the whole
    /// index.
    std::vector<int64_t> document_begins() const;

    std::string digest();
    std::string require_unchanged();

private:
    void read_index(const std::string& bin);
    void check_sequences(int64_t last_length);
    void open_mask(const std::string& path);
    void refuse_index(const std::string& path) const;
    bool read_header();
    template <class T>
    T number(const orrery::DataFile& file, int64_t at) const;
    [[noreturn]] void refuse(const orrery::DataFile& file, int64_t at, const std::string& why,
                             const std::string& remedy) const;

    orrery::Origin asked_;
    orrery::DataFile ids_;
    std::optional<orrery::DataFile> index_, mask_;
    int64_t begin_ = 0, width_, tokens_ = 0;
    bool says_width_ = false;
    int64_t sequences_ = 0, documents_ = 0;  ///< in the index
};

}  // namespace sequences
