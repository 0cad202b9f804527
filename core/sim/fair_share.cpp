#include "sim/fair_share.h"

#include <algorithm>
#include <limits>

namespace orrery {

namespace {
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double full = 1 - 1e-12;  // above this fraction a resource counts as used up, a demand as at full speed
}  // namespace

FairShare::Resource& FairShare::at(ResourceId resource) {
    if (resources_.size() <= static_cast<size_t>(resource)) resources_.resize(static_cast<size_t>(resource) + 1);
    Resource& found = resources_[static_cast<size_t>(resource)];
    if (found.capacity == 0) found.capacity = capacity_(resource);
    return found;
}

void FairShare::begin(const Demand& demand, int id, double now) {
    if (free_.empty()) {
        free_.push_back(static_cast<int>(running_.size()));
        running_.emplace_back();
    }
    const int slot = free_.back();
    free_.pop_back();
    Running& r = running(slot);
    const uint32_t version = r.version + 1;
    r = Running{};
    r.version = version;
    r.id = id;
    r.order = begun_++;
    r.runs = true;
    r.alone = demand.least_s;
    for (const Demand::Load& load : demand.loads) {
        const auto known = std::find_if(r.loads.begin(), r.loads.end(),
                                        [&](const Demand::Load& l) { return l.resource == load.resource; });
        Demand::Load& mine = known == r.loads.end() ? r.loads.emplace_back(load.resource, 0.0) : *known;
        mine.amount += load.amount / at(load.resource).capacity;
        r.alone = std::max(r.alone, mine.amount);
    }
    std::erase_if(r.loads, [](const Demand::Load& load) { return load.amount <= 0; });
    for (Demand::Load& load : r.loads) load.amount /= r.alone;
    if (demand.fixed_s > 0) return schedule(slot, now + demand.fixed_s);
    draw(slot, now);
}

double FairShare::next() {
    skip_stale();
    return due_.empty() ? infinity : due_.top().time;
}

void FairShare::end(double now, std::vector<int>& ids) {
    std::vector<std::pair<int64_t, int>> over;
    for (skip_stale(); !due_.empty() && due_.top().time <= now; skip_stale()) {
        const int slot = due_.top().slot;
        due_.pop();
        if (running(slot).waits) {
            draw(slot, now);
            continue;
        }
        over.emplace_back(running(slot).order, running(slot).id);
        leave(slot);
        share(running(slot).loads, now);
        free_.push_back(slot);
    }
    std::sort(over.begin(), over.end());
    for (const auto& [order, id] : over) ids.push_back(id);
}

double FairShare::speed_of(int id) const {
    for (const Running& r : running_)
        if (r.id == id && r.runs) return r.speed;
    return 0;
}

void FairShare::draw(int slot, double now) {
    Running& r = running(slot);
    r.waits = false;
    r.since = now;
    if (r.loads.empty()) {
        r.speed = 1;
        return schedule(slot, now + r.alone);
    }
    for (const Demand::Load& load : r.loads) at(load.resource).users.push_back(slot);
    share(r.loads, now);
}

void FairShare::leave(int slot) {
    ++running(slot).version;
    running(slot).runs = false;
    for (const Demand::Load& load : running(slot).loads) std::erase(at(load.resource).users, slot);
}

/// Finds all demands on the resources of `loads`, on other resources of those demands, and so on: slots_, shared_.
void FairShare::find_beside(const std::vector<Demand::Load>& loads) {
    slots_.clear();
    shared_.clear();
    touched_.resize(running_.size(), 0);
    const auto look = [&](const std::vector<Demand::Load>& all) {
        for (const Demand::Load& load : all)
            if (!std::exchange(at(load.resource).seen, true)) shared_.push_back(load.resource);
    };
    look(loads);
    for (size_t i = 0; i < shared_.size(); ++i)
        for (const int user : at(shared_[i]).users)
            if (!std::exchange(touched_[static_cast<size_t>(user)], 1)) {
                slots_.push_back(user);
                look(running(user).loads);
            }
    for (const int slot : slots_) touched_[static_cast<size_t>(slot)] = 0;
    for (const ResourceId resource : shared_) at(resource).seen = false;
}

/// Raises the speeds of the demands slots_ together; a demand stops at full speed or when a resource is used up.
void FairShare::fill() {
    speeds_.assign(slots_.size(), 0);
    std::vector<char> rises(slots_.size(), 1);
    for (const ResourceId resource : shared_) at(resource).left = 1;
    double level = 0;
    for (size_t rising = slots_.size(); rising > 0;) {
        for (const ResourceId resource : shared_) at(resource).used = 0;
        for (size_t i = 0; i < slots_.size(); ++i)
            if (rises[i])
                for (const Demand::Load& load : running(slots_[i]).loads) at(load.resource).used += load.amount;
        double by = 1 - level;
        for (const ResourceId resource : shared_)
            if (const Resource& r = at(resource); r.used > 0) by = std::min(by, r.left / r.used);
        level += by;
        for (const ResourceId resource : shared_) {
            Resource& r = at(resource);
            r.left = std::max(0.0, r.left - by * r.used);
        }
        for (size_t i = 0; i < slots_.size(); ++i) {
            if (!rises[i]) continue;
            const auto& loads = running(slots_[i]).loads;
            const bool stays = level >= full || std::any_of(loads.begin(), loads.end(), [&](const Demand::Load& load) {
                                   return at(load.resource).left <= 1 - full;
                               });
            speeds_[i] = level;
            rises[i] = !stays;
            rising -= stays;
        }
    }
}

/// Computes new speeds for all demands that share resources with the loads `around`.
void FairShare::share(const std::vector<Demand::Load>& around, double now) {
    find_beside(around);
    fill();
    for (size_t i = 0; i < slots_.size(); ++i) {
        Running& r = running(slots_[i]);
        if (r.speed == speeds_[i]) continue;
        r.left = std::max(0.0, r.left - r.speed * (now - r.since) / r.alone);
        r.since = now;
        r.speed = speeds_[i];
        schedule(slots_[i], now + r.left * r.alone / r.speed);
    }
}

void FairShare::schedule(int slot, double due) {
    Running& r = running(slot);
    due_.push({due, r.order, slot, ++r.version});
}

void FairShare::skip_stale() {
    while (!due_.empty() && due_.top().version != running(due_.top().slot).version) due_.pop();
}

}  // namespace orrery
