#include "compile/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "compile/islands.h"
#include "compile/round.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "plan/access.h"
#include "plan/opening.h"

namespace orrery {
namespace {

/// Whether the op is that of update:arrived: it reduces a sent state over all islands.
bool arrives(const Program& program, const Op& op) {
    return op_def(op.kind).reduces && is_sent(program.value(op.inputs[0])) &&
           op.attributes.integers("dims") == Shape{0};
}

/// The states that a program reads as messages, by name. Throws Error if it uses a sent state in another way.
std::map<std::string, Origin> awaited(const Program& program) {
    std::map<std::string, Origin> all;
    const auto refuse = [&](ValueId id, const Origin& origin) {
        throw Error(origin, fmt::format("{} is sent, and can only be read by update:arrived, once it has arrived",
                                        describe(program, id)));
    };
    for (const Op& op : program.ops)
        for (const ValueId id : op.inputs) {
            if (!is_sent(program.value(id))) continue;
            if (!arrives(program, op)) refuse(id, op.origin);
            all.emplace(program.value(id).name, op.origin);
        }
    for (const Update& update : program.updates)
        if (is_sent(program.value(update.value))) refuse(update.value, program.value(update.target).origin);
    for (const Result& result : program.results)
        if (is_sent(program.value(result.value))) refuse(result.value, program.value(result.value).origin);
    return all;
}

/// Whether the value is computed from the array of this name.
bool reads(const Program& program, ValueId value, const std::string& array) {
    std::vector<char> seen(program.values.size());
    std::vector<ValueId> left{value};
    while (!left.empty()) {
        const ValueId id = left.back();
        left.pop_back();
        if (std::exchange(seen[id], 1) != 0) continue;
        if (is_array(program.value(id)) && program.value(id).name == array) return true;
        if (const OpId maker = program.value(id).op; maker != none)
            for (const ValueId input : program.op(maker).inputs) left.push_back(input);
    }
    return false;
}

}  // namespace

bool sends(const Program& program) {
    return std::ranges::any_of(program.updates,
                               [&](const Update& update) { return is_sent(program.value(update.target)); });
}

void prove_messages(Round& round, const std::vector<const Program*>& programs) {
    const std::vector<std::string>& names = round.names();
    std::map<std::string, int> sender;  // by name of the state: index of the program that sets it
    for (size_t i = 0; i < programs.size(); ++i) {
        if (!programs[i]) continue;
        for (const Update& update : programs[i]->updates) {
            const Value& state = programs[i]->value(update.target);
            if (!is_sent(state)) continue;
            if (const auto [other, fresh] = sender.emplace(state.name, static_cast<int>(i)); !fresh)
                throw Error(state.origin, fmt::format("{} is sent by two programs, {} and {}\n  send it from one, or "
                                                      "give each a state of its own",
                                                      state.name, quote(names[other->second]), quote(names[i])));
        }
    }
    for (const Program* program : programs)
        for (const Value& value : program ? program->values : std::vector<Value>())
            if (is_array(value) && !is_sent(value) && sender.contains(value.name))
                throw Error(value.origin,
                            fmt::format("{} is sent by program {}, and can only be read by update:arrived", value.name,
                                        quote(names[sender.at(value.name)])));
    std::vector<int> senders(names.size(), none);
    std::map<std::string, int> unread = sender;
    for (size_t i = 0; i < programs.size(); ++i) {
        if (!programs[i]) continue;
        for (const auto& [state, origin] : awaited(*programs[i])) {
            const auto from = sender.find(state);
            if (from == sender.end())
                throw Error(origin, fmt::format("program {} waits for {}, which no program sends\n  call "
                                                "update:send in another program of the round",
                                                quote(names[i]), state));
            if (from->second == static_cast<int>(i))
                throw Error(origin, fmt::format("program {} waits for {}, which it sends itself\n  wait for it in "
                                                "another program of the round",
                                                quote(names[i]), state));
            if (senders[i] != none && senders[i] != from->second)
                throw Error(origin,
                            fmt::format("program {} waits for states that two programs send, {} and {}\n  send all "
                                        "of it from one, or wait in two programs",
                                        quote(names[i]), quote(names[senders[i]]), quote(names[from->second])));
            senders[i] = from->second;
            unread.erase(state);
        }
    }
    for (const auto& [state, from] : unread) {
        const ValueId id = *programs[from]->find(state);
        throw Error(programs[from]->value(id).origin,
                    fmt::format("program {} sends {}, but no program waits for it\n  call update:arrived in another "
                                "program of the round",
                                quote(names[from]), state));
    }
    if (!sender.empty()) round.prove_messages(senders);
}

void check_owed(const std::vector<const Program*>& programs) {
    // What islands sum: the term, or what any program sends of it.
    const auto has = [&](const Program& program, ValueId term, const std::string& owed) {
        const Value& array = program.value(term);
        if (!is_sent(array)) return reads(program, term, owed);
        return std::ranges::any_of(programs, [&](const Program* other) {
            return other && std::ranges::any_of(other->updates, [&](const Update& update) {
                       return other->value(update.target).name == array.name && reads(*other, update.value, owed);
                   });
        });
    };
    for (const Program* program : programs) {
        if (!program) continue;
        for (const Op& op : program->ops) {
            const ValueId moved = program->value(op.outputs[0]).of;
            if (moved == none || program->value(moved).role != Role::state) continue;
            if (has(*program, op.inputs[0], program->value(moved).name)) continue;
            const std::string param = program->value(program->value(moved).of).name;
            throw Error(op.origin,
                        fmt::format("islands sum what they moved {} by, without what encoding left out before\n  add "
                                    "update:owed({}) to what they send, or leave feedback out of strategy islands",
                                    param, param));
        }
    }
}

void complete_messages(Program& marked, const Islands& islands) {
    for (const Result& result : marked.results)
        if (const OpId maker = marked.value(result.value).op; maker != none && arrives(marked, marked.op(maker)))
            throw Error(
                marked.op(maker).origin,
                fmt::format("the result {} is what update:arrived returned\n  give a value computed from it, as "
                            "in update:result({}, x * 1)",
                            result.name, quote(result.name)));
    for (const Op& op : marked.ops)
        if (arrives(marked, op)) marked.store(op.outputs[0], islands.axis, Placement::replicated(), islands.origin);
}

void check_opening(const Plan& plan, const Islands& islands) {
    const Program& program = plan.program;
    if (plan.mesh.size(islands.axis) == 1) return;
    for (const RankClass& c : plan.classes)
        for (int i = opening(program, c); i < std::ssize(c.stream); ++i)
            for_each_access(c, c.stream[i], [&](const Operand& operand, bool reads, bool) {
                if (!reads || operand.value == none || !is_sent(program.value(operand.value)) ||
                    c.stream[i].op == none || !is_sent(program.value(program.op(c.stream[i].op).inputs[0])))
                    return;
                throw Error(program.op(c.stream[i].op).origin,
                            fmt::format("bug in Orrery: {} is not read in the opening of {}",
                                        program.value(operand.value).name, program.name),
                            Fault::failed);
            });
}

}  // namespace orrery
