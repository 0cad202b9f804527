#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// One piece of work of an actor (a rank, or several equal ones). The host of an actor issues its items in order. An
/// item starts once it is issued, all earlier items of its lane are done, and the items that it waits for are done.
struct ReplayItem {
    enum class Kind : uint8_t {
        work,     ///< computation: done when its cost has elapsed
        send,     ///< done when it has met its receive, or has taken one of the channel's slots
        receive,  ///< done when it has met its send
        meet,     ///< a collective: done when one item of every member of the meeting has started
    };
    Kind kind = Kind::work;
    int actor = 0;
    int lane = none;     ///< index of the lane of the actor, which runs items one by one; none: runs in no lane
    int channel = none;  ///< index of the channel of a send or receive, or of the meeting of a `meet`
    int group = none;    ///< index of a group of items that start together, and are done when all have met
    int held = none;     ///< index of a blocking item that must be done before this one is issued
    int64_t tag = 0;     ///< tag of a send or receive, for error messages
    int source = none;   ///< index of the first instruction in this item, for the caller
    int length = 1;
};

/// The input of a replay: the items of all actors, sorted by actor.
class ReplayView {
public:
    /// Starts the next actor, to which items are added from now on. Returns its index.
    int add_actor();
    /// Adds an item to the current actor and returns its index. `waits`: items of any actor, also later ones, that must
    /// be done before it starts. `holds`: earlier items of this actor that must be done before it is issued.
    int add(ReplayItem item, const std::vector<int>& waits = {}, const std::vector<int>& holds = {});
    /// Adds an ordered channel between two actors. `slots`: number of sends that may be done before they are received.
    int add_channel(int slots);
    /// Adds a meeting: a collective of `members` actors, each with one item at a time.
    int add_meeting(int members);
    int add_group();

    int size() const { return items.size(); }
    int actors() const { return first.size(); }
    int begin(int actor) const { return first[actor]; }
    int end(int actor) const { return actor + 1 < actors() ? begin(actor + 1) : size(); }
    const ReplayItem& at(int item) const { return items[item]; }

    std::vector<ReplayItem> items;
    std::vector<int> first;
    std::vector<int> channels;  ///< by channel: number of slots
    std::vector<int> meetings;
    std::vector<std::vector<int>> groups;
    std::vector<int> waits, wait_first{0};  ///< item i waits for waits[wait_first[i]] to waits[wait_first[i + 1] - 1]
    std::vector<int> holds, hold_first{0};
};

/// By item: the item that precedes it in its lane, or that precedes its whole group; none without such an item.
std::vector<int> before_in_lanes(const ReplayView& view);

/// What a replay asks and reports: durations of items, and events. The policy chooses the unit of time.
class ReplayPolicy {
public:
    static constexpr int64_t open_end = -1;
    static constexpr int64_t never = std::numeric_limits<int64_t>::max();

    virtual ~ReplayPolicy() = default;
    /// The duration of an item: of work from its start, of a send from the later start of send and receive, of a
    /// meeting from the start of its last member (`item`). `open_end`: not known until `ended` reports the item.
    virtual int64_t cost(int /*item*/) { return 0; }
    /// The time when the next item with an open end finishes if nothing else starts; `never` if none is running.
    virtual int64_t next_end() { return never; }
    /// Appends to `items` all items with an open end that finish now, at the time that next_end() returned.
    virtual void ended(int64_t /*now*/, std::vector<int>& /*items*/) {}
    /// Called when a send and its receive have met, before cost(send). May throw if the two do not match.
    virtual void met(int /*send*/, int /*receive*/) {}
    /// Called when all members of a meeting have started, before its cost; the last one to start is at the back.
    virtual void met_all(const std::vector<int>& /*members*/) {}
    /// Called when an item is done, in order of time; items of a lane in the order of the lane.
    virtual void done(int /*item*/) {}
};

/// Simulates the items of a view. Every actor proceeds as far as it can. Channels are in order and items are never
/// dropped, so the result does not depend on the order in which actors are visited (Kahn networks are confluent).
/// Linear in items and waits; with costs, also logarithmic in the number of running items.
class Replay {
public:
    Replay(const ReplayView& view, ReplayPolicy& policy);
    void run();

    bool issued(int item) const { return item < next_[view_.at(item).actor]; }
    bool started(int item) const { return (state_[item] & has_started) != 0; }
    bool met(int item) const { return (state_[item] & has_met) != 0; }
    bool done(int item) const { return (state_[item] & is_done) != 0; }
    /// The next item of the actor to be issued; view.end(actor) when all are issued.
    int next(int actor) const { return next_[actor]; }
    int64_t started_at(int item) const { return start_[item]; }
    int64_t done_at(int item) const { return end_[item]; }
    int64_t now() const { return now_; }

    /// An unfinished item that blocks the given one; nullopt if it waits for a partner that does not exist.
    std::optional<int> blocker(int item) const;
    /// All unfinished items that block the given one. Slower than `blocker`: it searches missing members of a meeting.
    std::vector<int> blockers(int item) const;
    /// The first started send of the channel that has not met its receive.
    std::optional<int> unmet_send(int channel) const;

private:
    enum State : uint8_t { has_started = 1, has_met = 2, is_done = 4 };
    /// Sends or receives of a channel that have not met their partner, in order.
    struct Queue {
        std::vector<int> items;
        size_t head = 0;
        bool empty() const { return head == items.size(); }
        int front() const { return items[head]; }
    };
    struct Open {
        Queue sends, receives;
        size_t buffered = 0;  ///< index of the first send that has neither met its receive nor taken a slot
        int taken = 0;
    };

    void link();
    void issue(int actor);
    bool held(int item) const;
    void freed(int entry);
    void start(int item);
    void exchange(int item);
    void buffer(int channel);
    void match(int channel);
    void meet(int item);
    void settle(int item, int64_t time);
    void take_ended();
    void finish(int item, int64_t time);
    void complete(int item);
    std::optional<int> undone_wait(int item) const;
    std::optional<int> partner(int item) const;
    std::optional<int> blocked_group(int item) const;
    int front_of_lane(int item) const;
    /// The elements of `all` that belong to an item; first[i]: index of the first element of item i.
    static std::pair<const int*, const int*> part(const std::vector<int>& all, const std::vector<int>& first,
                                                  int item) {
        return {all.data() + first[item], all.data() + first[item + 1]};
    }

    const ReplayView& view_;
    ReplayPolicy& policy_;
    std::vector<uint8_t> state_;
    std::vector<int> pending_;        ///< by item: conditions left before it starts
    std::vector<int> group_pending_;  ///< by group: conditions left before it starts, without lanes
    std::vector<int> group_unmet_;
    std::vector<int64_t> group_end_;
    std::vector<int64_t> start_, end_;
    std::vector<int> before_;
    std::vector<int> after_, after_first_;  ///< by item: what waits for it: 2 * item, or 2 * item + 1 for its group
    std::vector<int> next_;
    std::vector<Open> open_;
    std::vector<std::vector<int>> meeting_;
    std::vector<std::pair<int64_t, int>> running_;  ///< min-heap of (end time, item) of running items
    std::vector<int> finished_;                     ///< items done at the current time, not yet reported
    /// By item with an open end: further items that finish when it does.
    std::unordered_map<int, std::vector<int>> together_;
    std::vector<int> ended_;
    int64_t now_ = 0;
};

}  // namespace orrery
