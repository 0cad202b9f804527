#include "control/commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/json.h"

namespace orrery {

// The order of a save. Work is in capitals where rank 0 alone does it; arrows are rounds with their topics.
//
//   check     -> to all ranks                             only if states are checked
//   MAKE_WAY  -> from rank 0 (begin)
//   write     -> to rank 0 (report)   JUDGE, PUBLISH     -> from rank 0 (verdict)
//   read_back -> to rank 0 (read)     RETIRE             -> from rank 0 (end)      good, or unretired
//
// A failed check or MAKE_WAY ends the save. After a failed write, JUDGE or PUBLISH (followed by LOOK) the verdict is
// sent at once, and rank 0 does DISCARD. After a failed read_back rank 0 does TAKE_BACK instead of RETIRE. If JUDGE
// finds replicas that differ, the verdict is `disputed`, and one more pair of rounds finds the ranks before DISCARD:
//
//   vote      -> to rank 0 (votes)    BLAME              -> from rank 0 (blame)

namespace {

using Action = CommitAction::Kind;
using Left = CommitVerdict::Left;

/// Topics of communication rounds. A message is '+' and a report or votes, or '-' and a failed verdict as JSON.
namespace round {
constexpr std::string_view sound = "sound", begin = "begin", report = "report", verdict = "verdict", votes = "votes",
                           blame = "blame", read = "read", end = "end";
}  // namespace round

template <class Enum>
Enum one_of(const Json& number, Enum last) {
    const int64_t value = whole_number(number, "an end of a save");
    if (value > static_cast<int64_t>(last)) throw std::invalid_argument(fmt::format("{} is no end of a save", value));
    return static_cast<Enum>(value);
}

bool is_well(const CommitVerdict& verdict) { return verdict.end == CommitEnd::open || verdict.end == CommitEnd::good; }

std::string word_of(const CommitVerdict& verdict, const std::string& more = {}) {
    if (is_well(verdict)) return "+" + more;
    return "-" + message_text({{"end", verdict.end},
                               {"step", verdict.step},
                               {"rank", verdict.rank},
                               {"object", verdict.object},
                               {"why", verdict.why},
                               {"left", verdict.left},
                               {"left_why", verdict.left_why}});
}

/// Parses a rank's message in a save, with `end` = `open` for a report of success. Throws std::exception if malformed.
CommitVerdict verdict_of(std::string_view word, int64_t step) {
    CommitVerdict verdict{.step = step};
    if (word.starts_with('+')) return verdict;
    if (!word.starts_with('-')) throw std::invalid_argument("neither good nor bad");
    const Json json = parse_json(word.substr(1), {"", "a message of another rank", 0, 0});
    verdict.end = one_of(json.at("end"), CommitEnd::good);
    verdict.rank = json.at("rank").get<int64_t>();
    verdict.object = json.at("object").get<std::string>();
    verdict.why = json.at("why").get<std::string>();
    verdict.left = one_of(json.at("left"), Left::unknown);
    verdict.left_why = json.at("left_why").get<std::string>();
    if (is_well(verdict)) throw std::invalid_argument("good and bad");
    if (json.at("step") != step) throw std::invalid_argument("it is of step " + json.at("step").dump());
    return verdict;
}

std::string left_of(const CommitVerdict& verdict) {
    switch (verdict.left) {
        case Left::nothing: return "";
        case Left::step: return "\n  the step is there all the same, and may not outlive a power cut";
        case Left::unknown: return "\n  whether the step is there cannot be seen: " + verdict.left_why;
    }
    return "";
}

}  // namespace

std::string CommitVerdict::text(const std::string& task) const {
    switch (end) {
        case CommitEnd::open:
        case CommitEnd::good: return "";
        case CommitEnd::given_up: return task + " was given up: " + why;
        case CommitEnd::blocked: return fmt::format("{} failed on rank {}: {}", task, rank, why);
        case CommitEnd::unretired:
            return fmt::format("{} is complete, but removing older checkpoints failed on rank {}: {}", task, rank, why);
        case CommitEnd::unread:
        case CommitEnd::uncovered:
            return fmt::format("{} failed verification on rank {}: {}{}\n  it {}, earlier checkpoints are unchanged",
                               task, rank,
                               end == CommitEnd::uncovered ? "the written files do not cover all values: " : "", why,
                               left == Left::nothing ? "was removed" : "could not be removed (" + left_why + ")");
        default: break;
    }
    return fmt::format("{} failed: {}{}{}\n  earlier checkpoints are unchanged", task,
                       rank < 0 ? "" : fmt::format("on rank {}: ", rank), why, left_of(*this));
}

Commit::Commit(const Options& options) : options_(options), verdict_{.step = options.step} {
    if (options_.checks)
        enter(Action::check);
    else
        begin();
}

void Commit::enter(Action kind, std::string text, std::string_view topic) {
    action_ = {kind, topic, std::move(text), {}};
}

void Commit::begin() { first() ? enter(Action::make_way) : tell(round::begin); }

void Commit::tell(std::string_view topic) { enter(Action::from_first, first() ? word_of(verdict_) : "", topic); }

void Commit::fail(CommitEnd end, const std::string& why) {
    verdict_.end = end;
    verdict_.rank = options_.rank;
    verdict_.why = why;
}

void Commit::finish(const CommitVerdict& verdict) {
    verdict_ = verdict;
    enter(Action::over);
}

void Commit::done(const CommitAnswer& answer) {
    const bool failed = !answer.problem.empty();
    switch (action_.kind) {
        case Action::check:
            if (failed) fail(CommitEnd::unsound, answer.problem);
            return enter(Action::to_all, word_of(verdict_), round::sound);
        case Action::make_way:
            if (failed) fail(CommitEnd::blocked, answer.problem);
            return tell(round::begin);
        case Action::write:
            if (failed) fail(CommitEnd::unwritten, answer.problem);
            return enter(Action::to_first, word_of(verdict_, answer.text), round::report);
        case Action::judge:
            if (failed) {
                fail(CommitEnd::refused, answer.problem);
                verdict_.rank = -1;  // no single rank: the problem names those at fault
            } else if (!answer.text.empty()) {
                fail(CommitEnd::disputed, answer.text);
                verdict_.rank = -1;
            } else {
                return enter(Action::publish);
            }
            return tell(round::verdict);
        case Action::publish:
            if (!failed) return tell(round::verdict);
            fail(CommitEnd::unpublished, answer.problem);
            return enter(Action::look);
        case Action::look:
            verdict_.left = failed ? Left::unknown : answer.there ? Left::step : Left::nothing;
            verdict_.left_why = answer.problem;
            return tell(round::verdict);
        case Action::vote:
            return enter(Action::to_first,
                         !failed ? "+" + answer.text
                                 : word_of({.end = CommitEnd::disputed,
                                            .step = options_.step,
                                            .rank = options_.rank,
                                            .why = answer.problem}),
                         round::votes);
        case Action::blame: verdict_.why = failed ? answer.problem : answer.text; return tell(round::blame);
        case Action::discard: return enter(Action::over);  // a failed discard is repeated by the next save of the step
        case Action::read_back:
            if (failed) fail(answer.uncovered ? CommitEnd::uncovered : CommitEnd::unread, answer.problem);
            verdict_.object = failed ? answer.object : "";
            return enter(Action::to_first, word_of(verdict_), round::read);
        case Action::take_back:
            verdict_.left = failed ? Left::step : Left::nothing;
            verdict_.left_why = answer.problem;
            return tell(round::end);
        case Action::retire:
            if (failed) fail(CommitEnd::unretired, answer.problem);
            return tell(round::end);
        default: throw std::logic_error("commit: nothing was to be done");
    }
}

/// Returns the ranks' failure that comes first in CommitEnd, if several the lowest rank's; `open` if no rank failed.
CommitVerdict Commit::found(const std::vector<std::string>& words) const {
    CommitVerdict worst{.step = options_.step};
    for (size_t i = 0; i < words.size(); ++i) {
        CommitVerdict said{.step = options_.step};
        try {
            said = verdict_of(words[i], options_.step);
        } catch (const std::exception& problem) {
            said.end = CommitEnd::refused;
            said.why = std::string("what it says is no word of a save: ") + problem.what();
        }
        said.rank = static_cast<int64_t>(i);
        if (!is_well(said) && (is_well(worst) || said.end < worst.end)) worst = said;
    }
    return worst;
}

void Commit::gathered(const std::vector<std::string>& texts) {
    if (action_.kind != Action::to_all && action_.kind != Action::to_first)
        throw std::logic_error("commit: nothing was to be gathered");
    if ((first() || action_.kind == Action::to_all) && texts.size() != static_cast<size_t>(options_.ranks))
        return give_up(fmt::format("{} ranks answered of {}", texts.size(), options_.ranks));
    if (action_.topic == round::sound) {
        const CommitVerdict worst = found(texts);
        if (!is_well(worst)) return finish(worst);
        return begin();
    }
    if (!first())
        return tell(action_.topic == round::report  ? round::verdict
                    : action_.topic == round::votes ? round::blame
                                                    : round::end);
    const CommitVerdict worst = found(texts);
    std::vector<std::string> said;
    for (const std::string& text : texts) said.push_back(text.empty() ? "" : text.substr(1));
    if (action_.topic == round::votes) {
        if (!is_well(worst)) {
            verdict_.why =
                fmt::format("replicas differ, and rank {} failed to compare its values: {}", worst.rank, worst.why);
            return tell(round::blame);
        }
        enter(Action::blame);
        action_.texts = std::move(said);
        return;
    }
    verdict_ = worst;
    if (action_.topic == round::read) return enter(is_well(worst) ? Action::retire : Action::take_back);
    if (!is_well(worst)) return tell(round::verdict);
    enter(Action::judge);
    action_.texts = std::move(said);
}

void Commit::told(std::string_view text) {
    if (action_.kind != Action::from_first) throw std::logic_error("commit: nothing was to be told");
    CommitVerdict said;
    try {
        said = verdict_of(text, options_.step);
    } catch (const std::exception& problem) {
        return give_up(std::string("what rank 0 says is no word of a save: ") + problem.what());
    }
    if (action_.topic == round::begin) return is_well(said) ? enter(Action::write) : finish(said);
    if (action_.topic == round::end) {
        if (is_well(said)) said.end = CommitEnd::good;
        return finish(said);
    }
    if (action_.topic == round::blame && is_well(said)) return give_up("rank 0 does not say who differs");
    verdict_ = said;
    if (action_.topic == round::verdict) {
        if (is_well(said)) return enter(Action::read_back);
        if (said.end == CommitEnd::disputed) return enter(Action::vote, said.why);
    }
    enter(first() ? Action::discard : Action::over);
}

void Commit::give_up(const std::string& why) {
    if (over()) return;
    finish({.end = CommitEnd::given_up, .step = options_.step, .why = why});
}

}  // namespace orrery
