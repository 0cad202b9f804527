#include "compile/round.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "orrery/mark.h"

namespace orrery {
namespace {

constexpr int64_t max_times = 1'000'000'000;

}  // namespace

/// Reads the text of a round: stretches divided by ", then", each a list of parts.
struct Round::Reader {
    Round& round;
    std::string_view text = round.text_;
    size_t at = 0;

    static constexpr int max_brackets = 32;

    [[noreturn]] void fail(const std::string& expected) const {
        const std::string found = at < text.size() ? quote(text.substr(at, 12)) : "its end";
        throw Error(round.origin_,
                    fmt::format("round {}: expected {} at character {}, found {}\n  write names of programs that "
                                "follow each other, \"step*50 outer\", \"(A B*2)*10, then A\"",
                                quote(text), expected, at + 1, found));
    }
    void skip() {
        while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
    }
    bool take(std::string_view word) {
        skip();
        if (!text.substr(at).starts_with(word)) return false;
        at += word.size();
        return true;
    }
    static bool in_name(char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
    }
    std::string_view word(bool (*in)(char)) {
        skip();
        const size_t from = at;
        while (at < text.size() && in(text[at])) ++at;
        return text.substr(from, at - from);
    }

    std::vector<Part> list(int brackets) {
        std::vector<Part> parts;
        for (skip(); at < text.size() && text[at] != ')' && text[at] != ','; skip()) parts.push_back(part(brackets));
        if (parts.empty()) fail("the name of a program");
        return parts;
    }

    Part part(int brackets) {
        Part part;
        if (take("(")) {
            if (brackets == max_brackets) fail(fmt::format("at most {} nested brackets", max_brackets));
            part.parts = list(brackets + 1);
            if (!take(")")) fail("\")\"");
        } else {
            part.name = name();
        }
        if (take("*")) part.times = times();
        return part;
    }

    size_t name() {
        const size_t from = at;
        const std::string name(word(in_name));
        if (name.empty() || name == "then") {
            at = from;
            fail("the name of a program");
        }
        std::vector<std::string>& names = round.names_;
        const auto index = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
        if (index == names.size()) names.push_back(name);
        return index;
    }

    int64_t times() {
        skip();
        const size_t from = at;
        const std::string_view digits = word([](char c) { return c >= '0' && c <= '9'; });
        const int64_t number = digits.empty() || digits.size() > 10 ? 0 : std::stoll(std::string(digits));
        if (number >= 1 && number <= max_times) return number;
        at = from;
        fail(fmt::format("a number from 1 to {}", max_times));
    }

    void run() {
        do {
            round.stretches_.emplace_back().parts = list(0);
        } while (take(",") && (take("then") || (fail("\"then\""), false)));
        if (at < text.size()) fail("the name of a program, \"*\" or \", then\"");
    }
};

Round::Round(std::string_view text, Origin origin) : text_(trim(text)), origin_(std::move(origin)) {
    Reader{*this}.run();
    takes_batch_.assign(names_.size(), false);
    if (plain()) prove({true});
}

/// Counts the runs and steps of one time of a part and of what it holds.
void Round::count(Part& part) const {
    if (part.parts.empty()) return void(part.steps = takes_batch_[part.name] ? 1 : 0);
    part.runs = part.steps = 0;
    for (Part& inner : part.parts) {
        count(inner);
        int64_t all = 0;
        if (__builtin_mul_overflow(inner.runs, inner.times, &all) || __builtin_add_overflow(part.runs, all, &part.runs))
            throw Error(origin_, fmt::format("round {}: it runs more than 2^63 programs\n  use smaller numbers after *",
                                             quote(text_)));
        part.steps += inner.steps * inner.times;
    }
}

namespace {

/// What the proof knows of a sequence of programs and actions, so that T*50 is proved as T T is.
struct Known {
    bool step = false;     ///< it has a step
    bool program = false;  ///< a program comes before its first step
    bool action = false;   ///< an action of the host comes after its last step
    bool late = false;     ///< a program comes between an action and the next step

