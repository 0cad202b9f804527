#include "control/commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>

#include "base/json.h"

namespace orrery {

enum class Commit::Stage : uint8_t {
    check,
    sound,
    make_way,
    begin,
    write,
    report,
    judge,
    publish,
    look,
    verdict,
    vote,
    votes,
    blame,
    blamed,
    discard,
    read_back,
    read,
    take_back,
    retire,
    end,
    over,
};

namespace {

using Action = CommitAction::Kind;
using Left = CommitVerdict::Left;

/// What is done in a stage, and of a round its topic.
struct Work {
    Action kind;
    std::string_view topic = {};
};
constexpr Work works[] = {
    // in the order of Stage
    {Action::check},
    {Action::to_all, "sound"},
    {Action::make_way},
    {Action::from_first, "begin"},
    {Action::write},
    {Action::to_first, "report"},
    {Action::judge},
    {Action::publish},
    {Action::look},
    {Action::from_first, "verdict"},
    {Action::vote},
    {Action::to_first, "votes"},
    {Action::blame},
    {Action::from_first, "blame"},
    {Action::discard},
    {Action::read_back},
    {Action::to_first, "read"},
    {Action::take_back},
    {Action::retire},
    {Action::from_first, "end"},
    {Action::over},
};

// What goes over a round: '+', with a report or a rank's votes behind it, or '-' and why not, as JSON.

constexpr std::array ends = {"open",     "given up",    "unsound", "blocked",   "unwritten", "refused",
                             "disputed", "unpublished", "unread",  "uncovered", "unretired", "good"};
constexpr std::array lefts = {"nothing", "step", "unknown"};
static_assert(ends.size() == static_cast<size_t>(CommitEnd::good) + 1);
static_assert(lefts.size() == static_cast<size_t>(Left::unknown) + 1);

template <class Enum, size_t n>
Enum named(const std::array<const char*, n>& names, const std::string& name) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) throw std::invalid_argument("\"" + name + "\" is none of the words of a save");
    return static_cast<Enum>(at - names.begin());
}

bool is_well(const CommitVerdict& verdict) { return verdict.end == CommitEnd::open || verdict.end == CommitEnd::good; }

std::string word_of(const CommitVerdict& verdict, const std::string& more = {}) {
    if (is_well(verdict)) return "+" + more;
    return "-" + message_text({{"end", ends.at(static_cast<size_t>(verdict.end))},
                               {"step", verdict.step},
                               {"rank", verdict.rank},
                               {"object", verdict.object},
                               {"why", verdict.why},
                               {"left", lefts.at(static_cast<size_t>(verdict.left))},
                               {"left_why", verdict.left_why}});
}

/// Throws std::exception; well: `open`.
CommitVerdict verdict_of(std::string_view word, int64_t step) {
    CommitVerdict verdict{.step = step};
    if (word.starts_with('+')) return verdict;
    if (!word.starts_with('-')) throw std::invalid_argument("neither good nor bad");
    const Json json = parse_json(word.substr(1), {"", "a message of another rank", 0, 0});
    verdict.end = named<CommitEnd>(ends, json.at("end").get<std::string>());
    verdict.rank = json.at("rank").get<int64_t>();
    verdict.object = json.at("object").get<std::string>();
    verdict.why = json.at("why").get<std::string>();
    verdict.left = named<Left>(lefts, json.at("left").get<std::string>());
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
            return fmt::format("{} is good, but removing older ones failed on rank {}: {}", task, rank, why);
        case CommitEnd::unread:
        case CommitEnd::uncovered:
            return fmt::format("{} could not be read back on rank {}: {}{}\n  it {}, earlier ones are as they were",
                               task, rank,
                               end == CommitEnd::uncovered ? "what was written does not cover its values: " : "", why,
                               left == Left::nothing ? "was removed" : "could not be removed (" + left_why + ")");
        default: break;
    }
    return fmt::format("{} failed: {}{}{}\n  earlier checkpoints are as they were", task,
                       rank < 0 ? "" : fmt::format("on rank {}: ", rank), why, left_of(*this));
}

Commit::Commit(const Options& options) : options_(options), verdict_{.step = options.step} {
    if (options_.checks)
        enter(Stage::check);
    else
        enter(first() ? Stage::make_way : Stage::begin);
}

void Commit::enter(Stage stage, std::string text) {
    static_assert(std::size(works) == static_cast<size_t>(Stage::over) + 1);
    const Work& work = works[static_cast<size_t>(stage)];
    stage_ = stage;
    action_ = {work.kind, work.topic, std::move(text), {}};
}

/// To all, what rank 0 has found so far.
void Commit::tell(Stage stage) { enter(stage, first() ? word_of(verdict_) : ""); }

