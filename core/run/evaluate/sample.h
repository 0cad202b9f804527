#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "run/evaluate/token_text.h"
#include "run/script_interface.h"
#include "run/session.h"

namespace orrery {

/// A logits program with fewer positions than the session's, compiled at its first use.
struct ShorterWindow {
    int64_t positions = 0;
    std::function<std::shared_ptr<const CompiledProgram>()> compile;
};

struct SampledText {
    std::string text;    ///< the prompt, if any, and the sampled text
    bool ended = false;  ///< whether an end-of-text token ended it; that token is not in `text`
    std::string end;     ///< names of the end-of-text tokens, from TokenText::end
};

/// Samples token by token from the `logits` program of a one-rank session, until an end-of-text token or
/// options.tokens. While the text fits a program of `shorter` (ascending), that one runs instead of the full one;
/// results differ only by rounding. Ids without a token are never drawn. The same seed gives the same text. `say`
/// receives the text as it grows, in whole characters. Blocks. Throws Error if the prompt cannot be encoded,
/// or if the program needs an input that does not follow from the text (DocumentRow).
SampledText sample_text(Session& session, const SampleOptions& options, const TokenText& tokens,
                        std::vector<ShorterWindow> shorter = {}, const std::function<void(std::string_view)>& say = {});

}  // namespace orrery
