#pragma once
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "sim/prices.h"

namespace orrery {

/// Concurrent demands on shared resources. Their speeds are max-min fair: a demand's fraction of its own full speed is
/// as large as possible without taking from a demand with a smaller fraction (progressive filling; Bertsekas and
/// Gallager, Data Networks, 6.5.2). A change recomputes only the demands that share resources with it, directly or
/// through others.
class FairShare {
public:
    explicit FairShare(std::function<double(ResourceId)> capacity) : capacity_(std::move(capacity)) {}

    /// Starts a demand at `now`, which must not be before the time of an earlier call. A demand's loads on one resource
    /// are added up. end() returns `id`.
    void begin(const Demand& demand, int id, double now);
    /// Time at which the next demand ends if none begins before; infinity: none runs.
    double next();
    /// Appends the ids of all demands that end at `now`, which must be next(), in the order in which they began.
    void end(double now, std::vector<int>& ids);

    /// Fraction of full speed at which a demand runs; 0 during its fixed time. Linear in the number of demands.
    double speed_of(int id) const;

private:
    struct Running {
        int id = 0;
        int64_t order = 0;
        double alone = 0;  ///< seconds that the demand takes without other demands
        double left = 1;   ///< fraction of the demand's loads that is left
        double speed = 0;  ///< current speed as a fraction of the demand's full speed
        double since = 0;  ///< time at which `left` and `speed` were computed
        bool runs = false;
        bool waits = true;  ///< whether the demand is in its fixed time, without load
        uint32_t version = 0;
        std::vector<Demand::Load> loads;  ///< share of each resource that the demand uses at full speed
    };
    struct Due {
        double time;
        int64_t order;
        int slot;
        uint32_t version;
        bool operator>(const Due& b) const { return time > b.time || (time == b.time && order > b.order); }
    };
    struct Resource {
        double capacity = 0;  ///< units per second; 0: not looked up yet
        std::vector<int> users;
        double left = 0, used = 0;  ///< capacity not yet given to demands, and capacity given, while speeds are set
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
    // Temporaries for computing new speeds.
    std::vector<char> touched_;
    std::vector<int> slots_;
    std::vector<ResourceId> shared_;
    std::vector<double> speeds_;
};

}  // namespace orrery
