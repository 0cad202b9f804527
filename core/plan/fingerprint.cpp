#include <map>
#include <span>

#include "base/hash.h"
#include "plan/access.h"
#include "plan/print.h"
#include "plan/repeat.h"

namespace orrery {

namespace {

/// Writes a plan as bytes to hash. Strings and lists start with their length, so different plans give different bytes.
class Writer {
public:
    void number(int64_t n) { append({reinterpret_cast<const char*>(&n), sizeof n}); }
    void text(std::string_view text) {
        number(text.size());
        append(text);
    }
    void numbers(const std::vector<int64_t>& list) {
        number(list.size());
        for (int64_t n : list) number(n);
    }
    void type(const TensorType& type) {
        number(static_cast<int64_t>(type.dtype));
        numbers(type.shape);
    }
    void attribute(const Attribute& attribute) {
        number(attribute.index());
        if (const bool* flag = std::get_if<bool>(&attribute)) number(*flag);
        if (const int64_t* integer = std::get_if<int64_t>(&attribute)) number(*integer);
        if (const double* real = std::get_if<double>(&attribute))
            append({reinterpret_cast<const char*>(real), sizeof *real});
        if (const std::string* word = std::get_if<std::string>(&attribute)) text(*word);
        if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute)) numbers(*list);
    }
    /// The SHA-256 of everything written, in hexadecimal. Call it once, at the end.
    std::string digest() {
        digest_.update(bytes_);
        return digest_.hex();
    }

private:
    void append(std::string_view bytes) {
        bytes_.append(bytes);
        if (bytes_.size() < 1 << 16) return;
        digest_.update(bytes_);
        bytes_.clear();
    }

    std::string bytes_;
    Sha256 digest_;
};

void write(Writer& w, const KernelSpec& spec) {
    w.text(spec.op);
    w.number(spec.attributes.items().size());
    for (const auto& [key, value] : spec.attributes.items()) {
        w.text(key);
        w.attribute(value);
    }
    for (const auto* types : {&spec.inputs, &spec.outputs}) {
        w.number(types->size());
        for (const TensorType& type : *types) w.type(type);
    }
}

void write(Writer& w, const Instruction& i) {
    const int64_t peer = i.relative ? -3 - i.peer : i.peer;
    for (int64_t n :
         {int64_t{static_cast<uint8_t>(i.opcode)}, int64_t{i.queue}, int64_t{i.kernel}, int64_t{i.workspace},
          int64_t{i.axis}, int64_t{static_cast<uint8_t>(i.reduce)}, peer, i.tag, int64_t{i.op}, i.fragment.micro,
          int64_t{static_cast<uint8_t>(i.fragment.kind)}, int64_t{i.fragment.chunk}})
        w.number(n);
    w.number(i.operands.size());
    for (const Operand& operand : i.operands) {
        w.number(operand.buffer);
        w.number(operand.offset);
        if (operand.step != 0) w.numbers({-1, operand.step});
        w.type(operand.type);
    }
    w.numbers({i.waits.begin(), i.waits.end()});
}

void write(Writer& w, const RankClass& c) {
    w.numbers(c.ranks);
    w.number(c.kernels.size());
    for (const KernelSpec& spec : c.kernels) write(w, spec);
    for (const PerRank& p : c.per_rank) {
        w.text(p.key);
        w.numbers({p.kernel, p.dim, p.axis, p.step});
    }
    w.number(c.buffers.size());
    for (const Buffer& b : c.buffers) w.numbers({static_cast<int64_t>(b.arena), b.offset, b.bytes});
    w.number(c.stream.size());
    for (const Instruction& i : c.stream) write(w, i);
    w.number(c.places.size());
    for (const Operand& place : c.places) {
        w.numbers({place.buffer, place.offset, place.value});
        w.type(place.type);
    }
    w.numbers({c.persistent_bytes, c.scratch_bytes});
    if (!repeats(c)) return;
    const Repeat& r = c.repeat;
    w.text("repeat");
    w.numbers({r.begin, r.end, r.times, r.micros});
    for (const Frames& f : c.frames) {
        w.numbers({f.pool, f.offset, f.stride, f.slots});
        w.numbers({f.slot_of.begin(), f.slot_of.end()});
    }
    for (const Buffer& b : c.buffers)
        if (b.frames != none) w.numbers({&b - c.buffers.data(), b.frames, b.micro});
}

