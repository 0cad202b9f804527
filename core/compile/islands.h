#pragma once
#include <string>
#include <string_view>

#include "orrery/plan.h"
#include "orrery/program.h"

namespace orrery {

struct Recipe;

/// The islands of a run: the members of one mesh axis, each with params and states of its own. Programs that take a
/// batch are made for one island, and exchange nothing over the axis. Programs that take none see whole arrays: all
/// islands' slices along a first dim with the axis' name.
struct Islands {
    std::string axis;  ///< "": the run has no islands
    int64_t count = 1;
    Origin origin;
    bool feedback = false;  ///< whether each adds to what it sends what encoding left out of earlier messages

    bool any() const { return !axis.empty(); }
};

/// Edge option that makes the members of an axis islands.
inline constexpr std::string_view islands_option = "islands";

/// Returns the islands that the strategies of a recipe ask for. `step`: its step, recorded. Throws Error if the recipe
/// has something that islands cannot have. No islands without program:also.
Islands islands_of(const Recipe& recipe, const Program& step, const Mesh& mesh);

/// Throws Error if an annotated program for one island has a mark or a pipeline over the axis of the islands, which it
/// must have.
void check_islands(const Program& marked);

/// Returns the program without ops that an update of whole arrays is recorded in: the params of `step`, of all islands.
///
///     w f32[embed=4]                      ->   w f32[site=2,embed=4]
Program whole_arrays(const Program& step, const Islands& islands);

/// Returns the arrays of an update of whole arrays as those of one island. Throws Error for a state without the dim.
Program slices_of(const Program& whole, const Islands& islands);

/// Gives the arrays of an update of whole arrays the layouts of `step`, annotated, and splits their first dim over the
/// islands.
Program mark_whole(const Program& whole, const Program& step, const Mesh& mesh, const Islands& islands);

/// The param of which islands sum how far they moved it (update:moved): any codec may send such a difference. With
/// feedback the param's state of what encoding left out, which the sum includes. none: a sum of whole values.
ValueId moved_by(const Program& program, const Op& sum);

/// Attribute of a state's initial value: in a run that resumes with another number of islands its rows are added, not
/// replaced by their mean.
inline constexpr std::string_view islands_add = "islands_add";

/// The name of a param's state that holds its outer value, which evaluation and sampling read: "w.outer".
inline constexpr std::string_view outer_ending = ".outer";

/// Makes an annotated program that evaluates or samples read the mean over islands of each param and state, of the
/// outer param where `step` has one. Splits its batch over the islands, too, if `splits_batch`.
///
///     %3 = mul %0 w                       ->   %1 = sum w dims=[0]   %2 = mul %1 1/count   %3 = mul %0 %2
void read_mean(Program& marked, const Program& step, const Islands& islands, bool splits_batch);

/// Makes params and states of a proved plan for one island slices of whole arrays, and its data inputs parts of a batch
/// of all islands. The streams of the plan stay as they are.
///
///     w f32[embed=4]  tp:S(0)             ->   w f32[site=2,embed=4]  site:S(0) tp:S(1)
///     x f32[batch=6]  dp:S(0)             ->   x f32[batch=12]        site:S(0) dp:S(0)
void give_slices(Plan& plan, const Islands& islands);

/// A param or state of one island.
Value slice_of(const Value& whole, const Islands& islands);

}  // namespace orrery
