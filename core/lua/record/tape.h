#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compile/passes/loss_scale.h"
#include "ir/build.h"
#include "lua/stack.h"
#include "orrery/mesh.h"
#include "orrery/op.h"
#include "orrery/program.h"

namespace orrery::lua {

/// What a tape, the recording of a program, accepts at the moment.
enum class TapeUse : uint8_t {
    closed,     ///< none: the program can only be read
    forward,    ///< in o.trace: params and ops
    update,     ///< in an optimizer: states, ops and updates
    annotate,   ///< in a strategy: marks
    decompose,  ///< in a decomposition: parts of the op, by its function add()
};

/// Different lists of capacities, each ascending, in the order in which a trace gives them to o.capacity.
using Capacities = std::vector<std::vector<double>>;

/// A value that the loss of a train step must depend on.
struct LossTerm {
    ValueId value = none;
    std::string problem;  ///< the message if the loss does not
};

/// Whether Orrery or the optimizer's function unscales gradients and skips updates that are not finite. The function's
/// first call decides: update:loss_scale() chooses the function, others Orrery.
struct UpdateGuard {
    enum class By : uint8_t { undecided, orrery, function } by = By::undecided;
    int take = LUA_NOREF;                  ///< registry reference to take(new, old), which returns the value to write
    int unscaled = LUA_NOREF;              ///< registry reference to unscaled(gradient); LUA_REFNIL: no loss scale
    std::map<ValueId, ValueId> gradients;  ///< unscaled gradients, by param
    bool reads_overflow = false;           ///< update:overflow was called
    bool reads_island_count = false;       ///< update:island_count was called
    bool sets_states = false;              ///< update:states was called
};

/// The optimizers that own states of params: by name of the state and index of the function (-1: the optimizer's,
/// others of program:also) the address of the Lua value that update:state was given.
using StateOwners = std::map<std::string, std::map<int, const void*>>;

/// The program that a script records. All values in Lua that belong to the program share the tape.
struct Tape {
    explicit Tape(Program start)
        : own(std::make_unique<Program>(std::move(start))), program(own.get()), builder(*program) {}
    /// A view of program `annotated` for a strategy to mark. `behalf`: the strategy's name; `called`: its script line.
    Tape(Program& annotated, const Mesh& on, std::string behalf, Origin called)
        : program(&annotated),
          builder(annotated),
          use(TapeUse::annotate),
          mesh(&on),
          who(std::move(behalf)),
          asked(std::move(called)) {}

    std::unique_ptr<Program> own;  ///< the tape's own program; null for a view
    Program* program;
    Builder builder;
    TapeUse use = TapeUse::forward;
    bool training = true;
    /// whether o.result adds results; false in a metric's function, which may call the model's function again
    bool declares = true;
    double capacity = 0;          ///< the capacity that a train step is recorded for; 0: the largest
    Capacities capacities;        ///< the lists that o.capacity was given so far
    Capacities first_capacities;  ///< those of the program's first trace; empty: this is the first, or it had none
    Origin sized;                 ///< script line of the first call of o.capacity
    Capacities overflowing;       ///< the lists for which o.overflow was called
    int64_t overflows = 0;        ///< number of calls of o.overflow
    ValueId overflow = none;      ///< in an optimizer: the sum of what the capacity does not hold, f32[]
    ValueId named_load = none;    ///< a value that the script has named as o.overflow names loads
    std::vector<LossTerm> loss_terms;
    int64_t streams = 0;            ///< number of dropouts so far; each has its own random numbers
    const Mesh* mesh = nullptr;     ///< the mesh that a strategy annotates for; otherwise null
    const OpLayouts* at = nullptr;  ///< the op that a decomposition replaces; otherwise null
    const AddPart* add = nullptr;   ///< adds a part of that op
    std::string who;
    Origin asked;
    std::map<std::string, ValueId> inputs;  ///< inputs declared on first use: step, seed
    std::unordered_map<std::string, ValueId> params;
    std::optional<LossScale> loss_scale;
    UpdateGuard guard;
    size_t states = 0;  ///< in an optimizer: the first updates of the program that are of o.state and not guarded yet
    int function = -1;  ///< that updates: its index among those of program:also; -1: the optimizer's
    bool also() const { return function >= 0; }
    std::shared_ptr<StateOwners> owners;  ///< in a function that updates
    bool whole = false;       ///< the arrays are those of all islands, so that the function can read nothing of a batch
    bool takes_batch = true;  ///< whether the function has read a gradient, the count or the overflow of a batch;
                              ///< always true in an optimizer
    std::map<ValueId, ValueId> given;  ///< by param: what update:gradient sets in place of its gradient
    ValueId count = none;              ///< what update:count(value) sets in place of the batch's count
};

/// Closes the view of a program when its function returns: values that the script retains must not refer to it.
struct CloseView {
    Tape& tape;
    ~CloseView() {
        tape.use = TapeUse::closed;
        tape.own = std::make_unique<Program>();
        tape.program = tape.own.get();
    }
};

/// A symbolic array in Lua: a value of the program that a tape records.
struct Symbol {
    std::shared_ptr<Tape> tape;
    ValueId id = none;

    const Value& value() const { return tape->program->value(id); }
};

template <>
struct Class<Symbol> {
    static constexpr const char* name = "orrery.value";
    static constexpr const char* what = "a value";
};

void push_symbol(lua_State* L, const std::shared_ptr<Tape>& tape, ValueId id);
/// Returns the id of the value at `index`. Throws Error if it belongs to another tape.
ValueId check_own(lua_State* L, int index, const std::shared_ptr<Tape>& tape);
/// Returns the symbol's tape if it accepts ops; otherwise throws Error ("used outside of o.trace").
Tape& recording(lua_State* L, const Symbol& symbol);
/// Returns the tape being recorded. If there is none, throws Error for `function`: "o.param: only inside o.trace".
std::shared_ptr<Tape> current_tape(lua_State* L, std::string_view function);
/// Returns the program's input `name`, which the host fills (step f32[], seed u32[]); declares it on first use.
ValueId host_input(lua_State* L, Tape& tape, const std::string& name, DType type);
/// Returns the dim of a value that a Lua argument names: a logical name, or a number counted from 1.
int check_dim(lua_State* L, int index, const Symbol& of);

/// Adds the method of values of o.state: next.
void add_state_methods(lua_State* L);
/// Adds the methods of values for strategies and optimizers: store, use, grad, state, first_dim_divisible_by.
void add_mark_methods(lua_State* L);

}  // namespace orrery::lua