/// Writes the values that the host accesses by name: inputs, params, states, results and updates.
void write(Writer& w, const Program& program) {
    for (size_t id = 0; id < program.values.size(); ++id) {
        const Value& v = program.values[id];
        if (v.role == Role::temporary) continue;
        w.number(id);
        w.text(v.name);
        w.type(v.type);
    }
    for (const Result& result : program.results) {
        w.text(result.name);
        w.number(result.value);
    }
    for (const Update& update : program.updates) w.numbers({update.target, update.value});
    for (const EdgeMark& mark : program.edges())  // options that change no instruction
        if (mark.option == "order") w.text(mark.axis + " " + std::get<std::string>(mark.value));
}

std::string ranks_text(const std::vector<int64_t>& ranks) {
    if (ranks.empty()) return "";
    const std::string first = std::to_string(ranks.front());
    return ranks.size() == 1 ? " (rank " + first + ")" : " (ranks " + first + ".." + std::to_string(ranks.back()) + ")";
}

/// Names a part of the fingerprint: "what class 0 sends class 1 over pp", or "... its member +1 over dp".
std::string message_name(const Plan& plan, size_t k, const Instruction& i, const std::map<int64_t, size_t>& class_of) {
    const bool sends = i.opcode == Opcode::send;
    const std::string over = " over " + plan.mesh.axis(i.axis).name;
    if (i.relative)
        return "what class " + std::to_string(k) + (sends ? " sends" : " is sent by") + " its member +" +
               std::to_string(i.peer) + over;
    const auto group = plan.mesh.group(plan.classes[k].ranks.front(), i.axis);
    const size_t peer = class_of.at(group.at(i.peer));
    return "what class " + std::to_string(sends ? k : peer) + (sends ? " sends" : " is to send") + " class " +
           std::to_string(sends ? peer : k) + over;
}

/// The tags and types of all messages of the plan, in order, by the name of sender, receiver and axis (message_name).
std::map<std::string, Writer> messages_of(const Plan& plan) {
    std::map<std::string, Writer> all;
    std::map<int64_t, size_t> class_of;
    for (size_t k = 0; k < plan.classes.size(); ++k)
        for (int64_t rank : plan.classes[k].ranks) class_of[rank] = k;
    for (size_t k = 0; k < plan.classes.size(); ++k)
        for (const Instruction& i : plan.classes[k].stream) {
            if (!is_message(i.opcode)) continue;
            Writer& w = all[message_name(plan, k, i, class_of)];
            w.number(i.tag);
            w.type(i.operands.at(0).type);
            if (const int64_t times = times_of(plan.classes[k], &i - plan.classes[k].stream.data()); times > 1)
                w.numbers({times, plan.classes[k].repeat.micros});
        }
    return all;
}

}  // namespace

std::string fingerprint(const Plan& plan) {
    Writer w;
    w.text("orrery plan 2");
    w.text(plan.mesh.text());
    for (const Axis& axis : plan.mesh.axes()) w.number(axis.size);
    w.number(plan.threads_per_rank);
    for (const RankClass& c : plan.classes) write(w, c);
    write(w, plan.program);
    return w.digest();
}

std::vector<std::pair<std::string, std::string>> fingerprints(const Plan& plan) {
    std::vector<std::pair<std::string, std::string>> parts{{"the mesh", plan.mesh.text()},
                                                           {"threads per rank", std::to_string(plan.threads_per_rank)}};
    const auto part = [&](std::string name, Writer& w) {
        parts.emplace_back(std::move(name), w.digest().substr(0, 16));
    };
    Writer names;
    write(names, plan.program);
    part("inputs, results and updates", names);
    for (auto& [ends, messages] : messages_of(plan)) part(ends, messages);
    for (size_t k = 0; k < plan.classes.size(); ++k) {
        Writer w;
        write(w, plan.classes[k]);
        part("class " + std::to_string(k) + ranks_text(plan.classes[k].ranks), w);
    }
    return parts;
}

}  // namespace orrery