    Known then(const Known& next) const {
        return {step || next.step, program || (!step && next.program), next.action || (!next.step && action),
                late || next.late || (action && next.program)};
    }
};

}  // namespace

void Round::prove(const std::vector<bool>& takes_batch) {
    takes_batch_ = takes_batch;
    for (Part& stretch : stretches_) count(stretch);
    const std::string about = fmt::format("round {}: ", quote(text_));
    const size_t first = name_at(0);
    if (!takes_batch_[first])
        throw Error(origin_, fmt::format("{}it begins with {}, which takes no batch\n  write a step before it", about,
                                         names_[first]));
    if (stretches_.back().steps == 0)
        throw Error(origin_,
                    fmt::format("{}it never trains{}: none of its programs takes a batch: {}\n  add a step", about,
                                stretches_.size() > 1 ? " after its last \", then\"" : "", join_few(names_, 5)));
    const std::function<Known(const Part&)> known = [&](const Part& part) {
        Known all;
        if (part.parts.empty()) {
            all.step = takes_batch_[part.name];
            all.action = is_action(part.name);
            all.program = !all.step && !all.action;
        }
        for (const Part& inner : part.parts) all = all.then(known(inner));
        return part.times > 1 ? all.then(all) : all;
    };
    Known all;
    for (const Part& stretch : stretches_) all = all.then(known(stretch));
    if (all.then(known(stretches_.back())).late)
        throw Error(
            origin_,
            fmt::format("{}a program that takes no batch follows save or evaluate in the same step\n  write save "
                        "and evaluate after the last program of a step",
                        about));
}

namespace {

/// What the proof knows of a sequence of runs of a program that sends and of the one that waits, so that T*50 is proved
/// as T T is.
struct Crossings {
    enum Event : uint8_t { nothing, sent, received } first = nothing, last = nothing;
    bool sent_twice = false, received_twice = false;

