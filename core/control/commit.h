#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// How a save ended, in the order in which the outcomes can occur.
enum class CommitEnd : uint8_t {
    open,         ///< the save is in progress
    given_up,     ///< this rank does not know the outcome: another rank is lost, or a newer generation has begun
    unsound,      ///< a rank's state has diverged: no rank began
    blocked,      ///< rank 0 could not free space for the step: no rank wrote
    unwritten,    ///< a rank could not write its part durably
    refused,      ///< the written parts are not a valid step: one is missing, or ranks contradict each other
    disputed,     ///< replicas of the same data differ
    unpublished,  ///< the store did not commit the step
    unread,       ///< a rank could not read back what it wrote
    uncovered,    ///< every rank read its own part back, but together the parts do not cover all values
    unretired,    ///< the step is good, but deciding which older steps to remove failed; the save did not fail
    good,         ///< every rank has read back its part of the committed step, and older steps are retired
};

/// Outcome of a save, the same on all ranks that received it.
struct CommitVerdict {
    /// What a failed save has left of the step: nothing, a visible step, or not known.
    enum class Left : uint8_t { nothing, step, unknown };

    CommitEnd end = CommitEnd::open;
    int64_t step = 0;
    int64_t rank = -1;        ///< rank at fault; -1: no single rank
    std::string object = {};  ///< object that could not be read back; "": none, or unknown
    std::string why = {};
    Left left = Left::nothing;
    std::string left_why = {};  ///< why the visible step remains, or why its presence is not known

    /// Whether the step is committed and was read back, even if older steps were not retired.
    bool kept() const { return end == CommitEnd::good || end == CommitEnd::unretired; }
    /// A message for users; "" if the save is good. `task`: "checkpoint of step 8 in runs/gpt/checkpoints".
    std::string text(const std::string& task) const;
    bool operator==(const CommitVerdict&) const = default;
};

/// The next action of one rank in a save. An action is either work on the rank's state or the store, answered by
/// Commit::done, or a round of messages in which all ranks take part. Actions marked (0) run only on rank 0.
struct CommitAction {
    enum class Kind : uint8_t {
        check,      ///< check whether this rank's state may be saved
        make_way,   ///< (0) make space for the step in the store
        write,      ///< write this rank's shares and index, then flush; the answer has its report
        judge,      ///< (0) check whether `texts`, all ranks' reports, make a step; the answer has what replicas
                    ///< dispute, "": nothing
        publish,    ///< (0) write the root, which makes the step visible
        look,       ///< (0) after a failed publish: check whether the step is visible; answers `there`
        vote,       ///< compute this rank's votes on the disputed parts in `text`; the answer has them
        blame,      ///< (0) determine from `texts`, all ranks' votes, which rank differs; the answer has the message
        discard,    ///< (0) remove what was written of a step that is not visible
        read_back,  ///< read this rank's part back from the store; answers `uncovered` if only others' parts are wrong
        take_back,  ///< (0) remove the visible step
        retire,     ///< (0) remove older steps, now that this one is known to be good

        to_all,      ///< round: every rank gets all ranks' `text`, passed to gathered()
        to_first,    ///< round: rank 0 gets all ranks' `text`; gathered() is called with no texts on the others
        from_first,  ///< round: every rank gets rank 0's `text`, passed to told()
        over,        ///< the save has ended; see verdict()
    };
    Kind kind = Kind::over;
    std::string_view topic = {};  ///< name of the round
    std::string text = {};
    std::vector<std::string> texts = {};  ///< texts of all ranks, by rank
};

/// Result of an action that is not a round.
struct CommitAnswer {
    std::string problem = {};  ///< why the action failed; "": it succeeded
    std::string text = {};     ///< result that the action asks for
    std::string object = {};   ///< object that the problem concerns; "": none
    bool there = false;        ///< result of look: the step is visible
    bool uncovered = false;    ///< result of read_back: the problem is not in this rank's own part
};

/// The protocol of a save as one rank's state machine: it decides which actions follow each other and how the save
/// ends. It has no state, store, network, clock or thread. The caller performs action(), passes the result to done(),
/// gathered() or told(), and repeats until over(). A Commit begins after the state is copied, and is for one step of
/// one generation.
class Commit {
public:
    struct Options {
        int64_t step = 0, rank = 0, ranks = 1;
        bool checks = false;  ///< check that the states may be saved, since they may have diverged
    };
    explicit Commit(const Options& options);

    const CommitAction& action() const { return action_; }
    bool over() const { return action_.kind == CommitAction::Kind::over; }
    /// Valid once over().
    const CommitVerdict& verdict() const { return verdict_; }

    // done(), gathered() and told() answer the current action; another kind of answer throws std::logic_error.
    void done(const CommitAnswer& answer);
    void gathered(const std::vector<std::string>& texts);
    void told(std::string_view text);
    /// Ends the save at any time, because other ranks of this generation are lost or this rank may no longer write.
    /// Nothing more is done: what was written stays for the next generation, and a visible step is complete.
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
    CommitVerdict verdict_;  ///< on rank 0: the outcome that it will send
};

}  // namespace orrery
