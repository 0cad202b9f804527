#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// Names of a round that program:also cannot give: the program of train_with, and the host's actions.
inline const std::vector<std::string> round_words = {"step", "save", "evaluate"};

/// The order in which the programs of a training run execute. Text: names in sequence; `*n` repeats a name or a
/// bracket; the part after the last `, then` repeats until the run ends, parts before it run once: "step*50 outer";
/// "(A B*2)*100, then A". A program that takes a batch is a step. A program that takes none, and the host's actions
/// `save` and `evaluate`, belong to the step before them. All functions cost time in the length of the text, not in n.
class Round {
public:
    /// The round of a script that gives none.
    Round() : Round("step") {}
    /// Throws Error at `origin`; the message names the character in the text, what was expected and what was found.
    explicit Round(std::string_view text, Origin origin = {});

    const std::string& text() const { return text_; }
    /// Whether it is the round of a script that gives none: one step after the other.
    bool plain() const { return text_ == "step"; }
    const Origin& origin() const { return origin_; }
    /// The distinct names, in the order of their first appearance. Indices of names below refer to it.
    const std::vector<std::string>& names() const { return names_; }
    bool is_action(size_t name) const { return names_[name] == round_words[1] || names_[name] == round_words[2]; }

    /// Sets by index which programs take a batch. Throws Error if the round begins with anything but a step, if the
    /// repeated part has no step, or if a program without a batch follows an action in the same step. The functions
    /// below need it.
    void prove(const std::vector<bool>& takes_batch);
    /// Sets by index the sender of the messages that a program waits for; none: it waits for no message. Throws Error
    /// unless the two alternate in the whole run, repetitions and their edges included, and the sender comes first.
    void prove_messages(const std::vector<int>& senders);
    /// Returns the programs that wait, after a step and what belongs to it, for messages that are on their way.
    std::vector<size_t> awaited(int64_t step) const;
    /// By index: what prove_messages was given; empty: no program sends.
    const std::vector<int>& senders() const { return senders_; }
    /// Returns the index in names() of the program that a step of the round runs; steps count from 1.
    size_t program_of(int64_t step) const;
    /// Calls `run` with the index of each program and action that belongs to a step, in order.
    void after(int64_t step, const std::function<void(size_t)>& run) const;
    /// Whether the repeated part begins after the step, for the first time or again.
    bool ends_with(int64_t step) const;
    /// The number of steps of the text, with the repeated part once.
    int64_t steps() const;
    /// The text of the programs alone, without actions, each blank once: rounds of the same order run the same
    /// programs.
    std::string order() const;
    /// This round with at most `times` in place of each larger n: from 2 on it has every transition of this one.
    Round shortened(int64_t times) const;
    /// By index: mean number of runs per step in the repeated part.
    std::vector<double> runs_per_step() const;
    /// The max over all steps of the costs of the step's program and of everything that belongs to the step. `costs`:
    /// of one run, by index, in any unit.
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
    std::string written(int64_t times, bool actions) const;
    void count(Part& part) const;
    static int last_of(const std::vector<Part>& parts, int64_t runs, int first, int second);
    static size_t name_at(const std::vector<Part>& parts, int64_t run);
    static int64_t run_of(const std::vector<Part>& parts, int64_t step);
    size_t name_at(int64_t run) const;
    int64_t run_of(int64_t step) const;

    std::string text_;
    Origin origin_;
    std::vector<std::string> names_;
    std::vector<bool> takes_batch_;
    std::vector<int> senders_;
    std::vector<Part> stretches_;  ///< parts of the text that `, then` separates; the last one repeats
};

}  // namespace orrery
