// Detects bytes that are ids of another width or byte order.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "token_file.h"

namespace sequences {

/// The file's first MiB of ids, as stored.
std::vector<unsigned char> begin_of(const TokenFile& file);

/// Why these bytes are unlikely to be ids of 2 bytes, which is the default: every second number of 2 bytes is at most
/// the high half of an id below `ids` (0: unknown), and at least 16 of the others are larger. "" when they may be.
std::string width_problem(const std::vector<unsigned char>& bytes, int64_t ids);

/// "\n  in range if read as ids of 4 bytes: ..." for the first other reading in which all are below `ids`, else "".
std::string other_reading(const std::vector<unsigned char>& bytes, int64_t width, int64_t ids);

}  // namespace sequences
