#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"
#include "run/evaluate/token_text.h"

namespace orrery {

/// A multiple-choice question: a context and possible endings, one of which is right.
struct MultipleChoice {
    std::string context;
    std::vector<std::string> endings;
    int64_t label = 0;  ///< index of the right ending
    Origin where;
};

/// Parses a line of JSON: {"context": "...", "endings": ["...", ...], "label": 0}. Ignores other keys. Throws Error
/// naming `where`.
MultipleChoice parse_choice(std::string_view line, const Origin& where);

/// The tokens of a context followed by an ending.
struct EncodedEnding {
    std::vector<int32_t> ids;
    int64_t scored = 0;  ///< number of tokens at the end that belong to the ending
};

/// Encodes a context and one of its endings as lm-eval's HFLM does. `delimiter` is put between them and belongs to the
/// ending. Throws Error if the ending has no token, or more than `positions` tokens.
EncodedEnding encode_ending(const TokenText& tokens, const MultipleChoice& choice, size_t ending,
                            std::string_view delimiter, int64_t positions);

/// Fills a program's input row with the last tokens of `ending` that fit. Targets are -1 except for the ending's.
void fill_row(const EncodedEnding& ending, std::span<int32_t> tokens, std::span<int32_t> targets);

/// Indices of the endings that a model chooses: by log-likelihood, and by log-likelihood per character. The first of
/// equally likely endings is chosen.
struct Chosen {
    int64_t plain = 0, normed = 0;
};
Chosen chosen_of(const MultipleChoice& choice, std::span<const double> log_likelihoods);

}  // namespace orrery
