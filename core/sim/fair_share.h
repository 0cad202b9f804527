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

    /// Of a demand that runs: 1 when it is as fast as alone; 0 in its fixed time. Looks through all.
    double speed_of(int id) const;

private:
    struct Running {
        int id = 0;
        int64_t order = 0;
        double alone = 0;  ///< seconds that its loads take without others
        double left = 1;   ///< part of them
        double speed = 0;  ///< of its own alone: 0 to 1
        double since = 0;  ///< when `left` and `speed` were so
        bool runs = false;
        bool waits = true;  ///< in its fixed time: it draws nothing
        uint32_t version = 0;
        std::vector<Demand::Load> loads;  ///< amounts: the part of the resource that it takes at full speed
    };
    struct Due {
        double time;
        int64_t order;
        int slot;
        uint32_t version;
        bool operator>(const Due& b) const { return time > b.time || (time == b.time && order > b.order); }
    };
    struct Resource {
        double capacity = 0;        ///< 0: nobody has asked yet
        std::vector<int> users;     ///< slots that draw on it
        double left = 0, used = 0;  ///< while shares are worked out
        bool seen = false;
    };

    void draw(int slot, double now);
    void leave(int slot);
    void share(const std::vector<Demand::Load>& around, double now);
    void find_beside(const std::vector<Demand::Load>& loads);
    void fill();
    void schedule(int slot, double due);
    Resource& at(ResourceId resource);
    Running& running(int slot) { return running_[static_cast<size_t>(slot)]; }
    void skip_stale();

    std::function<double(ResourceId)> capacity_;
    std::vector<Running> running_;
    std::vector<int> free_;
    std::vector<Resource> resources_;
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    int64_t begun_ = 0;
    // What a change touches.
    std::vector<char> touched_;
    std::vector<int> slots_;
    std::vector<ResourceId> shared_;
    std::vector<double> speeds_;
};

}  // namespace orrery
