#pragma once
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
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
    int64_t ops = 1'000'000;
    double seconds = 60;  ///< max seconds of processor time, not counting the host's work
};

/// One Lua state with its libraries, limits and host. Its destructor closes the state.
class State {
public:
    /// `folder`: the folder of the script's modules. Reads [lua] of the host's configuration.
    State(Host& host, std::filesystem::path folder);
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    lua_State* lua() const { return L_; }
    Host& host() const { return host_; }
    const std::filesystem::path& library() const { return library_; }  ///< the folder that contains orrery/
    /// Runs Lua text, which messages call `shown`.
    void run_text(std::string_view text, const std::string& shown);

    /// Pushes the value of a Lua module, loaded on first use. Throws Error naming the places tried.
    void require(lua_State* L, const std::string& module);
    void require(const std::string& module) { require(L_, module); }
    bool finds(const std::string& module) const { return !file_of(module).empty(); }
    /// Returns the module's file as messages show it; "" when there is none.
    std::string file_of(const std::string& module) const;

    Schedule schedule(Pipeline& pipeline, int64_t ranks, int64_t microbatches);

    /// Runs `work`, which calls functions of the script while the script waits in a call of the host. May be called
    /// from any thread, but not concurrently. Throws Error with the script's lines.
    void call_later(const std::function<void()>& work);

    /// Counts one recorded op; throws Error when the limit is exceeded.
    void charge_op();
    /// Counts `elements` that a C function is about to process as instructions; throws Error above the script's limit.
    void charge(lua_State* L, uint64_t elements);
    /// Records the current line, for the report of a script that exceeds its time limit.
    void see(lua_State* L);
    /// Stops the script's clock while the host works.
    Deadline::Pause pause() { return Deadline::Pause(deadline_ ? &*deadline_ : nullptr); }

    bool options_declared = false;
    std::set<std::string> taken;  ///< configuration keys that a call or the script has read: "train.steps"
    int runs = 0;
    Origin stand_in;                             ///< line of the script that where() returns during a call_for()
    std::shared_ptr<Tape> tape;                  ///< the tape that o.trace or an optimizer is recording, if any
    std::vector<Decomposition> decompositions;   ///< those that the script has declared so far
    std::vector<std::shared_ptr<const Codec>> codecs;  ///< those, too; and those of plugins
    std::map<std::string, std::string> sources;  ///< text of each file that was loaded, by its name in messages
    std::string recorded_again;  ///< text for errors while a function is recorded with other sizes than at first

    void open_libraries();

private:
    void run_chunk(const std::string& text, const std::string& shown);
    void protect(lua_CFunction function, void* argument, const std::string& shown);
    void late(const Origin& seen);
    /// Returns, as an exception, the error of a Lua call that ended with `status`; the error is on top of the stack.
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
    bool limited_ = false;  ///< whether limits_.memory_bytes refused memory, not the system
    Origin refused_;        ///< the script line at which it did
    std::optional<Deadline> deadline_;
    std::vector<std::string> loading_;
    lua_State* L_ = nullptr;
};

/// Returns true for modules of the library that only forward calls: orrery/nn.lua, but not orrery/models/gpt.lua.
bool is_plumbing(std::string_view file);
/// If the script declared no options, throws Error at the first key of the configuration's [script].
void check_script_table(State& state);

// Each open_ function adds the classes and functions of one file to the table on top of the stack, `orrery.native`.
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
void open_decompose(lua_State* L);
void open_codec(lua_State* L);
void open_collectives(lua_State* L);
void open_data(lua_State* L);
void open_inspect(lua_State* L);

}  // namespace orrery::lua
