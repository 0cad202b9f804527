#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// How a save ended, in the order of the stages at which it can end.
enum class CommitEnd : uint8_t {
    open,         ///< the save has not ended, and nothing has failed so far
    given_up,     ///< this rank got no verdict: a rank was lost, or a newer generation has taken over
    unsound,      ///< a rank's state has diverged; nothing was written
    blocked,      ///< rank 0 could not free the step's place in the store; nothing was written
    unwritten,    ///< a rank could not write or flush its part
    refused,      ///< the reports of the ranks are incomplete or contradict each other
    disputed,     ///< ranks' replicas of a value differ
    unpublished,  ///< the store did not commit the step
    unread,       ///< a rank could not read its part back
    uncovered,    ///< a rank read its part back, but the written shards do not cover its values
    unretired,    ///< the step was committed and read back, but older steps could not be retired; a success
    good,         ///< every rank read its part of the committed step back, and older steps are retired
};

/// The result of a save, the same on all ranks that got it.
struct CommitVerdict {
    /// What a failed save left visible in the store.
    enum class Left : uint8_t { nothing, step, unknown };

    CommitEnd end = CommitEnd::open;
    int64_t step = 0;
    int64_t rank = -1;        ///< rank that failed; -1: no single rank
    std::string object = {};  ///< key of the object that could not be read back; "": none, or not known
    std::string why = {};
    Left left = Left::nothing;
    std::string left_why = {};  ///< why the step could not be removed, or why it is unknown whether the step is visible

    /// Whether the step is committed and was read back.
    bool kept() const { return end == CommitEnd::good || end == CommitEnd::unretired; }
    /// The failure as a message; "": none. `task`: "checkpoint of step 8 in runs/gpt/checkpoints".
    std::string text(const std::string& task) const;
    bool operator==(const CommitVerdict&) const = default;
};

/// The next action of one rank in a save: work on the rank's state or the store, or a communication round of all ranks.
struct CommitAction {
    enum class Kind : uint8_t {
        // Work on the rank's state or the store, answered by Commit::done().
        check,     ///< checks whether this rank's state may be saved
        make_way,  ///< rank 0 only: frees the step's place in the store
        write,     ///< writes this rank's objects and its index and flushes them; answers with its report
        judge,     ///< rank 0 only: builds the root from `texts`, all reports; answers with ranks that differ, "": none
        publish,   ///< rank 0 only: commits the step's root object, which makes the step visible
        look,      ///< rank 0 only, after a failed publish: answers in `there` whether the step is visible
        vote,      ///< answers with this rank's votes on values of which the ranks in `text` hold replicas
        blame,     ///< rank 0 only: compares `texts`, all votes; answers with a message that names differing ranks
        discard,   ///< rank 0 only: deletes the uncommitted step
        read_back,  ///< reads this rank's part from the store; sets `uncovered` if only other ranks' parts are wrong
        take_back,  ///< rank 0 only: removes the committed step
        retire,     ///< rank 0 only: retires older steps, because the new step has been read back

        // Communication rounds of all ranks.
        to_all,      ///< gathers the `text` of all ranks on each rank; answered by gathered()
        to_first,    ///< gathers the `text` of all ranks on rank 0; answered by gathered(), on other ranks with {}
        from_first,  ///< sends rank 0's `text` to all ranks, including rank 0; answered by told()

        over,  ///< nothing is left to do; verdict() is final
    };
    Kind kind = Kind::over;
    std::string_view topic = {};
    std::string text = {};                ///< input of `vote`, or this rank's text in a communication round
    std::vector<std::string> texts = {};  ///< input of `judge` and `blame`, by rank
};

/// The result of an action that is work on a rank's state or the store.
struct CommitAnswer {
    std::string problem = {};  ///< why the action failed; "": it succeeded
    std::string text = {};     ///< what the actions write, judge, vote and blame answer with
    std::string object = {};   ///< key of the object that failed to read back; "": none
    bool there = false;        ///< for action look: whether the step is visible
    bool uncovered = false;    ///< for action read_back: whether only other ranks' parts are wrong
};

/// The state machine of one save on one rank: it alone decides the order of the actions and the verdict. It has no I/O,
/// clock or threads. The caller performs action() and reports its result, until over(). It begins after the state was
/// copied, and serves one step of one generation.
class Commit {
public:
    struct Options {
        int64_t step = 0, rank = 0, ranks = 1;
        bool checks = false;  ///< whether states are checked before the save; the same on all ranks
    };
    explicit Commit(const Options& options);

    const CommitAction& action() const { return action_; }
    bool over() const { return action_.kind == CommitAction::Kind::over; }
    /// The save's result; final once over().
    const CommitVerdict& verdict() const { return verdict_; }

    // Answers to the current action. An answer that does not belong to the action throws std::logic_error.
    void done(const CommitAnswer& answer);
    void gathered(const std::vector<std::string>& texts);
    void told(std::string_view text);
    /// Ends the save at any time, because a rank was lost or a newer generation has taken over. What was written stays
    /// for the next generation to find. A step that is visible is complete.
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
    CommitVerdict verdict_;  ///< the save's result so far; rank 0 sends it in the next round
};

}  // namespace orrery
