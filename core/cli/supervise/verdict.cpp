#include "cli/supervise/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace orrery {
namespace {

std::string name_of(int64_t rank) { return fmt::format("rank {}", rank); }

bool stopped(const RankEnd& end) { return end.code == 75 || end.code == 130; }

/// The first line, without the "[rank 1] " of who says it.
std::string first_line(const std::string& text) {
    const std::string line = text.substr(0, text.find('\n'));
    const size_t end = line.starts_with("[rank ") ? line.find("] ") : std::string::npos;
    return end == std::string::npos ? line : line.substr(end + 2);
}

template <class Which>
const RankEnd* first(const std::vector<RankEnd>& ends, Which which) {
    const auto at = std::find_if(ends.begin(), ends.end(), which);
    return at == ends.end() ? nullptr : &*at;
}

}  // namespace

std::string blamed(const std::string& text) {
    for (size_t at = 0; (at = text.find("rank ", at)) != std::string::npos; at += 5) {
        char* end = nullptr;
        const long long rank = std::strtoll(text.c_str() + at + 5, &end, 10);
        if (end != text.c_str() + at + 5 && *end != ']' && *end != ':') return name_of(rank);
    }
    return "";
}

Ended verdict(const std::vector<RankEnd>& ends, int64_t step, int code, bool no_memory) {
    const auto killed = [](const RankEnd& e) { return e.signal != 0 && !e.late; };
    if (const RankEnd* e = first(ends, killed)) {
        const bool memory = no_memory && e->signal == 9;
        return {memory ? Cause::memory : Cause::process, code, name_of(e->rank),
                fmt::format("was killed by signal {} ({}){}", e->signal, ::strsignal(e->signal),
                            memory ? ", as the system had no more memory" : ""),
                step};
    }
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.signal == 0 && e.code == 0 && !e.done; }))
        return {Cause::early_end, code, name_of(e->rank), "ended with exit code 0 before its end", step};
    const auto own = [](const RankEnd& e) {
        return e.signal == 0 && e.code != 0 && !stopped(e) && e.fault.value_or(Fault::failed) != Fault::peer;
    };
    if (const RankEnd* e = first(ends, own)) {
        const bool mistake = e->code == 2 || e->fault == Fault::usage;
        return {mistake    ? Cause::mistake
                : e->fault ? Cause::error
                           : Cause::process,
                code, name_of(e->rank),
                e->why.empty() ? fmt::format("ended with exit code {}", e->code) : "failed: " + first_line(e->why),
                step};
    }
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.late && e.state == 'T'; }))
        return {Cause::hang, code, name_of(e->rank), "was stopped (SIGSTOP)", step};
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.late && e.state == 'D'; }))
        return {Cause::storage, code, name_of(e->rank), "waited for a disk that does not answer", step};
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.fault == Fault::peer; })) {
        const std::string who = blamed(e->why);
        Ended heard{Cause::hang, code, who.empty() ? name_of(e->rank) : who, "does not answer: " + first_line(e->why),
                    step};
        heard.hearsay = true;
        return heard;
    }
    if (const RankEnd* e = first(ends, stopped)) return {Cause::stopped, code, name_of(e->rank), "was stopped", step};
    if (const RankEnd* e = first(ends, [](const RankEnd& e) { return e.late; }))
        return {Cause::hang, code, name_of(e->rank), "did not end in time", step};
    return {Cause::done, code, "", "", step};
}

}  // namespace orrery
