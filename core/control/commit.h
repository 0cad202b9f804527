#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// How a save ended, in the order in which it can.
enum class CommitEnd : uint8_t {
    open,         ///< it has not yet
    given_up,     ///< this rank has no verdict: another one is lost, or a newer generation has begun
    unsound,      ///< a rank's state has diverged: nothing was begun
    blocked,      ///< rank 0 could not make way for the step: nothing was written
    unwritten,    ///< a rank could not write its part, or not durably
    refused,      ///< what all have written is no step: it is not whole, or ranks contradict each other
    disputed,     ///< replicas differ
    unpublished,  ///< the store did not commit it
    unread,       ///< a rank could not read back what it wrote
    uncovered,    ///< a rank read its own back, but what all have written does not cover its values
    unretired,    ///< the step is good, but which older ones go could not be found: no failure of the save
    good,         ///< every rank has read its part of the committed step back, and older ones are retired
};

/// What became of a save: the same on all ranks that were told.
struct CommitVerdict {
    /// What a save that is not good has left of the step in sight.
    enum class Left : uint8_t { nothing, step, unknown };

    CommitEnd end = CommitEnd::open;
    int64_t step = 0;
    int64_t rank = -1;        ///< on which it went wrong, -1: on none of its own
    std::string object = {};  ///< which it could not read back, "": none, or it cannot say
    std::string why = {};
    Left left = Left::nothing;
    std::string left_why = {};  ///< that it is there, or that this cannot be said

    /// The step is committed and was read back, whatever became of older ones.
    bool kept() const { return end == CommitEnd::good || end == CommitEnd::unretired; }
    /// For people. `task`: "checkpoint of step 8 in runs/gpt/checkpoints". "" for one that is good in all.
    std::string text(const std::string& task) const;
    bool operator==(const CommitVerdict&) const = default;
};

/// What is to be done next for a rank's part of a save: work on its state or the store, answered by Commit::done, or a
/// round of all ranks.
struct CommitAction {
    enum class Kind : uint8_t {
        check,      ///< whether this rank's state may be saved
        make_way,   ///< in the store, for the step. Rank 0's, as all below that are so marked: (0)
        write,      ///< this rank's shares, then its index, then flush; answers with its report
        judge,      ///< (0) whether `texts`, all reports, make a step; answers with what replicas dispute, "": nothing
        publish,    ///< (0) the root, which makes the step visible
        look,       ///< (0) whether the step is visible, as publishing it failed; answers `there`
        vote,       ///< answers with this rank's votes of what is disputed, `text`
        blame,      ///< (0) answers with who differs, by `texts`, all votes
        discard,    ///< (0) what was written of the step and is not visible
        read_back,  ///< this rank's part, from the store; answers `uncovered` where only others' parts are amiss
        take_back,  ///< (0) the visible step
        retire,     ///< (0) older steps, now that this one is known to be good

        to_all,      ///< everybody's `text` to everybody: gathered()
        to_first,    ///< everybody's `text` to rank 0: gathered(), on the others with nothing
        from_first,  ///< rank 0's `text` to all, itself too: told()
        over,        ///< nothing: verdict()
    };
    Kind kind = Kind::over;
    std::string_view topic = {};  ///< of a round
    std::string text = {};
    std::vector<std::string> texts = {};  ///< by rank
};

/// How an action that is no round went.
struct CommitAnswer {
    std::string problem = {};  ///< "": well
    std::string text = {};     ///< what the action asks for
    std::string object = {};   ///< that the problem is of, "": of none
    bool there = false;        ///< of look
    bool uncovered = false;    ///< of read_back: the problem is not of this rank's own part
};

/// One rank's part of one save: what is done in which order, and what becomes of it. The one place that knows either.
/// Has no state, store, network, clock or thread: whoever has them does what action() says, one after the other, and
/// tells how it went. From the state's copy on; for one step of one generation.
class Commit {
public:
    struct Options {
        int64_t step = 0, rank = 0, ranks = 1;
        bool checks = false;  ///< states may be such that they are not saved
    };
    explicit Commit(const Options& options);

    const CommitAction& action() const { return action_; }
    bool over() const { return action_.kind == CommitAction::Kind::over; }
    /// Counts once it is over.
    const CommitVerdict& verdict() const { return verdict_; }

    // What happened. Each but the last answers the action at hand; another one throws std::logic_error.
    void done(const CommitAnswer& answer);
    void gathered(const std::vector<std::string>& texts);
    void told(std::string_view text);
    /// At any time: ranks of this generation do not come any more, or it may do nothing any more. Nothing follows, what
    /// was written stays for the next generation to find; a step that is visible is whole.
    void give_up(const std::string& why);

private:
    void enter(CommitAction::Kind kind, std::string text = {}, std::string_view topic = {});
    void begin();
    void tell(std::string_view topic);
    void fail(CommitEnd end, const std::string& why);
    void finish(const CommitVerdict& verdict);
    bool first() const { return options_.rank == 0; }
    CommitVerdict found(const std::vector<std::string>& words) const;

    Options options_;
    CommitAction action_;
    CommitVerdict verdict_;  ///< on rank 0 what it is about to tell
};

}  // namespace orrery
