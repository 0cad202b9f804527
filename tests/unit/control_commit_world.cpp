#include "control_commit_world.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::test {

using Kind = CommitAction::Kind;

struct CommitWorld::Rank {
    int64_t rank = 0, step = 0, saves = 0;  ///< those still to come
    bool alive = true, done = false;
    std::unique_ptr<Commit> commit = {};
};

struct CommitWorld::Round {
    std::map<int64_t, std::string> texts = {};  ///< by rank
    std::vector<Rank*> waiting = {};
};

struct CommitWorld::Job {
    int64_t generation = 0, base = 0;
    bool calm = false, over = false;
    std::vector<Rank> ranks = {};
    std::set<int64_t> passed_over = {}, verified = {};
    std::map<std::pair<int64_t, std::string_view>, Round> rounds = {};  ///< by step and topic
};

CommitWorld::CommitWorld(uint32_t seed, bool calm) : random_(seed), calm_(calm) {
    ranks_ = pick(1, 6);
    saves_ = pick(1, 4);
    most_generations_ = calm ? 1 : pick(2, 4);
    if (calm) return;
    failing_ = chance(0.7) ? 0.01 * static_cast<double>(pick(0, 8)) : 0;
    lying_ = chance(0.3) ? 0.05 : 0;
    differing_ = chance(0.2) ? 0.05 : 0;
    killing_ = chance(0.5) ? 0.01 * static_cast<double>(pick(1, 5)) : 0;
    sleeping_ = chance(0.5) ? 0.05 : 0;
}

CommitWorld::~CommitWorld() = default;

void CommitWorld::must(bool holds, const std::string& what) {
    if (!holds) problems.push_back(what);
}

void CommitWorld::at(double delay, std::function<void()> what) { queue_[{now_ + delay, order_++}] = std::move(what); }

double CommitWorld::delay() {
    const double some = std::uniform_real_distribution<double>(0, 1)(random_);
    return chance(sleeping_) ? 100 * some : some;  // so long that others may have taken over
}

