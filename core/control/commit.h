#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// How a save ended, in the order of the stages at which it can end.
enum class CommitEnd : uint8_t {
    open,         ///< the save has not ended
    given_up,     ///< this rank got no verdict: a rank was lost, or a newer generation has taken over
    unsound,      ///< a rank's state has diverged; nothing was begun
    blocked,      ///< rank 0 could not free the step's place; nothing was written
    unwritten,    ///< a rank could not write or flush its part
    refused,      ///< the reports of the ranks are incomplete or contradict each other
    disputed,     ///< replicas of a value differ
    unpublished,  ///< the store did not commit the step
    unread,       ///< a rank could not read its part back
    uncovered,    ///< a rank read its part back, but the written shards do not cover its values
    unretired,    ///< the step is good, but retiring older ones failed; the save succeeded
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
    std::string left_why = {};  ///< why the step could not be removed, or is not known to be there

    /// Whether the step is committed and was read back.
    bool kept() const { return end == CommitEnd::good || end == CommitEnd::unretired; }
    /// The failure as a message; "": none. `task`: "checkpoint of step 8 in runs/gpt/checkpoints".
    std::string text(const std::string& task) const;
    bool operator==(const CommitVerdict&) const = default;
};

/// The next action of one rank in a save: work on its state or the store, or a communication round of all ranks.
struct CommitAction {
    enum class Kind : uint8_t {
        // Work, answered by Commit::done(). (0): on rank 0 only.
        check,      ///< checks whether this rank's state may be saved
        make_way,   ///< (0) frees the step's place in the store
        write,      ///< writes this rank's objects and its index and flushes them; answers with its report
        judge,      ///< (0) builds the root from `texts`, all reports; answers with holders that differ, "": none
        publish,    ///< (0) commits the root, which makes the step visible
        look,       ///< (0) after a failed publish: answers in `there` whether the step is visible
        vote,       ///< answers with this rank's votes on the values shared by the holders in `text`
        blame,      ///< (0) finds the ranks that differ from `texts`, all votes; answers with a message
        discard,    ///< (0) deletes the uncommitted step
        read_back,  ///< reads this rank's part from the store; sets `uncovered` if only other ranks' parts are wrong
        take_back,  ///< (0) removes the committed step
        retire,     ///< (0) retires older steps, because this one is known to be good

        // Rounds.
        to_all,      ///< gathers the `text` of all ranks on all ranks; answered by gathered()
        to_first,    ///< gathers the `text` of all ranks on rank 0; answered by gathered(), on other ranks with {}
        from_first,  ///< sends rank 0's `text` to all ranks, itself included; answered by told()

        over,  ///< nothing is left to do; verdict() is final
    };
    Kind kind = Kind::over;
    std::string_view topic = {};          ///< name of the round
    std::string text = {};                ///< input of `vote`, or this rank's text in a round
    std::vector<std::string> texts = {};  ///< input of `judge` and `blame`, by rank
};

/// The result of an action that is not a round.
struct CommitAnswer {
    std::string problem = {};  ///< why it failed; "": it succeeded
    std::string text = {};     ///< result of write, judge, vote or blame
    std::string object = {};   ///< key of the object that failed to read back; "": none
    bool there = false;        ///< result of look: whether the step is visible
    bool uncovered = false;    ///< for read_back: the problem is in the parts of other ranks
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
    /// The result; final once over().
    const CommitVerdict& verdict() const { return verdict_; }

    // The answers to the current action. An answer that does not belong to it throws std::logic_error.
    void done(const CommitAnswer& answer);
    void gathered(const std::vector<std::string>& texts);
    void told(std::string_view text);
    /// Ends the save at any time, because a rank was lost or this generation may do nothing any more. What was written
    /// stays for the next generation to find. A step that is visible is complete.
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
    CommitVerdict verdict_;  ///< on rank 0 the verdict that it sends next
};

}  // namespace orrery
