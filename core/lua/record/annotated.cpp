// Implements the arguments of a strategy: the program to annotate, and the mesh.
#include <fmt/format.h>

#include <algorithm>

#include "ir/codecs.h"
#include "ir/op.h"
#include "lua/fields.h"
#include "lua/record/marks.h"
#include "lua/schedules.h"
#include "lua/state.h"
#include "orrery/strategy.h"

namespace orrery::lua {

void push_op(lua_State* L, const std::shared_ptr<Tape>& tape, const Op& op) {
    const auto push_values = [&](const char* field, const std::vector<ValueId>& ids) {
        lua_createtable(L, static_cast<int>(ids.size()), 0);
        for (size_t i = 0; i < ids.size(); ++i) {
            push_symbol(L, tape, ids[i]);
            lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
        }
        lua_setfield(L, -2, field);
    };
    lua_createtable(L, 0, 6);
    push(L, op.kind);
    lua_setfield(L, -2, "kind");
    push(L, op.scope);
    lua_setfield(L, -2, "scope");
    push(L, op.origin.text());
    lua_setfield(L, -2, "origin");
    if (op.forward != none) {
        push(L, tape->program->op(op.forward).kind);
        lua_setfield(L, -2, "forward");
    }
    push_values("inputs", op.inputs);
    push_values("outputs", op.outputs);
}

void push_ops(lua_State* L, const std::shared_ptr<Tape>& tape, std::string_view function,
              const std::function<bool(const Op&)>& wanted) {
    const Program& program = *annotating(L, tape, function).program;
    lua_newtable(L);
    lua_Integer count = 0;
    for (const Op& op : program.ops) {
        if (!wanted(op)) continue;
        push_op(L, tape, op);
        lua_rawseti(L, -2, ++count);
    }
}

namespace {

struct AnnotatedProgram {
    std::shared_ptr<Tape> tape;
};

struct MeshView {
    Mesh mesh;
};

}  // namespace

template <>
struct Class<AnnotatedProgram> {
    static constexpr const char* name = "orrery.annotated";
    static constexpr const char* what = "a program";
};
template <>
struct Class<MeshView> {
    static constexpr const char* name = "orrery.mesh";
    static constexpr const char* what = "a mesh";
};

namespace {

/// Whether an iterator over values of `role` (program:params(), ...) visits a value. Of Role::temporary, only
/// activations: float values of forward ops.
bool wanted(const Program& program, const Value& value, Role role) {
    if (value.role != role) return false;
    if (role != Role::temporary) return true;
    return value.op != none && program.op(value.op).phase == Phase::forward && is_float(value.type.dtype);
}

/// Iterator over a program's values of one role. Upvalues: the program, the number of visited values.
template <Role role>
int next_value(lua_State* L) {
    const AnnotatedProgram& program = check<AnnotatedProgram>(L, lua_upvalueindex(1));
    const auto& values = program.tape->program->values;
    auto at = static_cast<size_t>(lua_tointeger(L, lua_upvalueindex(2)));
    while (at < values.size() && !wanted(*program.tape->program, values[at], role)) ++at;
    if (at >= values.size()) return 0;
    lua_pushinteger(L, static_cast<lua_Integer>(at + 1));
    lua_replace(L, lua_upvalueindex(2));
    push_symbol(L, program.tape, static_cast<ValueId>(at));
    return 1;
}

template <Role role>
int values(lua_State* L) {
    check<AnnotatedProgram>(L, 1);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, guard<next_value<role>>, 2);
    return 1;
}

Tape& annotated(lua_State* L, std::string_view function) {
    return annotating(L, check<AnnotatedProgram>(L, 1).tape, function);
}

int find(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<AnnotatedProgram>(L, 1).tape;
    const auto id = tape->program->find(check_text(L, 2));
    if (id)
        push_symbol(L, tape, *id);
    else
        lua_pushnil(L);
    return 1;
}

/// program:ops([kind]) -> the ops, or those of one kind, in order.
int ops(lua_State* L) {
    const std::shared_ptr<Tape> tape = check<AnnotatedProgram>(L, 1).tape;
    const std::string kind = lua_isnoneornil(L, 2) ? "" : check_text(L, 2);
    if (!kind.empty()) op_def(kind, mark_origin(*tape));
    push_ops(L, tape, "ops", [&](const Op& op) { return kind.empty() || op.kind == kind; });
    return 1;
}

/// program:scopes() -> the scopes of forward ops, in order.
int scopes(lua_State* L) {
    const Program& program = *annotated(L, "scopes").program;
    std::vector<std::string> names;
    for (const Op& op : program.ops) {
        if (op.phase != Phase::forward || (!names.empty() && names.back() == op.scope)) continue;
        if (std::find(names.begin(), names.end(), op.scope) == names.end()) names.push_back(op.scope);
    }
    push(L, names);
    return 1;
}

int stage(lua_State* L) {
    Tape& tape = annotated(L, "stage");
    const int64_t number = check_integer(L, 3);
    if (number < 0) bad_argument(L, 3, "stages count from 0");
    tape.program->stage(check_text(L, 2), static_cast<int>(number), mark_origin(tape));
    return 0;
}

/// program:pipeline { axis = , schedule = , chunks = 1 }: runs the layers as a pipeline over the axis.
int pipeline(lua_State* L) {
    Tape& tape = annotated(L, "pipeline");
    Fields fields(L, 2, "pipeline");
    Pipeline asked;
    asked.axis = fields.text("axis").value_or("pp");
    asked.schedule = fields.text("schedule").value_or("1f1b");
    const auto chunks = fields.integer("chunks", 0);
    fields.finish();
    asked.chunks = chunks.value_or(0) > 0 ? static_cast<int>(*chunks) : chunks_needed(L, asked.schedule, asked.axis);
    asked.origin = mark_origin(tape);
    tape.program->pipeline(std::move(asked));
    return 0;
}

/// program:layers() -> { { scope = , flops = }, ... }: the part before the layers, each layer, the part after them.
int program_layers(lua_State* L) {
    const Tape& tape = annotated(L, "layers");
    const std::vector<Layer> row = layers(*tape.program);
    lua_createtable(L, static_cast<int>(row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) {
        lua_createtable(L, 0, 2);
        push(L, row[i].scope);
        lua_setfield(L, -2, "scope");
        lua_pushnumber(L, row[i].flops);
        lua_setfield(L, -2, "flops");
        lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
    return 1;
}

/// program:recompute(scope [, { "gelu", "layernorm" }]): recomputes all ops in the scope, or those of some kinds.
int recompute(lua_State* L) {
    Tape& tape = annotated(L, "recompute");
    std::vector<std::string> kinds;
    if (!lua_isnoneornil(L, 3)) {
        check_table(L, 3, "a list of kinds of ops");
        for (lua_Integer i = 1; lua_rawgeti(L, 3, i) != LUA_TNIL; ++i, lua_pop(L, 1)) {
            kinds.push_back(check_text(L, -1));
            op_def(kinds.back(), mark_origin(tape));
        }
        if (kinds.empty()) bad_argument(L, 3, "a list of kinds of ops expected, got none");
    }
    tape.program->recompute(check_text(L, 2), mark_origin(tape), kinds);
    return 0;
}

/// program:note(value, text): adds a note that `orrery check` lists.
int note(lua_State* L) {
    Tape& tape = annotated(L, "note");
    const ValueId value = check_own(L, 2, check<AnnotatedProgram>(L, 1).tape);
    tape.program->note(value, check_text(L, 3), mark_origin(tape));
    return 0;
}

int microbatches(lua_State* L) {
    Tape& tape = annotated(L, "microbatches");
    const int64_t count = check_integer(L, 2);
    if (count < 1) bad_argument(L, 2, fmt::format("at least 1 expected, got {}", count));
    tape.program->microbatches(count, mark_origin(tape));
    return 0;
}

/// program:bucket(axis, mib): joins small collectives over the axis into collectives of up to `mib` MiB.
int bucket(lua_State* L) {
    Tape& tape = annotated(L, "bucket");
    const double mib = check_number(L, 3);
    if (!(mib >= 0)) bad_argument(L, 3, fmt::format("a size of 0 MiB or more expected, got {}", mib));
    tape.program->bucket(check_text(L, 2), static_cast<int64_t>(mib * (1 << 20)), mark_origin(tape));
    return 0;
}

/// program:reduce(axis, type): sends gradients over the axis in the data type `type`.
int reduce(lua_State* L) {
    Tape& tape = annotated(L, "reduce");
    const std::string name = check_text(L, 3);
    const std::optional<DType> type = parse_dtype(name);
    if (!type) bad_argument(L, 3, fmt::format("unknown type \"{}\"; gradients can be sent as \"bf16\"", name));
    tape.program->reduce_as(check_text(L, 2), *type, mark_origin(tape));
    return 0;
}

/// program:codec(axis, name, { of = "gradients", feedback = false }): sends them over the axis as the codec encodes
/// them.
int codec(lua_State* L) {
    Tape& tape = annotated(L, "codec");
    const std::string axis = check_text(L, 2), name = check_text(L, 3);
    Fields fields(L, 4, "program:codec");
    const std::string of = fields.text("of").value_or("gradients");
    const bool feedback = fields.flag("feedback").value_or(false);
    fields.finish();
    const auto* const option = std::ranges::find(codec_options, of, &CodecOption::what);
    if (option == std::end(codec_options)) fields.wrong("of", "\"gradients\", \"params\" or \"activations\"");
    if (feedback && of != "gradients") fields.wrong("feedback", "false: only gradients have feedback");
    tape.program->edge(axis, std::nullopt, option->option, name, mark_origin(tape));
    if (feedback) tape.program->edge(axis, std::nullopt, "feedback", true, mark_origin(tape));
    return 0;
}

/// program:prefetch(axis, layers) or program:prefetch(axis, { mib = size }): how far ahead params are gathered.
int prefetch(lua_State* L) {
    Tape& tape = annotated(L, "prefetch");
    PrefetchDepth ahead;
    if (lua_istable(L, 3)) {
        Fields fields(L, 3, "prefetch");
        const double mib = fields.number("mib").value_or(0);
        fields.finish();
        if (!(mib > 0 && mib < 1e9)) fields.wrong("mib", "more than 0 MiB");
        ahead.bytes = static_cast<int64_t>(mib * (1 << 20));
    } else {
        ahead.layers = check_integer(L, 3);
        if (ahead.layers < 0)
            bad_argument(L, 3, fmt::format("a number of 0 layers or more expected, got {}", ahead.layers));
    }
    tape.program->prefetch(check_text(L, 2), ahead, mark_origin(tape));
    return 0;
}

/// program:order(axis, name): the feed fills rows in this order, so that members of the axis have equal work.
int order(lua_State* L) {
    Tape& tape = annotated(L, "order");
    tape.program->edge(check_text(L, 2), std::nullopt, "order", check_text(L, 3), mark_origin(tape));
    return 0;
}

int mesh_size(lua_State* L) {
    lua_pushinteger(L, check<MeshView>(L, 1).mesh.size(check_text(L, 2)));
    return 1;
}

int mesh_ranks(lua_State* L) {
    lua_pushinteger(L, check<MeshView>(L, 1).mesh.ranks());
    return 1;
}

int mesh_text(lua_State* L) {
    push(L, check<MeshView>(L, 1).mesh.text());
    return 1;
}

}  // namespace

void push_annotated(lua_State* L, const std::shared_ptr<Tape>& tape) { push_object(L, AnnotatedProgram{tape}); }
void push_mesh(lua_State* L, const Mesh& mesh) { push_object(L, MeshView{mesh}); }

void open_annotated(lua_State* L) {
    const luaL_Reg program[] = {{"params", guard<values<Role::param>>},
                                {"inputs", guard<values<Role::input>>},
                                {"activations", guard<values<Role::temporary>>},
                                {"find", guard<find>},
                                {"ops", guard<ops>},
                                {"scopes", guard<scopes>},
                                {"stage", guard<stage>},
                                {"pipeline", guard<pipeline>},
                                {"layers", guard<program_layers>},
                                {"recompute", guard<recompute>},
                                {"microbatches", guard<microbatches>},
                                {"bucket", guard<bucket>},
                                {"reduce", guard<reduce>},
                                {"codec", guard<codec>},
                                {"prefetch", guard<prefetch>},
                                {"order", guard<order>},
                                {"note", guard<note>},
                                {nullptr, nullptr}};
    add_class<AnnotatedProgram>(L, program);
    const luaL_Reg mesh[] = {
        {"size", guard<mesh_size>}, {"ranks", guard<mesh_ranks>}, {"text", guard<mesh_text>}, {nullptr, nullptr}};
    add_class<MeshView>(L, mesh);
}

}  // namespace orrery::lua
