#include "control/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

#include "base/text.h"

namespace orrery {
namespace {

constexpr size_t max_word = 32;

bool is_site(const std::string& word) {
    const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
    return word.size() <= max_word && std::all_of(word.begin(), word.end(), fits);
}

}  // namespace

const char* text_of(Cause cause) {
    switch (cause) {
        case Cause::done: return "done";
        case Cause::stopped: return "stopped";
        case Cause::mistake: return "mistake";
        case Cause::error: return "error";
        case Cause::process: return "process";
        case Cause::memory: return "memory";
        case Cause::early_end: return "early end";
        case Cause::hang: return "hang";
        case Cause::storage: return "storage";
        case Cause::node: return "node";
    }
    return "";
}

std::string subject_of(const Loss& loss) {
    if (loss.rank >= 0) return fmt::format("rank {}", loss.rank);
    return loss.node >= 0 ? fmt::format("node {}", loss.node) : "";
}

Message sentence_of(const Loss& loss) {
    const std::string subject = subject_of(loss);
    return subject.empty() ? loss.text : subject + " " + loss.text;
}

bool same_failure(const Loss& one, const Loss& other) {
    const bool of_all = one.cause == Cause::error || one.cause == Cause::mistake;
    return one.cause == other.cause && one.site == other.site && one.step == other.step && one.code == other.code &&
           (of_all || (one.rank == other.rank && one.node == other.node && (one.rank >= 0 || one.node >= 0)));
}

std::string encode(const Loss& loss) {
    return fmt::format("{} {} {} {} {} {} {} {} {}\n{}", static_cast<int>(loss.cause), loss.code, loss.rank, loss.node,
                       loss.pid, loss.step, static_cast<int>(loss.hearsay), loss.nonce, loss.site, loss.text.shown());
}

Loss decode_loss(std::string_view text) {
    const size_t line = std::min(text.find('\n'), text.size());
    const std::vector<std::string> words = split(text.substr(0, line), ' ');
    int64_t numbers[7] = {};
    bool good = words.size() == 9;
    for (size_t i = 0; good && i < std::size(numbers); ++i) {
        const char* end = words[i].data() + words[i].size();
        const auto [at, problem] = std::from_chars(words[i].data(), end, numbers[i]);
        good = problem == std::errc() && at == end;
    }
    const auto [cause, code, rank, node, pid, step, hearsay] = numbers;
    if (!good || cause < 0 || cause > static_cast<int64_t>(Cause::node) || code != (code & 255) ||
        words[7].size() > max_word || !is_site(words[8]))
        throw Error("rendezvous: malformed failure report of a rank", Fault::peer);
    return {.cause = static_cast<Cause>(cause),
            .rank = rank,
            .node = node,
            .pid = pid,
            .nonce = words[7],
            .code = static_cast<int>(code),
            .step = step,
            .site = words[8],
            .hearsay = hearsay != 0,
            .text = std::string(text.substr(std::min(line + 1, text.size())))};
}

}  // namespace orrery
