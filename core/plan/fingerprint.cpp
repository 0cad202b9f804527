#include <span>

#include "base/hash.h"
#include "plan/print.h"

namespace orrery {

namespace {

/// Bytes in a fixed order; every string and list is preceded by its length, so that no two plans write alike.
class Writer {
public:
    void number(int64_t n) { bytes_.append(reinterpret_cast<const char*>(&n), sizeof n); }
    void text(std::string_view text) {
        number(static_cast<int64_t>(text.size()));
        bytes_.append(text);
    }
    void numbers(const std::vector<int64_t>& list) {
        number(static_cast<int64_t>(list.size()));
        for (int64_t n : list) number(n);
    }
    void type(const TensorType& type) {
        number(static_cast<int64_t>(type.dtype));
        numbers(type.shape);
    }
    void attribute(const Attribute& attribute) {
        number(static_cast<int64_t>(attribute.index()));
        if (const bool* flag = std::get_if<bool>(&attribute)) number(*flag);
        if (const int64_t* integer = std::get_if<int64_t>(&attribute)) number(*integer);
        if (const double* real = std::get_if<double>(&attribute))
            bytes_.append(reinterpret_cast<const char*>(real), sizeof *real);
        if (const std::string* word = std::get_if<std::string>(&attribute)) text(*word);
        if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute)) numbers(*list);
    }
    std::string digest() const { return sha256(bytes_); }

private:
    std::string bytes_;
};

void write(Writer& w, const KernelSpec& spec) {
    w.text(spec.op);
    w.number(static_cast<int64_t>(spec.attributes.items().size()));
    for (const auto& [key, value] : spec.attributes.items()) {
        w.text(key);
        w.attribute(value);
    }
    for (const auto* types : {&spec.inputs, &spec.outputs}) {
        w.number(static_cast<int64_t>(types->size()));
        for (const TensorType& type : *types) w.type(type);
    }
}

void write(Writer& w, const Instruction& i) {
    for (int64_t n : {int64_t{static_cast<uint8_t>(i.what)}, int64_t{i.queue}, int64_t{i.kernel}, int64_t{i.workspace},
                      int64_t{i.axis}, int64_t{static_cast<uint8_t>(i.reduce)}, int64_t{i.peer}, i.tag, int64_t{i.op},
                      i.fragment.micro})
        w.number(n);
    w.number(static_cast<int64_t>(i.operands.size()));
    for (const Operand& operand : i.operands) {
        w.number(operand.buffer);
        w.number(operand.offset);
        w.type(operand.type);
    }
    w.numbers({i.waits.begin(), i.waits.end()});
}

void write(Writer& w, const RankClass& c) {
    w.numbers(c.ranks);
    w.number(static_cast<int64_t>(c.kernels.size()));
    for (const KernelSpec& spec : c.kernels) write(w, spec);
    for (const PerRank& p : c.per_rank) {
        w.text(p.key);
        w.numbers({p.kernel, p.dim, p.axis, p.step});
    }
    w.number(static_cast<int64_t>(c.buffers.size()));
    for (const Buffer& b : c.buffers) w.numbers({static_cast<int64_t>(b.arena), b.offset, b.bytes});
    w.number(static_cast<int64_t>(c.stream.size()));
    for (const Instruction& i : c.stream) write(w, i);
    w.numbers({c.persistent_bytes, c.scratch_bytes});
}

}  // namespace

std::string fingerprint(const Plan& plan) {
    Writer w;
    w.text("orrery plan 1");
    w.text(plan.mesh.text());
    for (const Axis& axis : plan.mesh.axes()) w.number(axis.size);
    w.number(plan.threads_per_rank);
    for (const RankClass& c : plan.classes) write(w, c);
    return w.digest();
}

}  // namespace orrery
