#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/regular_file.h"
#include "orrery/error.h"

namespace orrery {

/// A text with its origin: a file, or a line of a file of JSON lines.
struct Document {
    std::string text;
    Origin where;
};

/// Reads the documents of files and of standard input ("-") in order: one per file, or one per line.
class Documents {
public:
    Documents(std::vector<std::string> files, bool lines) : files_(std::move(files)), lines_(lines) {}

    /// Reads the next documents: 16 MiB of text, or a single larger one; false if there are no more. Blank lines are
    /// skipped. Throws Error for files that cannot be read or are empty.
    bool next(std::vector<Document>& batch);

private:
    bool open();
    size_t read(char* out, size_t bytes);
    void whole(std::vector<Document>& batch);
    bool line(std::vector<Document>& batch);

    std::vector<std::string> files_;
    bool lines_;
    size_t file_ = 0;
    std::unique_ptr<RegularFile> in_;  ///< the current file; null: standard input
    bool open_ = false, ended_ = false;
    int64_t offset_ = 0;
    int line_ = 0;
    std::string waiting_;  ///< text that was read but not returned yet
    size_t given_ = 0;     ///< bytes of `waiting_` that have been returned
};

}  // namespace orrery
