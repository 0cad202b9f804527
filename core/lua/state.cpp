#include "lua/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/regular_file.h"
#include "base/text.h"
#include "lua/libraries.h"
#include "lua/record/tape.h"
#include "lua/schedules.h"
#include "lua/script.h"

namespace orrery::lua {

namespace {

constexpr int instructions_per_check = 4'000;  // each check takes about a microsecond

std::string read_file(const std::filesystem::path& file, const std::string& shown) {
    constexpr size_t most = 16 << 20;
    const RegularFile in(file.string());
    if (!in.problem().empty()) throw Error({"", shown, 0, 0}, in.problem() + "\n  name a Lua script");
    std::string text = in.text(most + 1);
    if (text.size() > most)
        throw Error({"", shown, 0, 0},
                    fmt::format("file too large: more than {} MiB\n  is this a Lua script?", most >> 20));
    return text;
}

int open_all(lua_State* L) {
    state_of(L).open_libraries();
    return 0;
}

struct Chunk {
    const std::string& text;
    const std::string& shown;
};

/// Loads and runs the Lua text of a Chunk inside the protected call, which thus also reports syntax errors.
int run_loaded(lua_State* L) {
    const auto* chunk = static_cast<const Chunk*>(lua_touserdata(L, 1));
    load_text(L, chunk->text, chunk->shown);
    lua_call(L, 0, 0);
    return 0;
}

/// Lists a module as being loaded while this object exists, to find modules that require each other.
struct Loading {
    std::vector<std::string>& names;
    Loading(std::vector<std::string>& all, const std::string& module) : names(all) { names.push_back(module); }
    ~Loading() { names.pop_back(); }
    Loading(const Loading&) = delete;
};

int require_module(lua_State* L) {
    state_of(L).require(L, check_text(L, 1));
    return 1;
}

}  // namespace

State::State(Host& host, std::filesystem::path folder) : codecs(host.codecs), host_(host), folder_(std::move(folder)) {
    Config& config = host_.config().table("lua");
    library_ = script_library(config.text("library", ""));
    constexpr int64_t most = int64_t{1} << 40;
    limits_.instructions = std::min(config.integer("instructions_million", 0), most) * 1'000'000;
    limits_.memory_bytes = std::min(config.integer("memory_mib", 0), most) << 20;
    limits_.seconds = host_.config().table("script").number("timeout_s", limits_.seconds);
    L_ = lua_newstate(allocate, this);
    if (!L_) throw std::bad_alloc();
    *static_cast<State**>(lua_getextraspace(L_)) = this;
    lua_pushcfunction(L_, guard<open_all>);
    try {
        if (const int status = lua_pcall(L_, 0, 0, 0)) rethrow(status, "orrery");
    } catch (...) {
        lua_close(L_);
        throw;
    }
}

State::~State() { lua_close(L_); }

void State::open_libraries() {
    Config& run = host_.config().table("run");
    open_errors(L_);
    open_standard(L_, host_.config().table("lua").texts("allow"), run.integer("seed", 0));
    lua_newtable(L_);  // package.loaded: modules by name
    lua_newtable(L_);  // the module orrery.native
    open_config(L_);
    open_published_config(L_);
    open_values(L_);
    open_ops(L_);
    open_trace(L_);
    open_program(L_);
    open_update(L_);
    open_run(L_);
    open_strategies(L_);
    open_decompose(L_);
    open_codec(L_);
    open_collectives(L_);
    open_data(L_);
    open_inspect(L_);
    lua_setfield(L_, -2, "orrery.native");
    lua_setfield(L_, LUA_REGISTRYINDEX, "orrery.loaded");
    lua_pushcfunction(L_, guard<require_module>);
    lua_setglobal(L_, "require");
}

void* State::allocate(void* self, void* block, size_t old_size, size_t new_size) {
    State& state = *static_cast<State*>(self);
    const auto before = static_cast<int64_t>(block ? old_size : 0);
    const auto after = static_cast<int64_t>(new_size);
    if (new_size == 0) {
        std::free(block);
        state.bytes_ -= before;
        return nullptr;
    }
    if (after > before && state.bytes_ - before + after > state.limits_.memory_bytes) {
        state.limited_ = true;
        if (state.L_) state.refused_ = where(state.L_);
        return nullptr;
    }
    void* made = std::realloc(block, new_size);
    if (made) state.bytes_ += after - before;
    return made;
}

void State::count(lua_State* L, lua_Debug*) {
    State& state = state_of(L);
    state.instructions_ += instructions_per_check;
    if (state.instructions_ < state.limits_.instructions) return state.see(L);
    lua_sethook(L, count, LUA_MASKCOUNT, 1);  // raised at each instruction, as pcall may catch it
    const int64_t million = state.limits_.instructions / 1'000'000;
    raise(L,
          std::make_exception_ptr(Error(
              where(L),
              fmt::format("instruction limit exceeded: still running after {} million Lua instructions\n  does a loop "
                          "not end? if the script needs more, --set lua.instructions_million={}",
                          million, 2 * million))));
}

void State::charge(lua_State* L, uint64_t elements) {
    const int64_t left = std::max<int64_t>(0, limits_.instructions - instructions_);
    if (elements > static_cast<uint64_t>(left))
        throw Error(where(L), fmt::format("{}: {} elements exceed the limit of {} million instructions of a script\n"
                                          "  check its counts; if the script needs more, "
                                          "--set lua.instructions_million={}",
                                          function_name(L), elements, limits_.instructions / 1'000'000,
                                          2 * (limits_.instructions / 1'000'000)));
    instructions_ += static_cast<int64_t>(elements);
}

void State::see(lua_State* L) {
    if (deadline_) deadline_->see(where(L));
}

/// Ends the process of a late script. Runs on the deadline's thread while Lua runs, so it may not access the Lua state.
void State::late(const Origin& seen) {
    host_.give_up(
        Error(seen, fmt::format("script timed out: still running after {} s of processor time\n  this is the line seen "
                                "last; if the script needs more, --set script.timeout_s={}",
                                limits_.seconds, 2 * limits_.seconds))
            .what());
}

void State::charge_op() {
    if (++ops_ <= limits_.ops) return;
    throw Error(where(L_),
                fmt::format("too many ops: more than {} recorded\n  does a loop of the script not end?", limits_.ops));
}

std::exception_ptr State::error_of(int status, const std::string& shown) {
    if (status == LUA_ERRMEM && !limited_) return std::make_exception_ptr(std::bad_alloc());
    if (status == LUA_ERRMEM) {
        const Origin place = refused_.file.empty() ? Origin{"", shown, 0, 0} : refused_;
        const int64_t mib = limits_.memory_bytes >> 20;
        return std::make_exception_ptr(Error(
            place, fmt::format("out of memory: the script needs more than {} MiB of memory\n  if this is intended, "
                               "--set lua.memory_mib={}",
                               mib, 2 * mib)));
    }
    std::exception_ptr error = exception_at(L_, -1);
    if (!error) {
        size_t size = 0;
        const char* text = lua_tolstring(L_, -1, &size);
        // The message handler itself failed, so there is no exception.
        error = std::make_exception_ptr(Error({"", shown, 0, 0}, text ? std::string(text, size) : "failed"));
    }
    return error;
}

void State::rethrow(int status, const std::string& shown) {
    const std::exception_ptr error = error_of(status, shown);
    lua_settop(L_, 0);
    std::rethrow_exception(error);
}

namespace {

struct ScheduleCall {
    Pipeline& pipeline;
    int64_t ranks, microbatches;
    Schedule made;
};

int call_work(lua_State* L) {
    (*static_cast<const std::function<void()>*>(lua_touserdata(L, 1)))();
    return 0;
}

int call_schedule(lua_State* L) {
    auto& asked = *static_cast<ScheduleCall*>(lua_touserdata(L, 1));
    asked.made = make_schedule(L, asked.pipeline, asked.ranks, asked.microbatches);
    return 0;
}

}  // namespace

/// Calls functions of the script, possibly from another thread. The thread that called the host does not touch this Lua
/// state until the host returns, so for Lua the call is a nested one.
void State::call_later(const std::function<void()>& work) {
    struct Anew {  // gives the call a script's limits; then restores the counts
        int64_t &instructions, &ops;
        const int64_t instructions_before = std::exchange(instructions, 0), ops_before = std::exchange(ops, 0);
        ~Anew() {
            instructions = instructions_before;
            ops = ops_before;
        }
    } anew{instructions_, ops_};
    lua_sethook(L_, count, LUA_MASKCOUNT, instructions_per_check);
    const int top = lua_gettop(L_);
    luaL_checkstack(L_, 8, "a call of the host");
    lua_pushcfunction(L_, add_calls);
    lua_pushcfunction(L_, guard<call_work>);
    lua_pushlightuserdata(L_, const_cast<std::function<void()>*>(&work));
    const int status = lua_pcall(L_, 1, 0, top + 1);
    if (status == LUA_OK) return lua_settop(L_, top);
    const std::exception_ptr error = error_of(status, "the script");
    lua_settop(L_, top);
    std::rethrow_exception(error);
}

void State::protect(lua_CFunction function, void* argument, const std::string& shown) {
    lua_settop(L_, 0);
    lua_pushcfunction(L_, add_calls);
    lua_pushcfunction(L_, function);
    lua_pushlightuserdata(L_, argument);
    deadline_.emplace(limits_.seconds, [this](const Origin& seen) { late(seen); });
    deadline_->see({"", shown, 0, 0});
    lua_sethook(L_, count, LUA_MASKCOUNT, instructions_per_check);
    const int status = lua_pcall(L_, 1, 0, 1);
    lua_sethook(L_, nullptr, 0, 0);
    deadline_.reset();
    if (status != LUA_OK) rethrow(status, shown);
    lua_settop(L_, 0);
}

void State::run_chunk(const std::string& text, const std::string& shown) {
    Chunk chunk{text, shown};
    protect(guard<run_loaded>, &chunk, shown);
}

Schedule State::schedule(Pipeline& pipeline, int64_t ranks, int64_t microbatches) {
    ScheduleCall call{pipeline, ranks, microbatches, {}};
    protect(guard<call_schedule>, &call, "schedule " + pipeline.schedule);
    return std::move(call.made);
}

void State::run_text(std::string_view text, const std::string& shown) { run_chunk(std::string(text), shown); }

namespace {
bool is_ours(const std::string& module) { return module == "orrery" || module.starts_with("orrery."); }
}  // namespace

std::vector<std::filesystem::path> State::places(const std::string& module, std::vector<std::string>& shown) const {
    const std::string path = join(split(module, '.'), "/");
    const bool ours = is_ours(module);
    std::vector<std::filesystem::path> out;
    for (const std::string& name : {path + ".lua", path + "/init.lua"}) {
        out.push_back((ours ? library_ : folder_) / name);
        const bool plain = ours || folder_.empty() || folder_ == ".";
        shown.push_back(plain ? name : (folder_ / name).string());
    }
    return out;
}

std::string State::file_of(const std::string& module) const {
    const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    if (module.empty() || !std::ranges::all_of(module, plain)) return "";
    std::vector<std::string> shown;
    const auto tried = places(module, shown);
    for (size_t i = 0; i < tried.size(); ++i)
        if (std::filesystem::is_regular_file(tried[i])) return shown[i];
    return "";
}

void State::require(lua_State* L, const std::string& module) {
    lua_getfield(L, LUA_REGISTRYINDEX, "orrery.loaded");
    const int loaded = lua_gettop(L);
    if (lua_getfield(L, loaded, module.c_str()) != LUA_TNIL) {
        lua_remove(L, loaded);
        return;
    }
    lua_pop(L, 1);
    const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    if (module.empty() || !std::ranges::all_of(module, plain) || module.find("..") != std::string::npos)
        fail(L, fmt::format("bad module name {}\n  names are like orrery.nn or beside_me", quote(module)));
    if (std::ranges::find(loading_, module) != loading_.end())
        fail(L, fmt::format("circular require of module {}: {} -> {}", quote(module), join(loading_, " -> "), module));
    std::vector<std::string> shown;
    const std::vector<std::filesystem::path> tried = places(module, shown);
    for (size_t i = 0; i < tried.size(); ++i) {
        if (!std::filesystem::is_regular_file(tried[i])) continue;
        {
            const Loading loading(loading_, module);  // also ends if a pcall catches a failure to load
            const std::string text = read_file(tried[i], shown[i]);
            host_.required(tried[i].lexically_relative(is_ours(module) ? library_ : folder_).string(), text);
            load_text(L, text, shown[i]);
            lua_call(L, 0, 1);
        }
        if (lua_isnil(L, -1))
            fail(L, fmt::format("module {} in {} returned nothing; end it with `return`", quote(module), shown[i]));
        lua_pushvalue(L, -1);
        lua_setfield(L, loaded, module.c_str());
        lua_remove(L, loaded);
        return;
    }
    fail(L, fmt::format("no module {}\n  tried {}", quote(module), join({tried[0].string(), tried[1].string()}, ", ")));
}

}  // namespace orrery::lua

namespace orrery {

namespace {
/// Makes and proves the tables of the collective algorithms in [collectives], before the script runs.
void expand_collectives(lua::State& state) {
    if (state.host().collectives.empty()) return;
    state.run_text("require('orrery.native').expand_collectives()", "[collectives]");
}
}  // namespace

void run_script(const std::filesystem::path& script, Host& host) {
    run_script_text(lua::read_file(script, script.string()), script.string(), script.parent_path(), host);
}

void run_script_text(std::string_view text, const std::string& shown, const std::filesystem::path& folder, Host& host) {
    lua::State state(host, folder);
    expand_collectives(state);
    state.run_text(text, shown);
}

Schedule load_schedule(Pipeline pipeline, int64_t ranks, int64_t microbatches, const std::filesystem::path& folder,
                       Host& host, int* chunks) {
    Schedule schedule = lua::State(host, folder).schedule(pipeline, ranks, microbatches);
    if (chunks) *chunks = pipeline.chunks;
    return schedule;
}

}  // namespace orrery
