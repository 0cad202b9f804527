#pragma once
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lua/deadline.h"
#include "lua/stack.h"
#include "run/script_interface.h"

namespace orrery::lua {

struct Tape;

struct Limits {
    int64_t instructions = 0;
    int64_t memory_bytes = 0;
    int64_t ops = 1'000'000;  ///< ops that a script may record in all
    double seconds = 60;      ///< of processor time, without what the host does
};

/// One Lua with its libraries, limits and host. Closed with it, everything that scripts made is gone.
class State {
public:
    /// `folder`: where modules of the script lie. Reads [lua] of the host's configuration.
    State(Host& host, std::filesystem::path folder);
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    lua_State* lua() const { return L_; }
    Host& host() const { return host_; }
    const std::filesystem::path& library() const { return library_; }  ///< holds orrery/
    /// Runs a text, for tests.
    void run_text(std::string_view text, const std::string& shown);

    /// Pushes the module's value, loading it on first use. Throws Error naming the places tried.
    void require(lua_State* L, const std::string& module);
    void require(const std::string& module) { require(L_, module); }
    /// Whether there is a file for the module.
    bool finds(const std::string& module) const { return !file_of(module).empty(); }
    /// Its file, as messages show it; "" when there is none.
    std::string file_of(const std::string& module) const;

    /// The schedule of a pipeline, see lua/schedules.h.
    Schedule schedule(Pipeline& pipeline, int64_t ranks, int64_t microbatches);

    /// Runs work that calls functions of the script, while the script is in a call of the host; from any thread, one
    /// at a time. Throws Error with the script's lines.
    void call_later(const std::function<void()>& work);

    /// Charges one recorded op against the limits.
    void charge_op();
    /// Charges what a C function is about to do against the instructions.
    void charge(lua_State* L, uint64_t elements);
    /// Remembers the line that is being run, for when nothing can be asked any more.
    void see(lua_State* L);
    /// The host works: that is no time of the script's.
    Deadline::Pause pause() { return Deadline::Pause(deadline_ ? &*deadline_ : nullptr); }

    bool options_declared = false;
    std::set<std::string> taken;  ///< keys that a call leaves to the configuration or the script reads: "train.steps"
    int runs = 0;                 ///< programs that are compiled
    Origin stand_in;              ///< what `call_for` calls a function for
    std::shared_ptr<Tape> tape;   ///< what is being recorded, by o.trace or an optimizer

    void open_libraries();

private:
    void run_chunk(const std::string& text, const std::string& shown);
    void protect(lua_CFunction function, void* argument, const std::string& shown);
    void late(const Origin& seen);
    /// What a call that ended so has left on the stack.
    std::exception_ptr error_of(int status, const std::string& shown);
    [[noreturn]] void rethrow(int status, const std::string& shown);
    std::vector<std::filesystem::path> places(const std::string& module, std::vector<std::string>& shown) const;

    static void* allocate(void* self, void* block, size_t old_size, size_t new_size);
    static void count(lua_State* L, lua_Debug* frame);

    Host& host_;
    std::filesystem::path folder_;
    std::filesystem::path library_;
    Limits limits_;
    int64_t instructions_ = 0;
    int64_t bytes_ = 0;
    int64_t ops_ = 0;
    Origin refused_;  ///< where memory ran out
    std::optional<Deadline> deadline_;
    std::vector<std::string> loading_;
    lua_State* L_ = nullptr;
};

/// True for modules of the library that only pass calls on: orrery/nn.lua, but not orrery/models/gpt.lua.
bool is_plumbing(std::string_view file);
/// Throws at the first [script] key when the script declared no options.
void check_script_table(State& state);

// Each file of this folder adds its classes and its functions to the table on top of the stack, `orrery.native`.
void open_errors(lua_State* L);
void open_config(lua_State* L);
void open_published_config(lua_State* L);
void open_values(lua_State* L);
void open_ops(lua_State* L);
void open_trace(lua_State* L);
void open_program(lua_State* L);
void open_update(lua_State* L);
void open_run(lua_State* L);
void open_strategies(lua_State* L);
void open_collectives(lua_State* L);
void open_data(lua_State* L);
void open_inspect(lua_State* L);

}  // namespace orrery::lua
