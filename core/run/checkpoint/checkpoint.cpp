#include "run/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/checkpoint/format/cover.h"
#include "run/checkpoint/format/messages.h"
#include "run/checkpoint/format/problem_of.h"
#include "run/checkpoint/manifest.h"

namespace orrery {

namespace {
const std::string uncovered = "what was written does not cover its values: ";
}

Checkpoints::Checkpoints(CheckpointStore& store, const Mesh& mesh, int64_t rank, Gather gather,
                         CheckpointOptions options, Gather to_first, Broadcast from_first)
    : store_(store),
      mesh_(mesh.with_microbatches(1)),
      rank_(rank),
      gather_(std::move(gather)),
      to_first_(std::move(to_first)),
      from_first_(std::move(from_first)),
      options_(options),
      retirement_(store, options.keep) {
    retain({}, options_.keep);  // throws for fewer than two
}

Checkpoints::~Checkpoints() = default;

/// Everyone's text on rank 0; what the others get is not to be used.
std::vector<std::string> Checkpoints::collect(const std::string& what, const std::string& mine) {
    const std::string topic = fmt::format("checkpoint/{}/{}", exchanges_++, what);
    std::vector<std::string> all = to_first_ ? to_first_(topic, mine) : gather_(topic, mine);
    if (rank_ == 0 && static_cast<int64_t>(all.size()) != mesh_.ranks())
        throw Error(fmt::format("{} ranks answered, the mesh has {}", all.size(), mesh_.ranks()), Fault::peer);
    return all;
}

/// Rank 0's text.
std::string Checkpoints::hear(const std::string& what, const std::string& mine) {
    const std::string topic = fmt::format("checkpoint/{}/{}", exchanges_++, what), said = rank_ == 0 ? mine : "";
    return from_first_ ? from_first_(topic, said) : gather_(topic, said).at(0);
}

/// Drops a half-written one of the same step; one that was passed over, or is none, is kept elsewhere.
void Checkpoints::make_way(int64_t step) {
    store_.discard(step);
    if (has_step(store_, step) && passed_over_.count(step) == 0 && store_.mark_of(step).empty() &&
        damage_of(store_, step).empty())
        throw Error("it is there already\n  choose another folder for this run, or remove it");
    const std::string kept = store_.set_aside(step);
    if (!kept.empty()) notes_.push_back(fmt::format("what stood in the place of step {} is kept as {}", step, kept));
}

/// Nobody writes before rank 0 has made way. Throws on every rank when it cannot.
void Checkpoints::begin(int64_t step, const std::string& task) {
    const std::string problem =
        hear("begin", rank_ != 0 ? "" : problem_of([&] {
                 if (step < 0 || step > Manifest::last_step)
                     throw Error(fmt::format("the last step that can be is {}", Manifest::last_step));
                 make_way(step);
             }));
    if (!problem.empty()) throw Error(fmt::format("{} failed on rank 0: {}", task, problem), Fault::failed);
}

/// What a failed commit has left, as far as the store tells.
std::string Checkpoints::seen_after(int64_t step) {
    bool there = false;
    const std::string problem = problem_of([&] { there = has_step(store_, step); });
    if (!problem.empty()) return "\n  whether the step is there cannot be seen: " + problem;
    return there ? "\n  the step is there all the same, and may not outlive a power cut" : "";
}

/// On rank 0: commits what all have written; "" or why not. `disputed`: the replicas do not agree.
std::string Checkpoints::conclude(int64_t step, std::string_view host, const std::vector<std::string>& reports,
                                  std::string& disputed) {
    std::string failure = problem_of([&] {
        Assembled made = assemble(reports, step, mesh_, options_.stage_axis, options_.piece_bytes);
        if (made.unsound) retirement_.doubt();
        disputed = made.disputed;
        if (!disputed.empty()) return;
        made.root.host = host;
        const std::string text = made.root.text();
        if (static_cast<int64_t>(text.size()) > Manifest::longest)
            throw Error(
                fmt::format("the manifest has {} bytes, at most {} are possible", text.size(), Manifest::longest));
        Manifest::parse(text, "the new manifest");
        const std::string problem = problem_of([&] { store_.commit(step, text); });
        if (!problem.empty()) throw Error("on rank 0: " + problem + seen_after(step));
    });
    return failure;
}

/// Names the value and the ranks that differ. One round more, which a save that is good does without.
std::string Checkpoints::blame(std::span<const StateValue> state, const std::vector<Share>& shares,
                               const std::vector<std::string>& votes, const std::string& disputed) {
    const std::vector<std::string> all = collect("votes", votes_in(state, shares, votes, disputed));
    std::string failure;
    if (rank_ == 0) {
        const std::string problem = problem_of([&] { failure = dispute_of(all); });
        if (!problem.empty()) failure = problem;
    }
    return hear("blame", failure);
}

/// The first of those who hold a block reads what all of them say they have written of it.
void Checkpoints::check_cover(std::span<const StateValue> state, const std::vector<Share>& shares,
                              const Manifest& own) {
    std::vector<Wanted> alone;
    for (size_t i = 0; i < state.size(); ++i)
        if (shares[i].count == 1) alone.push_back({state[i].name, shares[i].local});
    own.check_cover(alone);
    check_shared(store_, own.step, state, shares, mesh_, rank_, options_.stage_axis);
}

/// Reads what this rank wrote from the store again; the text of what is wrong. Rank 0 reads the root, too.
std::string Checkpoints::read_back(std::span<const StateValue> state, const std::vector<Share>& shares,
                                   const WrittenStep& written) {
    const int64_t step = written.index.step;
    return problem_of([&] {
        if (rank_ == 0) {
            const Manifest root = Manifest::root_of(store_, step);
            if (!root.indexes.empty() && root.indexes.front().rank == 0) index_of(store_, root, root.indexes.front());
        } else if (!written.index.objects.empty()) {
            Manifest own;
            own.step = step;
            own.piece_bytes = written.index.piece_bytes;
            index_of(store_, own, written.entry);
        }
        const Manifest own = manifest_of(state, written.index);
        for (size_t i = 0; i < own.objects.size(); ++i) {
            if (own.objects[i].written != step) continue;  // it was read before it was linked
            const std::string problem = ObjectReader(store_, own, static_cast<int64_t>(i)).verify(false);
            if (!problem.empty()) throw Error(problem);
        }
        const std::string problem = problem_of([&] { check_cover(state, shares, own); });
        if (!problem.empty()) throw Error(uncovered + problem);
    });
}

/// On rank 0: takes the step back unless everybody could read it, then retires older ones; "" or what to throw.
std::string Checkpoints::end(int64_t step, const std::vector<std::string>& reads, const std::string& task) {
    // Who cannot read its own is at fault, before who finds that of others.
    auto bad = std::find_if(reads.begin(), reads.end(),
                            [](const std::string& said) { return !said.empty() && !said.starts_with(uncovered); });
    if (bad == reads.end())
        bad = std::find_if(reads.begin(), reads.end(), [](const std::string& said) { return !said.empty(); });
    if (bad != reads.end()) {
        const std::string kept = problem_of([&] { store_.remove(step); });
        return fmt::format("{} could not be read back on rank {}: {}\n  it {}, earlier ones are as they were", task,
                           bad - reads.begin(), *bad,
                           kept.empty() ? "was removed" : "could not be removed (" + kept + ")");
    }
    retirement_.verified(step);
    const std::string problem = options_.retire ? problem_of([&] { retirement_.retire(); }) : "";
    return problem.empty() ? "" : task + " is good, but removing older ones failed on rank 0: " + problem;
}

// Rank 0 begins, everybody writes and reports, rank 0 commits or not, everybody reads and reports, rank 0 ends.
void Checkpoints::save(int64_t step, std::span<const StateValue> state, std::string_view host) {
    if (step == saved_) return;
    const std::string task = fmt::format("checkpoint of step {} in {}", step, store_.place());
    begin(step, task);

    auto written = std::make_unique<WrittenStep>();
    std::vector<Share> shares;
    std::vector<std::string> votes;
    std::string report;
    const std::string problem = problem_of([&] {
        const Json schema = schema_of(state);
        shares = shares_of(state, mesh_, rank_, options_.stage_axis, options_.share_bytes);
        for (const StateValue& value : state) votes.push_back(vote_of(value));
        ObjectWriter writer(store_, step, rank_, options_, written_.get());
        writer.write(state, shares, votes);
        store_.flush(step);
        written->index = writer.index();
        written->entry = writer.entry();
        for (size_t i = 0; i < state.size(); ++i) written->votes[state[i].name] = votes[i];
        report = report_of(schema, state, shares, votes, writer, mesh_, rank_, options_.stage_axis);
    });
    const std::vector<std::string> reports =
        collect("report", problem.empty() ? report : report_of_problem(step, problem));

    std::string disputed, failure;
    if (rank_ == 0) failure = conclude(step, host, reports, disputed);
    const Json verdict = parse_message(hear("verdict", message_text({{"failure", failure}, {"disputed", disputed}})));
    failure = verdict.at("failure").get<std::string>();
    if (disputed = verdict.at("disputed").get<std::string>(); failure.empty() && !disputed.empty())
        failure = blame(state, shares, votes, disputed);
    if (!failure.empty()) {
        if (rank_ == 0) problem_of([&] { store_.discard(step); });
        throw Error(task + " failed: " + failure + "\n  earlier checkpoints are as they were", Fault::failed);
    }

    const std::vector<std::string> reads = collect("read", read_back(state, shares, *written));
    failure = hear("end", rank_ == 0 ? end(step, reads, task) : "");
    if (failure.empty() || failure.starts_with(task + " is good")) {
        saved_ = step;
        written_ = std::move(written);
    }
    if (!failure.empty()) throw Error(failure, Fault::failed);
}

std::string read_back(CheckpointStore& store, int64_t step) {
    std::string damage;
    const std::string failure = problem_of([&] { damage = damage_of(store, step); });
    return of_step(step, failure.empty() ? damage : failure);
}

}  // namespace orrery
