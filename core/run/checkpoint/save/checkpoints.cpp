#include "run/checkpoint/save/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "run/checkpoint/format/cover.h"
#include "run/checkpoint/format/manifest.h"
#include "run/checkpoint/format/messages.h"
#include "run/checkpoint/format/problem_of.h"

namespace orrery {

Checkpoints::Checkpoints(CheckpointStore& store, const Mesh& mesh, int64_t rank, Gather gather,
                         CheckpointOptions options, Gather to_first, Broadcast from_first)
    : store_(store),
      mesh_(mesh.with_microbatches(1)),
      rank_(rank),
      options_(options),
      rounds_(rank, mesh_.ranks(), std::move(gather), std::move(to_first), std::move(from_first)),
      restore_(store, mesh_, rank, options.stage_axis, rounds_, notes_, options.drop),
      retirement_(store, options.keep) {
    retain({}, options_.keep, 0);  // throws if fewer than 2 newest steps are retained
}

std::optional<Restored> Checkpoints::restore(std::span<const StateValue> state, bool some, int64_t from) {
    std::optional<Restored> restored = restore_.into(state, some, from);
    if (restored && !some) retirement_.verified(restored->step);
    return restored;
}

/// Deletes an unfinished save of the step. Sets a damaged, suspect or foreign checkpoint aside; throws for a valid one.
void Checkpoints::make_way(int64_t step) {
    if (step < 0 || step > Manifest::last_step)
        throw Error(fmt::format("the step is out of range: the maximum step is {}", Manifest::last_step));
    store_.discard(step);
    if (has_step(store_, step) && !restore_.passed_over(step) && store_.mark_of(step).empty() &&
        damage_of(store_, step).empty())
        throw Error("it already exists\n  choose another folder for this run, or remove it");
    const std::string kept = store_.set_aside(step);
    if (!kept.empty()) notes_.push_back(fmt::format("the previous files of step {} were set aside as {}", step, kept));
}

/// A save on this rank: its inputs, and its results so far.
struct Checkpoints::OwnPart {
    int64_t step = 0;
    std::span<const StateValue> state;
    std::string_view host;
    std::vector<Share> shares = {};
    std::vector<std::string> votes = {};
    std::unique_ptr<WrittenStep> written = std::make_unique<WrittenStep>();
    std::string root = {};  ///< JSON of the new checkpoint's root, on rank 0 after judge()
};

/// Writes this rank's objects and index and flushes them. Returns its report to rank 0.
std::string Checkpoints::write(OwnPart& part) {
    const Json schema = schema_of(part.state);
    part.shares = shares_of(part.state, mesh_, rank_, options_.stage_axis, options_.share_bytes);
    for (const StateValue& value : part.state) part.votes.push_back(vote_of(value));
    ObjectWriter writer(store_, part.step, rank_, options_.object_bytes, options_.piece_bytes, written_.get());
    writer.write(part.state, part.shares, part.votes);
    store_.flush(part.step);
    part.written->index = writer.index();
    part.written->entry = writer.entry();
    for (size_t i = 0; i < part.state.size(); ++i) part.written->votes[part.state[i].name] = part.votes[i];
    return report_of(schema, part.state, part.shares, part.votes, writer, mesh_, rank_, options_.stage_axis);
}

/// Builds the checkpoint's root on rank 0 from all reports. Names the ranks with replicas that differ; "": none.
std::string Checkpoints::judge(OwnPart& part, const std::vector<std::string>& reports) {
    Assembled made = assemble(reports, part.step, mesh_, options_.stage_axis, options_.piece_bytes);
    if (made.unsound) retirement_.doubt();
    if (!made.disputed.empty()) return made.disputed;
    made.root.host = part.host;
    part.root = made.root.text();
    if (static_cast<int64_t>(part.root.size()) > Manifest::longest)
        throw Error(fmt::format("the manifest has {} bytes, the maximum is {}", part.root.size(), Manifest::longest));
    Manifest::parse(part.root, "the new manifest");
    return "";
}

/// Throws Error unless the written shards cover each block that this rank holds alone or as the lowest of its holders.
void Checkpoints::check_cover(std::span<const StateValue> state, const std::vector<Share>& shares,
                              const Manifest& own) {
    std::vector<Wanted> alone;
    for (size_t i = 0; i < state.size(); ++i)
        if (shares[i].count == 1) alone.push_back({state[i].name, shares[i].local});
    own.check_cover(alone);
    check_shared(store_, own.step, state, shares, mesh_, rank_, options_.stage_axis);
}

/// Reads back from the store what this rank wrote, on rank 0 also the checkpoint's root. Throws the first problem.
void Checkpoints::read_back(const OwnPart& part, CommitAnswer& answer) {
    const WrittenStep& written = *part.written;
    if (rank_ == 0) {
        const Manifest root = Manifest::root_of(store_, part.step);
        answer.object = RankIndex::key(rank_);
        if (!root.indexes.empty() && root.indexes.front().rank == 0) index_of(store_, root, root.indexes.front());
    } else if (!written.index.objects.empty()) {
        answer.object = RankIndex::key(rank_);
        Manifest own;
        own.step = part.step;
        own.piece_bytes = written.index.piece_bytes;
        index_of(store_, own, written.entry);
    }
    const Manifest own = manifest_of(part.state, written.index);
    for (size_t i = 0; i < own.objects.size(); ++i) {
        if (own.objects[i].written != part.step) continue;  // a linked object was read before it was linked
        answer.object = own.objects[i].key;
        const std::string problem = ObjectReader(store_, own, static_cast<int64_t>(i)).verify(false);
        if (!problem.empty()) throw Error(problem);
    }
    answer.object.clear();
    answer.uncovered = true;
    check_cover(part.state, part.shares, own);
}

/// Removes older steps that no retention rule keeps. A step that cannot be removed is reported once, and the next save
/// tries again.
void Checkpoints::retire() {
    for (const Verdict& verdict : retirement_.retire())
        if (verdict.failed && unremoved_.insert(verdict.step).second)
            notes_.push_back(fmt::format("checkpoint of step {} {}: {}", verdict.step,
                                         verdict.goes ? "was removed, but may be back after a power cut"
                                                      : "cannot be removed and is left, the next saves try again",
                                         verdict.why));
}

/// Performs the next action of the save's protocol (Commit) and passes on its result. Throws if a rank is missing.
void Checkpoints::perform(Commit& commit, OwnPart& part) {
    using Kind = CommitAction::Kind;
    const CommitAction action = commit.action();
    const auto done = [&](auto&& work) {
        CommitAnswer answer;
        std::string problem = problem_of([&] { work(answer); });
        answer.problem = std::move(problem);
        commit.done(answer);
    };
    switch (action.kind) {
        case Kind::check:
            return done([&](CommitAnswer&) {
                if (const std::string why = options_.diverged(part.state); !why.empty()) throw Error(why);
            });
        case Kind::make_way: return done([&](CommitAnswer&) { make_way(part.step); });
        case Kind::write: return done([&](CommitAnswer& answer) { answer.text = write(part); });
        case Kind::judge: return done([&](CommitAnswer& answer) { answer.text = judge(part, action.texts); });
        case Kind::publish: return done([&](CommitAnswer&) { store_.commit(part.step, part.root); });
        case Kind::look:
            return done([&](CommitAnswer& answer) {
                answer.there = has_step(store_, part.step) && store_.manifest(part.step) == part.root;
            });
        case Kind::vote:
            return done([&](CommitAnswer& answer) {
                answer.text = votes_in(part.state, part.shares, part.votes, action.text);
            });
        case Kind::blame: return done([&](CommitAnswer& answer) { answer.text = dispute_of(action.texts); });
        case Kind::discard: return done([&](CommitAnswer&) { store_.discard(part.step); });
        case Kind::read_back: return done([&](CommitAnswer& answer) { read_back(part, answer); });
        case Kind::take_back: return done([&](CommitAnswer&) { store_.remove(part.step); });
        case Kind::retire:
            return done([&](CommitAnswer&) {
                retirement_.verified(part.step);
                if (options_.retire) retire();
            });
        case Kind::to_all: return commit.gathered(rounds_.to_all(action.topic, action.text));
        case Kind::to_first: return commit.gathered(rounds_.to_first(action.topic, action.text));
        case Kind::from_first: return commit.told(rounds_.from_first(action.topic, action.text));
        case Kind::over: return;
    }
}

std::string Checkpoints::told() const {
    if (verdict_.end != CommitEnd::unsound)
        return verdict_.text(fmt::format("checkpoint of step {} in {}", verdict_.step, store_.place()));
    const auto steps = store_.steps();
    return fmt::format(
        "step {}: {} on rank {} are infinite, NaN or beyond 2^64; this state is not saved, {}\n  lower "
        "the learning rate, clip the gradient norm or check the data",
        verdict_.step, verdict_.why, verdict_.rank,
        steps.empty() ? "and there is no checkpoint before it"
                      : fmt::format("the newest checkpoint is of step {}", steps.front()));
}

void Checkpoints::save(int64_t step, std::span<const StateValue> state, std::string_view host) {
    if (step == saved_) return;
    Commit commit({.step = step, .rank = rank_, .ranks = mesh_.ranks(), .checks = bool(options_.diverged)});
    OwnPart part{step, state, host};
    try {
        while (!commit.over()) perform(commit, part);
    } catch (const std::exception& problem) {
        commit.give_up(problem.what());
        verdict_ = commit.verdict();
        throw;
    }
    verdict_ = commit.verdict();
    if (verdict_.kept()) {
        saved_ = step;
        written_ = std::move(part.written);
    }
    if (verdict_.end == CommitEnd::good) return;
    if (verdict_.end == CommitEnd::unretired) {
        if (rank_ == 0) notes_.push_back(told());
        return;
    }
    throw Error(told(), verdict_.end == CommitEnd::given_up ? Fault::peer : Fault::failed);
}

std::string read_back(CheckpointStore& store, int64_t step) {
    std::string damage;
    const std::string failure = problem_of([&] { damage = damage_of(store, step); });
    return of_step(step, failure.empty() ? damage : failure);
}

}  // namespace orrery
