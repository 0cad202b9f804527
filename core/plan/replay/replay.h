#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orrery/program.h"

namespace orrery {

/// One piece of an actor's work. The host of an actor issues its items in order; an item starts when it was issued, all
/// before it in its lane is done, and so is what it waits for.
struct ReplayItem {
    enum class Kind : uint8_t {
        work,     ///< done when its cost is over
        send,     ///< done when it has met its receive, or has found one of the channel's slots
        receive,  ///< done when it has met its send
        meet,     ///< done when one item of every member of the meeting has started
    };
    Kind kind = Kind::work;
    int actor = 0;
    int lane = none;     ///< of the actor; none: nothing stands in its way
    int channel = none;  ///< of sends and receives, which meet in order; of a meet: the meeting
    int group = none;    ///< sends and receives that start when all can, and are done when all have met
    int held = none;     ///< item that must be done before this one is issued: a call that has not returned
    int64_t tag = 0;     ///< of sends and receives: what tells them apart in messages about them
    int source = none;   ///< what it stands for in the caller's list: the first of `length`
    int length = 1;
};

/// What is played: each actor's items one after the other, actor by actor.
class ReplayView {
public:
    /// Opens the next actor; items that are added are its own.
    int add_actor();
    /// `waits`: items, of any actor and perhaps added later, that must be done before it starts. `holds`: earlier items
    /// of the actor that must be done before it is issued.
    int add(ReplayItem item, const std::vector<int>& waits = {}, const std::vector<int>& holds = {});
    /// Of one actor's sends to another. `slots`: how many are done before they are received.
    int add_channel(int slots);
    /// How many actors meet.
    int add_meeting(int members);
    int add_group();

    int size() const { return items.size(); }
    int actors() const { return first.size(); }
    int begin(int actor) const { return first[actor]; }
    int end(int actor) const { return actor + 1 < actors() ? begin(actor + 1) : size(); }
    const ReplayItem& at(int item) const { return items[item]; }

    std::vector<ReplayItem> items;
    std::vector<int> first;
    std::vector<int> channels;  ///< slots
    std::vector<int> meetings;
    std::vector<std::vector<int>> groups;   ///< items
    std::vector<int> waits, wait_first{0};  ///< item i has waits[wait_first[i]] to waits[wait_first[i + 1]]
    std::vector<int> holds, hold_first{0};
};

/// By item: what its lane does before it, or before its group; none: nothing, or it has no lane.
std::vector<int> before_in_lanes(const ReplayView& view);

/// What a replay is for.
class ReplayPolicy {
public:
    static constexpr int64_t open_end = -1;
    static constexpr int64_t never = std::numeric_limits<int64_t>::max();

    virtual ~ReplayPolicy() = default;
    /// Of work: how long it takes; of a send: how long behind the later of its start and the receive's; of the last
    /// that comes to a meeting: how long behind that. `open_end`: until `ended` names the item.
    virtual int64_t cost(int /*item*/) { return 0; }
    /// When the next item of an open end is over if nothing else begins; `never`: none runs.
    virtual int64_t next_end() { return never; }
    /// Names all that are over at this moment, which next_end() gave.
    virtual void ended(int64_t /*now*/, std::vector<int>& /*items*/) {}
    /// May throw where the two do not fit. Before the cost of the send is asked.
    virtual void met(int /*send*/, int /*receive*/) {}
    /// All members of a meeting have come, the last one is at the end. Before its cost is asked.
    virtual void met_all(const std::vector<int>& /*members*/) {}
    /// In the order of time; of one lane in its order.
    virtual void done(int /*item*/) {}
};

/// Plays a view: the one engine of time. Every actor goes as far as it can. Channels are in order and items are never
/// dropped, so that what is done in the end, and when, does not depend on who is looked at first (Kahn networks are
/// confluent). Linear in items and waits, with costs times the logarithm of what runs at once.
class Replay {
public:
    Replay(const ReplayView& view, ReplayPolicy& policy);
    void run();

    bool issued(int item) const { return item < next_[view_.at(item).actor]; }
    bool started(int item) const { return (state_[item] & has_started) != 0; }
    bool met(int item) const { return (state_[item] & has_met) != 0; }
    bool done(int item) const { return (state_[item] & is_done) != 0; }
    /// The item that the actor's host issues next; view.end(actor) behind the last.
    int next(int actor) const { return next_[actor]; }
    int64_t started_at(int item) const { return start_[item]; }
    int64_t done_at(int item) const { return end_[item]; }
    int64_t now() const { return now_; }

    /// What an item that is not done waits for, an item that is not done either; nullopt: a partner that never comes.
    std::optional<int> blocker(int item) const;
    /// What it waits for: all of its waits, and all that are missing in a collective; else what `blocker` names. Looks
    /// through the whole view for a collective.
    std::vector<int> blockers(int item) const;
    /// The first item of the channel that has started without having met.
    std::optional<int> unmet_send(int channel) const;

private:
    enum State : uint8_t { has_started = 1, has_met = 2, is_done = 4 };
    /// Started items that have not met, in order.
    struct Queue {
        std::vector<int> items;
        size_t head = 0;
        bool empty() const { return head == items.size(); }
        int front() const { return items[head]; }
    };
    struct Open {
        Queue sends, receives;
        size_t buffered = 0;  ///< sends up to here have been done, perhaps without having met
        int taken = 0;        ///< slots
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
    /// An item's own part of a list by item.
    static std::pair<const int*, const int*> part(const std::vector<int>& all, const std::vector<int>& first,
                                                  int item) {
        return {all.data() + first[item], all.data() + first[item + 1]};
    }

    const ReplayView& view_;
    ReplayPolicy& policy_;
    std::vector<uint8_t> state_;
    std::vector<int> pending_;        ///< by item: what must be over before it starts
    std::vector<int> group_pending_;  ///< by group: of all its items, but for their lanes
    std::vector<int> group_unmet_;
    std::vector<int64_t> group_end_;
    std::vector<int64_t> start_, end_;
    std::vector<int> before_;               ///< by item: what its lane does before it, or before its group
    std::vector<int> after_, after_first_;  ///< by item: what it frees, item * 2, + 1 where the wait is a group's
    std::vector<int> next_;                 ///< by actor
    std::vector<Open> open_;                ///< by channel
    std::vector<std::vector<int>> meeting_;
    std::vector<std::pair<int64_t, int>> running_;  ///< a heap: end, item
    std::vector<int> finished_;                     ///< done at this moment, not yet told
    /// By item with an open end: what is over with it.
    std::unordered_map<int, std::vector<int>> together_;
    std::vector<int> ended_;
    int64_t now_ = 0;
};

}  // namespace orrery
