#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "run/evaluate/token_text.h"
#include "run/script_interface.h"
#include "run/session.h"

namespace orrery {

/// A logits program of fewer positions than the session's own, compiled when it is first needed.
struct ShorterWindow {
    int64_t positions = 0;
    std::function<std::shared_ptr<const CompiledProgram>()> compile;
};

struct SampledText {
    std::string text;    ///< with the prompt, where one was given
    bool ended = false;  ///< at an end of text, which is not shown
    std::string end;     ///< what TokenText says of it
};

/// Draws token by token from the `logits` program of a one-rank session: the last tokens go in, the row of the last one
/// comes out. While the text is shorter than one of `shorter` (ascending), that one runs instead of the whole window:
/// the same but for rounding. Rows that stand for no token are never drawn; a token that ends a text ends this one.
/// Same seed, same text. `say`: gets the text in whole characters as it grows. Throws Error when the prompt is none of
/// such tokens.
SampledText sample_text(Session& session, const SampleOptions& options, const TokenText& tokens,
                        std::vector<ShorterWindow> shorter = {}, const std::function<void(std::string_view)>& say = {});

}  // namespace orrery
