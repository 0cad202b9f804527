#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// The order in which the programs of a training run, as text: names that follow each other, `*n` after a name or a
/// bracket, and `, then` before what runs for good: "step*50 outer"; "(A B*2)*100, then A". A program that takes a
/// batch is a step; one that takes none belongs to the step before it, as the host's actions `save` and `evaluate` do.
class Round {
public:
    /// The round of a script that gives none.
    Round() : Round("step") {}
    /// Throws Error at `origin` with the place in the text and what was expected there.
    explicit Round(std::string_view text, Origin origin = {});

    const std::string& text() const { return text_; }
    /// Whether it is the round of a script that gives none: one step after the other.
    bool plain() const { return text_ == "step"; }
    const Origin& origin() const { return origin_; }
    /// The different names, in the order in which they appear first.
    const std::vector<std::string>& names() const { return names_; }
    bool is_action(size_t name) const { return names_[name] == "save" || names_[name] == "evaluate"; }

    /// Sets which of names() take a batch. Proves that the round begins with a step, never stops to train, and has no
    /// program between an action and the next step; throws Error otherwise. Call it before the functions below.
    void prove(const std::vector<bool>& takes_batch);
    /// Returns the index in names() of the program that a step of the round runs; steps count from 1.
    size_t program_of(int64_t step) const;
    /// Calls `run` with the index in names() of all that follows a step and belongs to it, in order.
    void after(int64_t step, const std::function<void(size_t)>& run) const;
    /// Whether what follows the step for good begins again after it.
    bool ends_with(int64_t step) const;
    /// The steps of all stretches, of the last once.
    int64_t steps() const;
    /// This round with at most `times` in place of each larger *n, for what need not be repeated to be seen.
    Round shortened(int64_t times) const;
    /// By index in names(): runs for each step, on average over what follows for good.
    std::vector<double> runs_per_step() const;
    /// The largest sum over a step, the program that it runs and all that follows it, of what one run of each costs.
    double peak(const std::vector<double>& costs) const;

private:
    struct Part {
        size_t name = 0;          ///< index in names_, if `parts` is empty
        std::vector<Part> parts;  ///< what a bracket holds
        int64_t times = 1;
        int64_t runs = 1;   ///< programs and actions of one time
        int64_t steps = 0;  ///< steps of one time
    };
    struct Reader;
    void count(Part& part) const;
    static size_t name_at(const std::vector<Part>& parts, int64_t run);
    static int64_t run_of(const std::vector<Part>& parts, int64_t step);
    size_t name_at(int64_t run) const;
    int64_t run_of(int64_t step) const;

    std::string text_;
    Origin origin_;
    std::vector<std::string> names_;
    std::vector<bool> takes_batch_;
    std::vector<Part> stretches_;  ///< what `, then` divides: all but the last run once
};

}  // namespace orrery
