#include "readings.h"

#include <algorithm>
#include <optional>

namespace sequences {

namespace {

using Bytes = std::vector<unsigned char>;

constexpr int64_t most_bytes = 1 << 20;  ///< that are examined
/// fewer may occur by chance, with a probability of at least 1 in 65,536 for each
constexpr int64_t least_others = 16;
constexpr int64_t shown = 8;  ///< ids in a message

struct Reading {
    int64_t width;
    bool big_endian = false;
};

int64_t id_at(const Bytes& bytes, const Reading& reading, int64_t at) {
    uint64_t id = 0;
    for (int64_t i = 0; i < reading.width; ++i) {
        const int64_t of = reading.big_endian ? i : reading.width - 1 - i;
        id = id << 8 | bytes[static_cast<size_t>(at * reading.width + of)];
    }
    return static_cast<int64_t>(id);
}

int64_t count_of(const Bytes& bytes, const Reading& reading) {
    return static_cast<int64_t>(bytes.size()) / reading.width;
}

std::string named(const Reading& reading) {
    return "ids of " + std::to_string(reading.width) + (reading.width == 1 ? " byte" : " bytes") +
           (reading.big_endian ? ", big-endian" : "");
}

/// "ids of 4 bytes: 17, 300, 5, ..."
std::string first_ids(const Bytes& bytes, const Reading& reading) {
    std::string text = named(reading) + ": ";
    const int64_t count = std::min(count_of(bytes, reading), shown);
    for (int64_t i = 0; i < count; ++i) text += std::to_string(id_at(bytes, reading, i)) + ", ";
    return text + "...";
}

bool all_below(const Bytes& bytes, const Reading& reading, int64_t ids) {
    const int64_t count = count_of(bytes, reading);
    for (int64_t i = 0; i < count; ++i)
        if (id_at(bytes, reading, i) >= ids) return false;
    return count > 0;
}

/// Number of numbers of `width` bytes at even (or odd) places that are above `high`.
int64_t above(const Bytes& bytes, int64_t width, bool odd, int64_t high) {
    int64_t count = 0;
    for (int64_t i = odd ? 1 : 0; i < count_of(bytes, {width}); i += 2)
        if (id_at(bytes, {width}, i) > high) ++count;
    return count;
}

/// Detects ids of twice the width: every second number is a high half, and the others are not.
std::optional<Reading> wider(const Bytes& bytes, int64_t width, int64_t high) {
    const int64_t even = above(bytes, width, false, high), odd = above(bytes, width, true, high);
    if (odd == 0 && even >= least_others) return Reading{2 * width, false};
    if (even == 0 && odd >= least_others) return Reading{2 * width, true};
    return std::nullopt;
}

std::string remedy(const Reading& reading, bool of_8) {
    const std::string stated = "set data.token_bytes = 2 if the first list is right";
    if (of_8) return "ids of 8 bytes are not supported: write them as 4 bytes, little-endian; or " + stated;
    if (reading.big_endian) return "big-endian is not supported: write the ids as little-endian; or " + stated;
    return "set data.token_bytes = 4, or 2 if the first list is right";
}

}  // namespace

Bytes begin_of(const TokenFile& file) {
    const int64_t count = std::min(file.tokens(), most_bytes / file.width());
    Bytes bytes(static_cast<size_t>(count * file.width()));
    if (count > 0) file.read(-1, 0, count, bytes.data());
    return bytes;
}

std::string width_problem(const Bytes& bytes, int64_t ids) {
    constexpr int64_t usual = 1 << 20;  // assumed when the vocabulary is unknown
    const int64_t high = ((ids > 0 ? ids : usual) - 1) >> 16;
    std::optional<Reading> found = wider(bytes, 2, high);
    if (!found) return "";
    const bool of_8 = !found->big_endian && wider(bytes, 4, 0).has_value();
    if (of_8) found->width = 8;
    const std::string what = high == 0 ? "0" : "below " + std::to_string(high + 1);
    return "data.token_bytes is not set, and read as ids of 2 bytes every second one is " + what + ", as in " +
           named(*found) + "\n  " + first_ids(bytes, {2}) + "\n  " + first_ids(bytes, *found) + "\n  " +
           remedy(*found, of_8);
}

std::string other_reading(const Bytes& bytes, int64_t width, int64_t ids) {
    for (const Reading& reading : {Reading{2}, Reading{4}, Reading{2, true}, Reading{4, true}, Reading{1}}) {
        const bool is_it = reading.width == width && !reading.big_endian;
        const bool always = reading.width == 1 && ids > 256;
        if (is_it || always || !all_below(bytes, reading, ids)) continue;
        const std::string text = "\n  in range if read as " + first_ids(bytes, reading) + "\n  ";
        if (reading.big_endian) return text + "if these are the ids, write them as little-endian";
        if (reading.width == 1) return text + "if these are the ids, give the file a name that does not end in .bin";
        return text + "if these are the ids, set data.token_bytes = " + std::to_string(reading.width);
    }
    return "";
}

}  // namespace sequences