void CommitWorld::run() {
    take_over();
    for (int64_t events = 0; !queue_.empty(); ++events) {
        if (events > 100'000) return must(false, "it does not end");
        const auto next = queue_.begin();
        now_ = next->first.first;
        const std::function<void()> what = std::move(next->second);
        queue_.erase(next);
        what();
    }
    judge();
}

bool CommitWorld::whole(int64_t step) const {
    const auto at = visible_.find(step);
    return at != visible_.end() &&
           std::none_of(at->second.parts.begin(), at->second.parts.end(), [](const Part& p) { return p.damaged; });
}

int64_t CommitWorld::whole_steps() const {
    return std::count_if(visible_.begin(), visible_.end(), [&](const auto& step) { return whole(step.first); });
}

/// The next generation: claims the store, goes on from the newest step that is whole, and saves some more.
void CommitWorld::take_over() {
    if (claimed_ == most_generations_) return;
    Job& job = *jobs_.emplace_back(std::make_unique<Job>());
    job.generation = ++claimed_;
    ++generations;
    job.calm = calm_ || claimed_ == most_generations_;  // the last one: whatever was left is in nobody's way
    for (auto step = visible_.rbegin(); step != visible_.rend() && job.base == 0; ++step) {
        if (whole(step->first)) job.base = step->first;
        if (job.base == 0) job.passed_over.insert(step->first);
    }
    if (job.base > 0) job.verified.insert(job.base);
    for (int64_t rank = 0; rank < ranks_; ++rank) job.ranks.push_back({rank, job.base, saves_});
    for (Rank& rank : job.ranks) at(delay(), [&] { begin(job, rank); });
    if (!job.calm && chance(0.3)) at(static_cast<double>(pick(1, 30)), [this] { take_over(); });  // while it runs
}

void CommitWorld::begin(Job& job, Rank& rank) {
    if (!rank.alive || job.over) {
        rank.done = true;
        return;
    }
    --rank.saves;
    ++rank.step;
    rank.commit.reset(new Commit({.step = rank.step, .rank = rank.rank, .ranks = ranks_, .checks = true}));
    go_on(job, rank);
}

/// Performs the action at hand: takes effect at one time, and is answered at another.
void CommitWorld::go_on(Job& job, Rank& rank) {
    if (!rank.alive) return;
    if (!job.calm && chance(killing_)) return kill(job, rank);
    if (rank.commit->over()) return ended(job, rank);
    const CommitAction action = rank.commit->action();
    if (action.kind == Kind::to_all || action.kind == Kind::to_first || action.kind == Kind::from_first)
        return give(job, rank, action);
    const double effect = delay(), answered = effect + delay();
    const int64_t step = rank.step;
    const auto answer = std::make_shared<CommitAnswer>();
    at(effect, [this, &job, &rank, action, answer] {
        if (rank.alive) act(job, rank, action, *answer);  // given up or not: it is on its way
    });
    at(answered, [this, &job, &rank, step, answer] {
        if (!rank.alive || rank.commit->over() || rank.step != step) return;
        rank.commit->done(*answer);
        go_on(job, rank);
    });
}

/// A round ends for a rank when all have come that it hears.
void CommitWorld::give(Job& job, Rank& rank, const CommitAction& action) {
    Round& round = job.rounds[{rank.step, action.topic}];
    const bool from_first = action.kind == Kind::from_first, to_all = action.kind == Kind::to_all;
    if (!from_first || rank.rank == 0) round.texts[rank.rank] = action.text;
    round.waiting.push_back(&rank);
    const bool all = round.texts.size() == static_cast<size_t>(ranks_);
    for (Rank* other : std::exchange(round.waiting, {})) {
        const bool hears = to_all || other->rank == 0;
        if (from_first ? round.texts.empty() : hears && !all) {
            round.waiting.push_back(other);
            continue;
        }
        at(delay(), [this, &job, &rank = *other, &texts = round.texts, from_first, hears] {
            if (!rank.alive || rank.commit->over()) return;
            std::vector<std::string> said;
            for (const auto& [_, text] : texts) said.push_back(text);
            if (from_first)
                rank.commit->told(said.front());
            else
                rank.commit->gathered(hears ? said : std::vector<std::string>());
            go_on(job, rank);
        });
    }
}

/// The others are told that it is gone, each at its time.
void CommitWorld::kill(Job& job, Rank& rank) {
    ++kills;
    rank.alive = false;
    for (Rank& other : job.ranks)
        at(10 * delay(), [this, &job, &other] {
            if (!other.alive || !other.commit || other.commit->over()) return;
            other.commit->give_up("a rank is lost");
            ended(job, other);
        });
    job.over = true;
    at(10 * delay(), [this] { take_over(); });
}

void CommitWorld::ended(Job& job, Rank& rank) {
    const CommitVerdict& verdict = rank.commit->verdict();
    ++ends.at(static_cast<size_t>(verdict.end));
    verdicts_[{job.generation, rank.step}].push_back(verdict);
    const auto seen = visible_.find(rank.step);
    const bool there = seen != visible_.end() && seen->second.generation == job.generation;
    if (rank.rank == 0 && verdict.end != CommitEnd::given_up && job.generation == claimed_ &&
        verdict.left != CommitVerdict::Left::unknown)
        must(there == (verdict.kept() || verdict.left == CommitVerdict::Left::step),
             fmt::format("step {} is {}, its verdict says otherwise", rank.step, there ? "there" : "not there"));
    if (verdict.kept() && rank.saves > 0) return at(delay(), [&] { begin(job, rank); });
    rank.done = true;
    if (!verdict.kept() && !std::exchange(job.over, true)) at(delay(), [this] { take_over(); });
    if (verdict.kept() && rank.rank == 0 && !std::exchange(job.over, true)) at(delay(), [this] { take_over(); });
}

/// Whether the store or the state is at fault here, and remembers it. What an older generation does always fails.
bool CommitWorld::fails(const Job& job, const Rank& rank, CommitEnd end, CommitAnswer& answer) {
    const bool of_store = end != CommitEnd::unsound && end != CommitEnd::refused;
    const bool old = of_store && job.generation < claimed_;
    if (!old && (job.calm || !chance(failing_))) return false;
    superseded += old;
    answer.problem = old ? "a newer generation has begun" : "no space left on device";
    if (end != CommitEnd::open)
        faults_[{job.generation, rank.step}].emplace(end, end == CommitEnd::refused ? -1 : rank.rank);
    return true;
}

void CommitWorld::act(Job& job, Rank& rank, const CommitAction& action, CommitAnswer& answer) {
    const Save save{job.generation, rank.step};
    switch (action.kind) {
        case Kind::check: fails(job, rank, CommitEnd::unsound, answer); break;
        case Kind::make_way: make_way(job, rank, answer); break;
        case Kind::write: write(job, rank, answer); break;
        case Kind::judge: {
            must(action.texts.size() == static_cast<size_t>(ranks_), "not all reports are judged");
            if (fails(job, rank, CommitEnd::refused, answer)) break;
            const std::set<std::string> states(action.texts.begin(), action.texts.end());
            if (states.size() > 1) answer.text = "all";
            break;
        }
        case Kind::publish: publish(job, rank, answer); break;
        case Kind::look: {
            if (fails(job, rank, CommitEnd::open, answer)) break;
            const auto at = visible_.find(rank.step);
            answer.there = at != visible_.end() && at->second.generation == job.generation;
            break;
        }
        case Kind::vote:
            must(action.text == "all", "another dispute than there is");
            if (!fails(job, rank, CommitEnd::open, answer)) answer.text = std::to_string(rank.rank);
            break;
        case Kind::blame:
            must(action.texts.size() == static_cast<size_t>(ranks_), "not all votes are looked at");
            answer.text = "ranks " + action.texts.front() + " and others differ";
            break;
        case Kind::discard:
            if (!fails(job, rank, CommitEnd::open, answer)) partial_.erase(save);
            break;
        case Kind::read_back: read_back(job, rank, answer); break;
        case Kind::take_back: {
            const auto& faults = faults_[save];
            must(std::any_of(faults.begin(), faults.end(), [](const auto& f) { return f.first >= CommitEnd::unread; }),
                 "a step is taken back that all could read");
            if (fails(job, rank, CommitEnd::open, answer)) break;
            taken_back_.insert(save);
            if (visible_.count(rank.step) > 0 && visible_[rank.step].generation == job.generation)
                visible_.erase(rank.step);
            break;
        }
        case Kind::retire: retire(job, rank, answer); break;
        default: must(false, "no such action");
    }
}

void CommitWorld::make_way(Job& job, Rank& rank, CommitAnswer& answer) {
    if (fails(job, rank, CommitEnd::blocked, answer)) return;
    must(visible_.count(rank.step) == 0 || job.passed_over.count(rank.step) > 0, "a step is saved that is there");
    visible_.erase(rank.step);  // set aside
}

/// Where it fails, a part may be there, and even durable.
void CommitWorld::write(Job& job, Rank& rank, CommitAnswer& answer) {
    const Save save{job.generation, rank.step};
    const bool failed = fails(job, rank, CommitEnd::unwritten, answer);
    if (failed && (job.generation < claimed_ || chance(0.5))) return;
    Part part{rank.step, !failed || chance(0.5), !job.calm && chance(lying_)};
    if (!job.calm && ranks_ > 1 && chance(differing_)) {
        part.state = -rank.step;
        faults_[save].emplace(CommitEnd::disputed, -1);
    }
    partial_[save][rank.rank] = part;
    if (!failed) answer.text = std::to_string(part.state);
}

/// Where it fails, the step may be visible.
void CommitWorld::publish(Job& job, Rank& rank, CommitAnswer& answer) {
    const Save save{job.generation, rank.step};
    const bool failed = fails(job, rank, CommitEnd::unpublished, answer);
    if (failed && (job.generation < claimed_ || chance(0.5))) return;
    must(rank.rank == 0 && job.generation == claimed_, "another one than rank 0 of the newest generation commits");
    must(visible_.count(rank.step) == 0, "a step is committed twice");
    Step step{job.generation, {}};
    for (const auto& [_, part] : partial_[save]) {
        must(part.durable, "a step is visible before its parts are durable");
        must(step.parts.empty() || part.state == step.parts.front().state, "a step is visible whose replicas differ");
        step.parts.push_back(part);
    }
    must(step.parts.size() == static_cast<size_t>(ranks_), "a step is visible before all ranks have written");
    step.parts.resize(static_cast<size_t>(ranks_));
    partial_.erase(save);
    published_.insert(save);
    visible_[rank.step] = std::move(step);
}

void CommitWorld::read_back(Job& job, Rank& rank, CommitAnswer& answer) {
    const Save save{job.generation, rank.step};
    const auto at = visible_.find(rank.step);
    const auto refuse = [&](CommitEnd end, const std::string& why) {
        faults_[save].emplace(end, rank.rank);
        answer.problem = why;
        answer.uncovered = end == CommitEnd::uncovered;
        if (end == CommitEnd::unread) answer.object = "part-" + std::to_string(rank.rank);
    };
    if (!job.calm && chance(failing_)) return refuse(CommitEnd::unread, "an error of the disk");
    if (at == visible_.end() || at->second.generation != job.generation) return refuse(CommitEnd::unread, "it is gone");
    if (at->second.parts[static_cast<size_t>(rank.rank)].damaged) return refuse(CommitEnd::unread, "it is damaged");
    if (!whole(rank.step) && chance(0.5)) return refuse(CommitEnd::uncovered, "another part is damaged");
    if (!job.calm && chance(failing_)) return refuse(CommitEnd::uncovered, "there is a hole");
    read_[save].insert(rank.rank);
}

/// All but the newest two that are whole, the oldest first; where it fails, some may be gone.
void CommitWorld::retire(Job& job, Rank& rank, CommitAnswer& answer) {
    const Save save{job.generation, rank.step};
    must(read_[save].size() == static_cast<size_t>(ranks_), "older steps go before all ranks have read the new one");
    const bool failed = fails(job, rank, CommitEnd::unretired, answer);
    if (failed && (job.generation < claimed_ || chance(0.5))) return;
    must(whole(rank.step), "older steps go, and the new one is not whole");
    while (whole_steps() > 2) {
        visible_.erase(std::find_if(visible_.begin(), visible_.end(), [&](const auto& s) { return whole(s.first); }));
        if (failed) return;
    }
}

/// When all is over.
void CommitWorld::judge() {
    for (const auto& job : jobs_)
        for (const Rank& rank : job->ranks) {
            const std::string who = fmt::format("generation {} rank {}", job->generation, rank.rank);
            must(!rank.alive || rank.done, who + " waits for ever");
            if (job->calm) must(rank.step == job->base + saves_, who + " has not saved all, and nothing went wrong");
        }
    for (const auto& [save, all] : verdicts_) {
        const std::string which = fmt::format("generation {} step {}: ", save.first, save.second);
        const CommitVerdict* one = nullptr;
        for (const CommitVerdict& verdict : all) {
            must(verdict.step == save.second, which + "the verdict is of another step");
            if (verdict.end == CommitEnd::given_up) continue;
            must(!one || *one == verdict, which + "ranks have different verdicts");
            one = &verdict;
        }
        if (!one) continue;
        const auto& faults = faults_[save];
        if (one->end == CommitEnd::good)
            must(faults.empty(), which + "is good, though something went wrong");
        else
            must(faults.count({one->end, one->rank}) == 1, which + "no such thing went wrong: " + one->text("a save"));
        must(one->why.empty() == (one->end == CommitEnd::good), which + "nothing is said of why");
        must(one->text("a save").empty() == (one->end == CommitEnd::good), which + "there is no text of it");
        if (!one->kept()) continue;
        must(published_.count(save) == 1 && taken_back_.count(save) == 0, which + "is good and not there");
        must(read_[save].size() == static_cast<size_t>(ranks_), which + "is good and was not read back by all");
    }
}

}  // namespace orrery::test
