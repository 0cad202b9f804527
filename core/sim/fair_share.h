#pragma once
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "sim/prices.h"

namespace orrery {

/// Demands that run at once on shared resources. Their rates are max-min fair: each demand is given as large a part of
/// its own speed alone as can be without taking from one that has less (progressive filling; Bertsekas and Gallager,
/// Data Networks, 6.5.2). A change looks at the demands alone that share resources with it, directly or by way of
/// others.
class FairShare {
public:
    explicit FairShare(std::function<double(ResourceId)> capacity) : capacity_(std::move(capacity)) {}

    /// Starts a demand at `now`, at or after all that was told before; loads on one resource are added up. `id`: the
    /// caller's, told when it ends.
    void begin(const Demand& demand, int id, double now);
    /// When the next one ends if no other begins; infinity: none runs.
    double next();
    /// Appends the ids of all that end at `now`, which is next(), in the order of their beginning.
    void end(double now, std::vector<int>& ids);

private:
    struct Running {
        int id = 0;
        double alone = 0;  ///< seconds without others, from here on
        double left = 1;   ///< part of it
        double speed = 0;  ///< of its own alone: 0 to 1
        double since = 0;  ///< when `left` and `speed` were so
        double due = 0;
        bool waits = true;  ///< in its fixed time: it draws nothing
        uint32_t version = 0;
        std::vector<Demand::Load> loads;  ///< amounts as parts of the resource's capacity, a second at full speed
    };
    struct Due {
        double time;
        int slot;
        uint32_t version;
        bool operator>(const Due& other) const { return time > other.time || (time == other.time && slot > other.slot); }
    };

    void draw(int slot, double now);
    void leave(int slot, double now);
    void share(const std::vector<int>& slots, double now);
    std::vector<int> beside(const std::vector<Demand::Load>& loads);
    void schedule(int slot, double due);
    std::vector<int>& users(ResourceId resource);
    void skip_stale();

    std::function<double(ResourceId)> capacity_;
    std::vector<Running> running_;
    std::vector<int> free_;
    std::vector<double> capacities_;
    std::vector<std::vector<int>> users_;  ///< by resource
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    std::vector<char> seen_slots_, seen_resources_;
};

}  // namespace orrery