    Crossings then(const Crossings& next) const {
        const bool same = last != nothing && last == next.first;
        return {first == nothing ? next.first : first, next.last == nothing ? last : next.last,
                sent_twice || next.sent_twice || (same && last == sent),
                received_twice || next.received_twice || (same && last == received)};
    }
};

}  // namespace

void Round::prove_messages(const std::vector<int>& senders) {
    senders_ = senders;
    for (size_t name = 0; name < names_.size(); ++name) {
        if (senders[name] == none) continue;
        const auto sender = static_cast<size_t>(senders[name]);
        const std::function<Crossings(const Part&)> crossings = [&](const Part& part) {
            Crossings all;
            if (part.parts.empty() && part.name == sender) all.first = all.last = Crossings::sent;
            if (part.parts.empty() && part.name == name) all.first = all.last = Crossings::received;
            for (const Part& inner : part.parts) all = all.then(crossings(inner));
            return part.times > 1 ? all.then(all) : all;
        };
        Crossings all;
        for (const Part& stretch : stretches_) all = all.then(crossings(stretch));
        const Crossings repeated = crossings(stretches_.back());
        all = all.then(repeated);
        const std::string about = fmt::format("round {}: ", quote(text_));
        if (all.first == Crossings::received || all.received_twice)
            throw Error(origin_,
                        fmt::format("{}{} waits for messages that {} has not sent\n  put one {} before each {}, "
                                    "also inside brackets and across repetitions",
                                    about, names_[name], names_[sender], names_[sender], names_[name]));
        if (all.sent_twice)
            throw Error(origin_,
                        fmt::format("{}{} sends again while its last messages are in flight\n  put {} between two "
                                    "runs of {}, also across repetitions",
                                    about, names_[sender], names_[name], names_[sender]));
        if (all.last == Crossings::sent && repeated.last == Crossings::nothing)
            throw Error(origin_, fmt::format("{}{} sends, but {} never runs after it\n  put {} after it", about,
                                             names_[sender], names_[name], names_[name]));
    }
}

/// Which of two names is the last among the first `runs` runs of `parts`; none: neither is.
int Round::last_of(const std::vector<Part>& parts, int64_t runs, int first, int second) {
    int last = none;
    const auto see = [&](int seen) { last = seen == none ? last : seen; };
    for (const Part& part : parts) {
        if (runs == 0) break;
        const int64_t now = std::min(runs, part.runs * part.times);
        const int name = static_cast<int>(part.name);
        if (part.parts.empty() && (name == first || name == second)) see(name);
        if (now >= part.runs) see(last_of(part.parts, part.runs, first, second));
        see(last_of(part.parts, now % part.runs, first, second));
        runs -= now;
    }
    return last;
}

std::vector<size_t> Round::awaited(int64_t step) const {
    std::vector<size_t> all;
    std::vector<Part> parts = stretches_;
    int64_t before = 0;
    for (const Part& stretch : stretches_) before += &stretch == &stretches_.back() ? 0 : stretch.runs;
    const int64_t runs = run_of(step + 1);
    parts.back().times = runs > before ? (runs - before) / parts.back().runs + 1 : 1;
    for (size_t name = 0; name < senders_.size(); ++name)
        if (senders_[name] != none && last_of(parts, runs, senders_[name], static_cast<int>(name)) == senders_[name])
            all.push_back(name);
    return all;
}

size_t Round::name_at(const std::vector<Part>& parts, int64_t run) {
    for (const Part& part : parts) {
        if (run < part.runs * part.times) return part.parts.empty() ? part.name : name_at(part.parts, run % part.runs);
        run -= part.runs * part.times;
    }
    return 0;
}

/// The index among the runs of `parts` of their step number `step`, from 0.
int64_t Round::run_of(const std::vector<Part>& parts, int64_t step) {
    int64_t before = 0;
    for (const Part& part : parts) {
        if (step < part.steps * part.times) {
            const int64_t time = step / part.steps;
            return before + time * part.runs + (part.parts.empty() ? 0 : run_of(part.parts, step % part.steps));
        }
        step -= part.steps * part.times;
        before += part.runs * part.times;
    }
    return before;
}

size_t Round::name_at(int64_t run) const {
    for (const Part& stretch : stretches_) {
        if (&stretch == &stretches_.back()) run %= stretch.runs;
        if (run < stretch.runs) return name_at(stretch.parts, run);
        run -= stretch.runs;
    }
    return 0;
}

int64_t Round::run_of(int64_t step) const {
    int64_t before = 0, left = step - 1;
    for (const Part& stretch : stretches_) {
        if (&stretch == &stretches_.back())
            return before + left / stretch.steps * stretch.runs + run_of(stretch.parts, left % stretch.steps);
        if (left < stretch.steps) return before + run_of(stretch.parts, left);
        left -= stretch.steps;
        before += stretch.runs;
    }
    return before;
}

size_t Round::program_of(int64_t step) const { return name_at(run_of(step)); }

void Round::after(int64_t step, const std::function<void(size_t)>& run) const {
    const int64_t next = run_of(step + 1);
    for (int64_t at = run_of(step) + 1; at < next; ++at) run(name_at(at));
}

bool Round::ends_with(int64_t step) const {
    for (const Part& stretch : stretches_)
        if (&stretch != &stretches_.back()) step -= stretch.steps;
    return step >= 0 && step % stretches_.back().steps == 0;
}

int64_t Round::steps() const {
    int64_t all = 0;
    for (const Part& stretch : stretches_) all += stretch.steps;
    return all;
}

std::string Round::written(int64_t times, bool actions) const {
    const std::function<std::string(const std::vector<Part>&)> text = [&](const std::vector<Part>& parts) {
        std::string all;
        for (const Part& part : parts) {
            if (part.parts.empty() && is_action(part.name) && !actions) continue;
            const std::string one = part.parts.empty() ? names_[part.name] : text(part.parts);
            if (one.empty()) continue;
            all += (all.empty() ? "" : " ") + (part.parts.empty() ? one : "(" + one + ")");
            if (const int64_t n = std::min(times, part.times); n > 1) all += fmt::format("*{}", n);
        }
        return all;
    };
    std::string all;
    for (const Part& stretch : stretches_)
        if (const std::string one = text(stretch.parts); !one.empty()) all += (all.empty() ? "" : ", then ") + one;
    return all;
}

std::string Round::order() const { return written(max_times, false); }

Round Round::shortened(int64_t times) const {
    Round made(written(times, true), origin_);
    made.prove(takes_batch_);
    return made;
}

std::vector<double> Round::runs_per_step() const {
    std::vector<double> runs(names_.size(), 0.0);
    const std::function<void(const Part&, double)> add = [&](const Part& part, double times) {
        if (part.parts.empty()) runs[part.name] += times * static_cast<double>(part.times);
        for (const Part& inner : part.parts) add(inner, times * static_cast<double>(part.times));
    };
    add(stretches_.back(), 1.0 / static_cast<double>(stretches_.back().steps));
    return runs;
}

namespace {

/// Costs of a sequence of runs: before its first step, the max of its complete steps, and of its last step so far.
struct Costs {
    double before = 0, whole = 0, last = 0;
    bool step = false;

    Costs then(const Costs& next) const {
        if (!next.step) return step ? Costs{before, whole, last + next.before, true} : Costs{before + next.before};
        if (!step) return {before + next.before, next.whole, next.last, true};
        return {before, std::max({whole, next.whole, last + next.before}), next.last, true};
    }
};

}  // namespace

double Round::peak(const std::vector<double>& costs) const {
    const std::function<Costs(const Part&)> of = [&](const Part& part) {
        Costs once;
        if (part.parts.empty())
            once = takes_batch_[part.name] ? Costs{0, 0, costs[part.name], true} : Costs{costs[part.name]};
        for (const Part& inner : part.parts) once = once.then(of(inner));
        if (once.step) return part.times > 1 ? once.then(once) : once;
        return Costs{once.before * static_cast<double>(part.times)};
    };
    Costs all;
    for (const Part& stretch : stretches_) all = all.then(of(stretch));
    all = all.then(of(stretches_.back()));
    return std::max(all.whole, all.last);
}

}  // namespace orrery
