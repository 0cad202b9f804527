#include "cli/supervise/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace orrery {
namespace {

constexpr int code_of_mistake = 2;

bool stopped(const RankEnd& end) { return end.code == 75 || end.code == 130; }
bool hearsay(const RankEnd& end) { return end.told && end.told->hearsay; }

template <class Which>
const RankEnd* first(const std::vector<RankEnd>& ends, Which which) {
    const auto at = std::find_if(ends.begin(), ends.end(), which);
    return at == ends.end() ? nullptr : &*at;
}

}  // namespace

Loss verdict(const std::vector<RankEnd>& ends, int64_t step, int code, bool no_memory) {
    const auto loss = [&](Cause cause, const RankEnd& e, const std::string& site, const Message& text) {
        return Loss{.cause = cause, .rank = e.rank, .code = code, .step = step, .site = site, .text = text};
    };
    const auto killed = [](const RankEnd& e) { return e.signal != 0 && !e.late; };
    if (const RankEnd* e = first(ends, killed)) {
        const bool memory = no_memory && e->signal == 9;
        return loss(memory ? Cause::memory : Cause::process, *e, fmt::format("signal-{}", e->signal),
                    fmt::format("was killed by signal {} ({}){}", e->signal, ::strsignal(e->signal),
                                memory ? ", since the system was out of memory (OOM killer)" : ""));
    }
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.signal == 0 && e.code == 0 && !e.done; }))
        return loss(Cause::early_end, *e, "exit", "exited with code 0 before the run was complete");
    const auto own = [](const RankEnd& e) { return e.signal == 0 && e.code != 0 && !stopped(e) && !hearsay(e); };
    if (const RankEnd* e = first(ends, own)) {
        const bool mistake = e->code == code_of_mistake || (e->told && e->told->cause == Cause::mistake);
        Loss found =
            loss(mistake   ? Cause::mistake
                 : e->told ? Cause::error
                           : Cause::process,
                 *e, e->told ? e->told->site : "exit",
                 e->told ? "failed: " + e->told->text.first_line() : fmt::format("ended with exit code {}", e->code));
        if (mistake) found.code = code_of_mistake;  // another rank that learned of the error may exit before, with 1
        return found;
    }
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.late && e.state == 'T'; }))
        return loss(Cause::hang, *e, "stopped", "was stopped (SIGSTOP)");
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.late && e.state == 'D'; }))
        return loss(Cause::storage, *e, "disk", "waited for a disk that does not answer");
    if (const RankEnd* e = first(ends, hearsay)) {
        const bool named = e->told->rank >= 0 || e->told->node >= 0;
        const Message line = e->told->text.first_line();
        Loss heard = loss(Cause::hang, *e, e->told->site, named ? "does not answer: " + line : line);
        heard.rank = e->told->rank;  // -1 if it does not know which: not the rank that reports it
        heard.node = e->told->node;
        heard.hearsay = true;
        return heard;
    }
    if (const RankEnd* e = first(ends, stopped)) return loss(Cause::stopped, *e, "", "was stopped");
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.late; }))
        return loss(Cause::hang, *e, "late", "did not end in time");
    return {.code = code, .step = step};
}

}  // namespace orrery
