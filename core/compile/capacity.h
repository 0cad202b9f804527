#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

/// Names of two results f32[] of a train step with capacities (o.capacity): the sum of what loads have above the limit
/// of this capacity, and of the next smaller one. If the first is above 0, the step overflows: it changes no param or
/// state, and runs again with a larger capacity.
constexpr std::string_view overflow_name = "run.overflow", below_name = "run.overflow_below";
/// The name of the load that o.overflow declares: "layer1.moe.load" in scope layer1.moe, "load" outside of
/// any, and with a number for the second of a scope and further ones: "layer1.moe.load2".
std::string load_name(std::string_view scope, int number);
/// Ends the name of the load minus its limit: "layer1.moe.load.above".
constexpr std::string_view above_ending = ".above";
/// The scope in a name of either kind, "" outside of any; nullopt for other names.
std::optional<std::string_view> load_scope(std::string_view name);

/// Chooses the capacity of each step of a run: the smallest that was large enough lately. Every rank has one, and they
/// agree because they are given the same numbers.
class CapacityChoice {
public:
    /// Consecutive steps that do not need a capacity before the next smaller one is taken.
    static constexpr int64_t unneeded_steps = 50;

    /// `capacities`: ascending; empty: the program has none, and now() is 0. The first step has the smallest.
    explicit CapacityChoice(std::vector<double> capacities) : capacities_(std::move(capacities)) {}

    /// What a checkpoint stores, so that a resumed run makes the same choices.
    struct Saved {
        double capacity = 0;
        int64_t unneeded = 0;  ///< consecutive steps so far that did not need it
        int64_t again = 0;     ///< times that a step ran again since the run's first
    };
    Saved saved() const { return {now(), unneeded_, again_}; }
    /// Continues after a checkpoint. If the program no longer has its capacity: with the next larger one, or the
    /// largest.
    void resume(const Saved& saved);

    bool any() const { return !capacities_.empty(); }
    double now() const { return capacities_.empty() ? 0 : capacities_[at_]; }
    int64_t again() const { return again_; }
    /// Called after a step that overflowed: takes the next larger capacity; false if there is none.
    bool grow();
    /// Called after a step that did not overflow. `unneeded`: the next smaller capacity holds all of it, too.
    void fitted(bool unneeded);

private:
    std::vector<double> capacities_;
    size_t at_ = 0;
    int64_t unneeded_ = 0, again_ = 0;
};

}  // namespace orrery
