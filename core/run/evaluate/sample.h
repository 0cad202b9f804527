#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "run/evaluate/token_text.h"
#include "run/script_interface.h"
#include "run/session.h"

namespace orrery {

/// A logits program with fewer positions than the session's, compiled when first needed.
struct ShorterWindow {
    int64_t positions = 0;
    std::function<std::shared_ptr<const CompiledProgram>()> compile;
};

struct SampledText {
    std::string text;    ///< includes the prompt, if any
    bool ended = false;  ///< at an end-of-text token, which is not part of the text
    std::string end;     ///< how TokenText prints that token
};

/// Samples token by token from the `logits` program of a one-rank session: the last tokens go in, the last token's row
/// of logits comes out. While the text fits a window of `shorter` (ascending), that program runs instead of the full
/// one; results differ only by rounding. Rows without a token are never drawn; an end-of-text token ends the text. The
/// same seed gives the same text. `say` receives the text in whole characters as it grows. Throws Error if the prompt
/// has ids without a token.
SampledText sample_text(Session& session, const SampleOptions& options, const TokenText& tokens,
                        std::vector<ShorterWindow> shorter = {}, const std::function<void(std::string_view)>& say = {});

}  // namespace orrery
