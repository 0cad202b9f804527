#include "plan/replay/plan_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <set>

#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/print.h"

namespace orrery {

namespace {

constexpr int compute_lane = 0;
/// Upper bound for items when more members are simulated than a proof needs; so many take about 0.5 GB.
constexpr int64_t most_items = int64_t{1} << 22;

int64_t instructions(const Plan& plan) {
    int64_t all = 0;
    for (const RankClass& c : plan.classes) all += issues(c);
    return all;
}

std::vector<int> distinct(std::vector<int> actors) {
    std::sort(actors.begin(), actors.end());
    actors.erase(std::unique(actors.begin(), actors.end()), actors.end());
    return actors;
}

}  // namespace

Between::Between(int instructions, int lanes)
    : lanes_(lanes),
      after_(instructions * lanes_, none),
      issued_(lanes_, none),
      told_(lanes_, none),
      last_(lanes_, none) {}

void Between::join(int* to, const int* from) const {
    for (size_t lane = 0; lane < lanes_; ++lane) to[lane] = std::max(to[lane], from[lane]);
}

void Between::enter(const ReplayItem& item, const std::vector<int>& waits, const std::vector<int>& holds) {
    ++position_;
    lane_ = item.lane;
    for (const int hold : holds) join(issued_.data(), after(hold));
    int* const mine = after(position_);
    join(mine, issued_.data());
    for (const int wait : waits) join(mine, after(wait));
    int& before = last_[lane_];
    if (before != none) join(mine, after(before));
    before = position_;
    waits_.clear();
    holds_.clear();
    if (item.kind == ReplayItem::Kind::work) return;
    for (size_t lane = 0; lane < lanes_; ++lane) {
        if (issued_[lane] > told_[lane]) holds_.push_back(told_[lane] = issued_[lane]);
        if (mine[lane] > issued_[lane] && lane != static_cast<size_t>(lane_)) waits_.push_back(mine[lane]);
    }
}

void Between::entered(int item) {
    int& mine = after(position_)[lane_];
    mine = std::max(mine, item);
}

PlanView::PlanView(const Plan& plan, const Network& contracts, const std::vector<int>& class_of, int64_t members,
                   Detail detail)
    : plan_(plan), actors_of_ranks_(class_of.size(), none), detail_(detail) {
    for (AxisId axis = 0; axis < plan.mesh.ids(); ++axis) contracts_.push_back(contracts.of(plan.mesh.axis(axis).name));
    const int64_t streams = std::max<int64_t>(instructions(plan), 1);
    choose_axes(class_of, std::min(members, std::max<int64_t>(most_items / streams, 1)));
    find_actors(class_of);
    int64_t items = 0;
    for (const Actor& actor : actors_) items += issues(class_at(actor));
    if (items > INT_MAX)
        throw Error(
            fmt::format("plan too large to check the order of messages: {} instructions of {} members, the limit is {}",
                        items, actors_.size(), INT_MAX),
            Fault::failed);
    find_members();
    std::vector<int> groups;
    for (size_t a = 0; a < actors_.size(); ++a) {
        if (a == 0 || actors_[a].of_class != actors_[a - 1].of_class)
            groups = groups_of(plan, class_at(actors_[a]), contracts);
        add_actor(actors_[a], groups);
    }
}

/// Whether some ranks that differ only in their coordinate on the axis belong to different classes.
bool PlanView::varies(AxisId axis, const std::vector<int>& class_of) const {
    for (int64_t rank = 0; rank < plan_.mesh.ranks(); ++rank)
        if (class_of[rank] != class_of[rank - own(rank, axis) * stride(axis)]) return true;
    return false;
}

/// Chooses the axes on which members are simulated one by one. One actor suffices on an axis without messages, and on
/// one with only relative messages and the same classes everywhere (proof in README.md). On the latter, up to `members`
/// are simulated nevertheless, so that errors can name them.
void PlanView::choose_axes(const std::vector<int>& class_of, int64_t members) {
    const auto& axes = plan_.mesh.axes();
    strides_.assign(axes.size(), 1);
    for (size_t a = axes.size(); a-- > 1;) strides_[a - 1] = strides_[a] * (axes[a].sequential ? 1 : axes[a].size);
    played_.assign(axes.size(), 0);
    std::vector<char> messages(axes.size(), 0), fixed(axes.size(), 0);
    for (const RankClass& c : plan_.classes)
        for (const Instruction& i : c.stream)
            if (is_message(i.opcode)) (i.relative ? messages : fixed)[i.axis] = 1;
    int64_t alike = 1;  // members simulated only so that errors can name them
    for (size_t a = 0; a < axes.size(); ++a) {
        if (!messages[a] && !fixed[a]) continue;
        played_[a] = 1;
        if (fixed[a] || varies(a, class_of)) continue;
        played_[a] = alike * axes[a].size <= members;
        if (played_[a]) alike *= axes[a].size;
    }
}

void PlanView::find_actors(const std::vector<int>& class_of) {
    std::map<std::pair<int, int64_t>, int> known;
    for (size_t k = 0; k < plan_.classes.size(); ++k)
        for (const int64_t rank : plan_.classes[k].ranks) {
            int64_t place = 0;
            for (size_t a = 0; a < played_.size(); ++a)
                if (played_[a]) place += own(rank, a) * strides_[a];
            const auto [found, fresh] = known.try_emplace({class_of[rank], place}, actors_.size());
            if (fresh) actors_.push_back({static_cast<int>(k), {}, {}});
            actors_[found->second].ranks.push_back(rank);
            actors_of_ranks_[rank] = found->second;
        }
}

void PlanView::find_members() {
    for (Actor& actor : actors_)
        for (size_t a = 0; a < played_.size(); ++a) {
            std::vector<int>& members = actor.members.emplace_back();
            if (plan_.mesh.axes()[a].sequential) continue;
            for (const int64_t rank : plan_.mesh.group(actor.rank(), a)) members.push_back(actors_of_ranks_[rank]);
        }
    // Along a joined axis, all ranks of an actor see the same actors if they do along each of its axes.
    for (const AxisId axis : joined_axes(plan_))
        for (Actor& actor : actors_) {
            actor.members.resize(plan_.mesh.ids());
            for (const int64_t rank : plan_.mesh.group(actor.rank(), axis))
                actor.members[axis].push_back(actors_of_ranks_[rank]);
        }
    for (size_t a = 0; a < played_.size(); ++a)
        if (!plan_.mesh.axes()[a].sequential) require_alike(a);
}

/// Throws Error unless all ranks of an actor see the same actors in the same order along the axis. Linear in all ranks.
void PlanView::require_alike(AxisId axis) const {
    const auto size = plan_.mesh.axis(axis).size;
    const auto line_of = [&](int64_t rank) {
        std::vector<int> line;
        const int64_t first = rank - own(rank, axis) * stride(axis);
        for (int64_t m = 0; m < size; ++m) line.push_back(actors_of_ranks_[first + m * stride(axis)]);
        return line;
    };
    for (int64_t first = 0; first < plan_.mesh.ranks(); ++first) {
        if (own(first, axis) != 0) continue;
        const std::vector<int> line = line_of(first);
        for (const int at : std::set<int>(line.begin(), line.end())) {
            const Actor& actor = actors_[at];
            const std::vector<int>& members = actor.members[axis];
            if (members == line) continue;
            const auto m = std::mismatch(line.begin(), line.end(), members.begin()).first - line.begin();
            const auto who = std::find(line.begin(), line.end(), at) - line.begin();
            throw Error(
                fmt::format("ranks {} and {} share a stream, but members {} of their groups of axis {} do not, so both "
                            "ranks cannot be of one class",
                            actor.rank(), first + who * stride(axis), m, plan_.mesh.axis(axis).name));
        }
    }
}

const Instruction& PlanView::instruction(int item) const { return class_at(actor_of(item)).stream[issued(item).index]; }

std::vector<int> PlanView::actors_in(int item) const {
    const ReplayItem& what = view_.at(item);
    if (what.kind != ReplayItem::Kind::meet) return {what.actor};
    return distinct(actor_of(item).members[instruction(item).axis]);
}

std::string PlanView::place(int item) const {
    const Actor& actor = actor_of(item);
    std::string text;
    for (AxisId axis = 0; axis < std::ssize(played_); ++axis) {
        const auto& ranks = class_at(actor).ranks;
        const bool several = played(axis) && std::any_of(ranks.begin(), ranks.end(), [&](int64_t rank) {
                                 return own(rank, axis) != own(actor.rank(), axis);
                             });
        if (several) text += fmt::format(" at {}={}", plan_.mesh.axes()[axis].name, own(actor.rank(), axis));
    }
    return text;
}

void PlanView::add_actor(const Actor& actor, const std::vector<int>& groups) {
    view_.add_actor();
    actor_ = &actor;
    class_ = &class_at(actor);
    groups_ = &groups;
    items_.clear();
    lanes_.clear();
    group_ids_.clear();
    computed_ = held_ = open_ = none;
    awaited_.assign(class_->stream.size(), 0);
    for (const Instruction& i : class_->stream)
        for (const int wait : i.waits) awaited_[wait] = 1;
    between_.reset();
    if (detail_ == Detail::order && repeats(*class_)) {
        for (const Instruction& i : class_->stream) lane_of(i);
        between_.emplace(static_cast<int>(issues(*class_)), std::ssize(lanes_) + 1);
    }
    for (int position = 0; position < static_cast<int>(issues(*class_)); ++position) add_instruction(position);
}

/// Whether the host waits between `earlier` and `i`: before and after calls of transports that do not queue.
bool PlanView::on_host(const Instruction& i, const Instruction& earlier) const {
    return (i.axis != none && !queued(i)) || (earlier.axis != none && !queued(earlier));
}

int PlanView::lane_of(const Instruction& i) {
    if (i.axis == none) return compute_lane;
    const auto lanes = contract(i.axis).lanes;
    // A device may serialize the queued communication of all its communicators in the order of issue. A plan that
    // finishes in that case also finishes if they run concurrently.
    if (detail_ == Detail::order && queued(i) && lanes == TransportContract::Lanes::communicator)
        return lanes_.try_emplace({none, none, none}, std::ssize(lanes_) + 1).first->second;
    const bool by_peer = is_message(i.opcode) && lanes != TransportContract::Lanes::communicator;
    const bool by_direction = is_message(i.opcode) && lanes == TransportContract::Lanes::peer_and_direction;
    const int fresh = std::ssize(lanes_) + 1;
    return lanes_
        .try_emplace({i.axis, by_peer ? peer_of(i) : none, by_direction ? static_cast<int>(i.opcode) : none}, fresh)
        .first->second;
}

int PlanView::channel_of(int position) {
    const Issued issued = issued_at(*class_, position);
    const Instruction& i = class_->stream[issued.index];
    const int64_t size = plan_.mesh.size(i.axis), mine = own(actor_->rank(), i.axis);
    const int peer = peer_of(i), self = view_.actors() - 1;
    if (peer == mine) throw Error(describe(plan_, *class_, issued) + ": is a message of a rank to itself");
    const int other = actor_->members[i.axis].at(peer);
    const bool sends = i.opcode == Opcode::send;
    const int64_t by = played(i.axis) ? 0 : ((sends ? peer - mine : mine - peer) + size) % size;
    const Channel ends{i.axis, sends ? self : other, sends ? other : self, by};
    const auto [place, fresh] = channels_.try_emplace(ends, view_.channels.size());
    if (fresh) view_.add_channel(contract(i.axis).sends_done_unmet());
    return place->second;
}

/// The meeting (collective) of the current actor's group; none if one actor represents all members.
int PlanView::meeting_of(AxisId axis) {
    std::vector<int> group = distinct(actor_->members[axis]);
    if (group.size() == 1) return none;
    const int size = group.size();
    const auto [place, fresh] = meetings_.try_emplace({axis, std::move(group)}, none);
    if (fresh) place->second = view_.add_meeting(size);
    return place->second;
}

/// Whether the instruction joined the previous item: it is a kernel, and no wait separates the two.
bool PlanView::join(const Issued& issued, const std::vector<int>& waits) {
    if (detail_ != Detail::time) return false;
    const Instruction& i = class_->stream[issued.index];
    const bool kernel = i.axis == none;
    const Fragment fragment = fragment_in_run(*class_, issued);
    const bool joins =
        kernel && open_ != none && fragment == open_fragment_ && waits.empty() && holds_.empty() && held_ == none;
    open_fragment_ = fragment;
    if (joins) {
        ++view_.items[open_].length;
        items_.push_back(open_);
    } else {
        open_ = kernel ? view_.size() : none;
    }
    if (awaited_[issued.index]) open_ = none;
    return joins;
}

/// Adds an item. Returns the number by which later instructions wait for it.
int PlanView::add(const ReplayItem& item, const std::vector<int>& waits) {
    if (!between_) return view_.add(item, waits, holds_);
    if (item.held != none) holds_.push_back(item.held);
    between_->enter(item, waits, holds_);
    if (item.kind != ReplayItem::Kind::work) {
        ReplayItem alone = item;
        alone.held = none;
        between_->entered(view_.add(alone, between_->waits(), between_->holds()));
    }
    return item.source;
}

void PlanView::add_instruction(int position) {
    const Issued issued = issued_at(*class_, position);
    const int index = issued.index;
    const Instruction& i = class_->stream[index];
    const bool calls = i.axis != none && !queued(i);
    bool after_compute = false;
    std::vector<int> waits;
    for (const int wait : i.waits) {
        const Issued before = waited_for(*class_, issued, wait);
        const Instruction& earlier = class_->stream[before.index];
        waits.push_back(items_[position_of(*class_, before)]);
        if (on_host(i, earlier)) holds_.push_back(waits.back());
        after_compute |= earlier.axis == none;
    }
    if (calls && after_compute && computed_ != none) holds_.push_back(computed_);
    if (join(issued, waits)) return;

    ReplayItem item{.lane = lane_of(i), .held = held_, .source = position};
    const int group = (*groups_)[index];
    const int first = group == none ? none : position - (index - group);
    if (is_message(i.opcode)) {
        item.kind = i.opcode == Opcode::send ? ReplayItem::Kind::send : ReplayItem::Kind::receive;
        item.channel = channel_of(position);
        item.tag = in_run(*class_, issued).tag;
    } else if (i.axis != none) {
        item.channel = meeting_of(i.axis);
        if (item.channel != none) item.kind = ReplayItem::Kind::meet;
    }
    if (first != none) {
        const auto [place, fresh] = group_ids_.try_emplace(first, none);
        if (fresh) place->second = view_.add_group();
        item.group = place->second;
    }
    const int added = add(item, waits);
    items_.push_back(added);
    holds_.clear();
    held_ = none;
    if (i.axis == none) computed_ = added;
    if (!calls) return;
    if (first == none) {
        if (i.opcode != Opcode::send) held_ = added;
    } else if (index + 1 == static_cast<int>(groups_->size()) || (*groups_)[index + 1] != group) {
        for (int member = group; member <= index; ++member)
            if (class_->stream[member].opcode == Opcode::receive) held_ = items_[first + member - group];
    }
}

}  // namespace orrery
