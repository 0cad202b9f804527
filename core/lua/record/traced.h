#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compile/recipe.h"
#include "lua/fields.h"
#include "lua/record/tape.h"

namespace orrery::lua {

struct InputSpec {
    std::string name;
    TensorType type;
    std::vector<std::string> dims;
};

/// Reads a signature from the stack: a list of { name = , dtype = , shape = , dims = }, or such entries by name.
std::vector<InputSpec> check_signature(lua_State* L, int index);

template <>
struct Class<AskedStrategy> {
    static constexpr const char* name = "orrery.strategy";
    static constexpr const char* what = "a strategy";
};

/// The value that o.trace returns: the script's functions, what they recorded, and what the script has set since.
struct Traced {
    int function = LUA_NOREF;   ///< registry reference to the model's function
    int optimizer = LUA_NOREF;  ///< registry reference to the optimizer's function
    std::shared_ptr<StateOwners> owners = std::make_shared<StateOwners>();
    std::vector<int> also;   ///< registry references to the functions of Recipe::also, in their order
    std::vector<int> added;  ///< registry references to the functions of metrics, in the order of Recipe::added
    std::vector<InputSpec> signature;
    Capacities capacities;  ///< of the first trace of the function
    Recipe recipe;          ///< the recipe without its functions, which `recipe_of` adds
    Program forward;        ///< the program with the full batch, as o.trace recorded it
    Program step;           ///< the full-batch program with gradients and optimizer, after train_with
    bool compiled = false;
};

template <>
struct Class<Traced> {
    static constexpr const char* name = "orrery.program";
    static constexpr const char* what = "a program";
};

/// The value that program:compile returns to the script.
struct Run {
    std::string name;
    int number = 0;  ///< index of the run among the script's runs, from 1
};

template <>
struct Class<Run> {
    static constexpr const char* name = "orrery.run";
    static constexpr const char* what = "a run";
};

/// Returns the program at index 1, which `function` is about to change. Throws Error when it is already compiled.
Traced& open_program(lua_State* L, std::string_view function);

/// Throws Error at argument `index` unless the name is valid in a line of metrics. `what` describes it: "a result".
void check_name(lua_State* L, int index, const std::string& name, const char* what);

/// The program with the codecs that the script has declared (o.codec).
Program with_codecs(lua_State* L, Program program);

/// Returns the recipe, with functions that call the script's in this thread of Lua. `traced` must outlive the recipe.
Recipe recipe_of(lua_State* L, const Traced& traced);

/// What a recorded function says of its program, in addition to its ops.
struct Declared {
    bool mean = false;  ///< it returns a mean, without a count
    Capacities capacities = {};
};
/// Runs the model's function on a new tape. The batch of `entry` is the size of every dim named "batch", its length
/// that of every dim named "seq", unless it is 0.
Program record_forward(lua_State* L, const Traced& traced, const ProgramEntry& entry, Declared& declared);
/// Runs the function of the metric Recipe::added[which] on a new tape, like record_forward() but without dropout.
Program record_added(lua_State* L, const Traced& traced, size_t which, int64_t batch, Declared& declared);
/// Runs the optimizer's function, which adds ops to a program that has gradients. `also`: index of the function of
/// program:also to run instead; -1: none.
Program record_update(lua_State* L, const Traced& traced, Program program, int also = -1);

/// Reads what a step has besides its model and optimizer, from the options of train_with or the table [train].
void read_step(lua_State* L, Recipe& recipe, Fields& fields);

int compile_program(lua_State* L);

/// Reads a list of { param = , tensor = , transpose = , part = { dim, index, count } }, dim and index counted from 1,
/// with ignore = { pattern, ... }, copies = { [tensor] = other } and published = { type =, config = } in the same
/// table. Throws when a param is unknown, missing or named twice, or when a part does not fit.
PublishedWeights check_weights(lua_State* L, int index, const Program& program);

}  // namespace orrery::lua
