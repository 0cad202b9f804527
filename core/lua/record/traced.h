#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compile/recipe.h"
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

/// The value that o.trace returns: the functions, what they recorded, and what the script has set since.
struct Traced {
    int function = LUA_NOREF;   ///< the model's function, in the registry
    int optimizer = LUA_NOREF;  ///< the optimizer's function, in the registry
    std::vector<int> added;     ///< functions of Recipe::added, in the registry
    std::vector<InputSpec> signature;
    Recipe recipe;    ///< `recipe_of` sets its functions when it is used
    Program forward;  ///< the program with the full batch, as o.trace recorded it
    Program step;     ///< the same with gradients and optimizer, after train_with
    bool compiled = false;
};

template <>
struct Class<Traced> {
    static constexpr const char* name = "orrery.program";
    static constexpr const char* what = "a program";
};

/// The value that program:compile returns.
struct Run {
    std::string name;
    int number = 0;  ///< counted over the script's runs
};

template <>
struct Class<Run> {
    static constexpr const char* name = "orrery.run";
    static constexpr const char* what = "a run";
};

/// The program at index 1, for `function` to change. Throws when it is already compiled.
Traced& open_program(lua_State* L, std::string_view function);

/// Throws at argument `index` unless the name is valid in a line of metrics; `what`: "a result".
void check_name(lua_State* L, int index, const std::string& name, const char* what);

/// The recipe with functions that call the script's on this thread of Lua. `traced` must outlive it.
Recipe recipe_of(lua_State* L, const Traced& traced);

/// Runs the model's function on a new tape. `batch` replaces the size of every dim named "batch", and `length`, unless
/// it is 0, that of every dim "seq". `mean` is set to whether the function returns no count.
Program record_forward(lua_State* L, const Traced& traced, bool training, int64_t batch, bool& mean,
                       int64_t length = 0);
/// Runs the function of Recipe::added[which] in the same way, without dropout.
Program record_added(lua_State* L, const Traced& traced, size_t which, int64_t batch, bool& mean);
/// Runs the optimizer's function, which appends to a differentiated program.
Program record_update(lua_State* L, const Traced& traced, Program program);

/// program:compile() -> run
int compile_program(lua_State* L);

/// Reads a list of { param = , tensor = , transpose = , part = { dim, index, count } }, dim and index counted from 1,
/// with ignore = { pattern, ... }, copies = { [tensor] = other } and published = { type =, config = } in the same
/// table. Throws when a param is unknown, missing or named twice, or when a part does not fit.
PublishedWeights check_weights(lua_State* L, int index, const Program& program);

}  // namespace orrery::lua
