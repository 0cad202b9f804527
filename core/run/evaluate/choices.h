#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"
#include "run/evaluate/token_text.h"

namespace orrery {

/// A context, endings of which one is right, and which.
struct MultipleChoice {
    std::string context;
    std::vector<std::string> endings;
    int64_t label = 0;
    Origin where;
};

/// Of a line of JSON: {"context": "...", "endings": ["...", ...], "label": 0}; other keys do not matter. Throws Error
/// at `where`.
MultipleChoice parse_choice(std::string_view line, const Origin& where);

/// A row: a context and an ending behind it, of which the last `scored` tokens are the ending's.
struct EncodedEnding {
    std::vector<int32_t> ids;
    int64_t scored = 0;
};

/// As lm-eval's HFLM: `delimiter` stands between both and belongs to the ending. Throws Error
/// where the ending has no token, or more than `positions`.
EncodedEnding encode_ending(const TokenText& tokens, const MultipleChoice& choice, size_t ending,
                            std::string_view delimiter, int64_t positions);

/// The row's last tokens, as many as there are places; targets of the ending alone.
void fill_row(const EncodedEnding& ending, std::span<int32_t> tokens, std::span<int32_t> targets);

/// Which ending a model takes: of log-likelihoods, and of those by characters. The first of equals.
struct Chosen {
    int64_t plain = 0, normed = 0;
};
Chosen chosen_of(const MultipleChoice& choice, std::span<const double> log_likelihoods);

}  // namespace orrery