void Commit::fail(CommitEnd end, const std::string& why) {
    verdict_.end = end;
    verdict_.rank = options_.rank;
    verdict_.why = why;
}

void Commit::finish(const CommitVerdict& verdict) {
    verdict_ = verdict;
    enter(Stage::over);
}

void Commit::done(const CommitAnswer& answer) {
    const bool failed = !answer.problem.empty();
    switch (stage_) {
        case Stage::check:
            if (failed) fail(CommitEnd::unsound, answer.problem);
            return enter(Stage::sound, word_of(verdict_));
        case Stage::make_way:
            if (failed) fail(CommitEnd::blocked, answer.problem);
            return tell(Stage::begin);
        case Stage::write:
            if (failed) fail(CommitEnd::unwritten, answer.problem);
            return enter(Stage::report, word_of(verdict_, answer.text));
        case Stage::judge:
            if (failed) {
                fail(CommitEnd::refused, answer.problem);
                verdict_.rank = -1;  // the problem names who is at fault
            } else if (!answer.text.empty()) {
                fail(CommitEnd::disputed, answer.text);
                verdict_.rank = -1;
            } else {
                return enter(Stage::publish);
            }
            return tell(Stage::verdict);
        case Stage::publish:
            if (!failed) return tell(Stage::verdict);
            fail(CommitEnd::unpublished, answer.problem);
            return enter(Stage::look);
        case Stage::look:
            verdict_.left = failed ? Left::unknown : answer.there ? Left::step : Left::nothing;
            verdict_.left_why = answer.problem;
            return tell(Stage::verdict);
        case Stage::vote:
            return enter(Stage::votes, !failed ? "+" + answer.text
                                               : word_of({.end = CommitEnd::disputed,
                                                          .step = options_.step,
                                                          .rank = options_.rank,
                                                          .why = answer.problem}));
        case Stage::blame: verdict_.why = failed ? answer.problem : answer.text; return tell(Stage::blamed);
        case Stage::discard: return enter(Stage::over);  // what is left costs room alone, until it is in the way
        case Stage::read_back:
            if (failed) fail(answer.uncovered ? CommitEnd::uncovered : CommitEnd::unread, answer.problem);
            verdict_.object = failed ? answer.object : "";
            return enter(Stage::read, word_of(verdict_));
        case Stage::take_back:
            verdict_.left = failed ? Left::step : Left::nothing;
            verdict_.left_why = answer.problem;
            return tell(Stage::end);
        case Stage::retire:
            if (failed) fail(CommitEnd::unretired, answer.problem);
            return tell(Stage::end);
        default: throw std::logic_error("commit: nothing was to be done");
    }
}

/// The worst that ranks say, of the first of those who say it.
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
    if (stage_ == Stage::sound) {
        const CommitVerdict worst = found(texts);
        if (!is_well(worst)) return finish(worst);
        return enter(first() ? Stage::make_way : Stage::begin);
    }
    if (!first())
        return tell(stage_ == Stage::report ? Stage::verdict : stage_ == Stage::votes ? Stage::blamed : Stage::end);
    const CommitVerdict worst = found(texts);
    std::vector<std::string> said;
    for (const std::string& text : texts) said.push_back(text.empty() ? "" : text.substr(1));
    if (stage_ == Stage::votes) {
        if (!is_well(worst)) {
            verdict_.why = fmt::format("replicas differ, and rank {} cannot tell its votes: {}", worst.rank, worst.why);
            return tell(Stage::blamed);
        }
        enter(Stage::blame);
        action_.texts = std::move(said);
        return;
    }
    verdict_ = worst;
    if (stage_ == Stage::read) return enter(is_well(worst) ? Stage::retire : Stage::take_back);
    if (!is_well(worst)) return tell(Stage::verdict);
    enter(Stage::judge);
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
    switch (stage_) {
        case Stage::begin:
            if (!is_well(said)) return finish(said);
            return enter(Stage::write);
        case Stage::verdict:
            verdict_ = said;
            if (is_well(said)) return enter(Stage::read_back);
            if (said.end == CommitEnd::disputed) return enter(Stage::vote, said.why);
            break;
        case Stage::blamed:
            if (is_well(said)) return give_up("rank 0 does not say who differs");
            verdict_ = said;
            break;
        default:
            if (is_well(said)) said.end = CommitEnd::good;
            return finish(said);
    }
    if (!first()) return enter(Stage::over);
    enter(Stage::discard);
}

void Commit::give_up(const std::string& why) {
    if (over()) return;
    finish({.end = CommitEnd::given_up, .step = options_.step, .why = why});
}

}  // namespace orrery
