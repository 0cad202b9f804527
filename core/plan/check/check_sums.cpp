#include "plan/check/check_sums.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/describe.h"
#include "ir/op.h"

namespace orrery {

namespace {

constexpr uint64_t base = 0xd1342543de82ef95ull;  // base of the hash; its powers repeat after 2^62

uint64_t power(int64_t exponent) {
    uint64_t result = 1;
    for (uint64_t square = base; exponent > 0; exponent >>= 1, square *= square)
        if (exponent & 1) result *= square;
    return result;
}

/// The hash of what the op of a value contributes in micro-batch `micro` (-1: once per step).
Contributions hash(ValueId value, int64_t micro) {
    uint64_t x = static_cast<uint64_t>(value) + 0x9e3779b97f4a7c15ull;  // mixed by the splitmix64 function
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    x = (x ^ x >> 31) | 1;
    if (micro < 0) return {x, 0};
    return {0, x * power(micro + 1)};
}

}  // namespace

Contributions& Contributions::operator+=(const Contributions& other) {
    once += other.once;
    each += other.each;
    return *this;
}

Contributions Contributions::later(int64_t micros) const { return {once, each * power(micros)}; }

Contributions contribution(int64_t micro) {
    if (micro < 0) return {1, 0};
    return {0, power(micro + 1)};
}

Sums::Sums(const Plan& plan, AxisId micro_axis, int64_t micros, int64_t further, std::vector<char> in_loop)
    : plan_(plan),
      micro_axis_(micro_axis),
      micros_(micros),
      width_(micros + further + 1),
      in_loop_(std::move(in_loop)) {
    rows_.assign(plan.program.values.size(), none);
}

bool Sums::varies(ValueId value) const {
    const Value& v = plan_.program.value(value);
    return plan_.mesh.microbatches() > 1 && micro_axis_ != none && v.role == Role::temporary &&
           v.layout.at(micro_axis_).kind != Placement::Kind::replicate;
}

Contributions Sums::made(ValueId value, int64_t micro) const { return hash(value, varies(value) ? micro : -1); }

bool Sums::adds(const std::string& kind) {
    const OpDef* const def = find_op_def(kind);
    return def && def->combines;
}

bool Sums::passes(const Op& op) const {
    const OpDef& def = op_def(op.kind);
    if (def.alias || def.moves == Moves::cuts) return true;
    return op.attributes.has("axis") && micro_axis_ != none &&
           plan_.mesh.find(op.attributes.text("axis")) == micro_axis_;
}

/// The input that the op passes on. Sets `micro` to -1 if that is a sum over micro-batches, read after the loop.
ValueId Sums::input(const Op& op, int64_t& micro) const {
    const bool over_micro = op.attributes.has("axis") && collective_of(op) != Opcode::kernel;
    if (over_micro && plan_.mesh.find(op.attributes.text("axis")) == micro_axis_) micro = -1;
    return op.inputs[0];
}

Sums::Known Sums::compute(ValueId value, int64_t micro) {
    using State = Known::State;
    const Value& v = plan_.program.value(value);
    const Op* const op = v.op == none ? nullptr : &plan_.program.op(v.op);
    std::vector<ValueId> parts;
    if (op && adds(op->kind)) parts = op->inputs;
    if (op && passes(*op)) parts = {input(*op, micro)};
    Known all{State::yes, {}};
    for (ValueId part : parts) {
        const std::optional<Contributions> sum = expected(part, micro);
        if (!sum) return {State::varies, {}};
        all.sum += *sum;
    }
    if (!parts.empty()) return all;
    if (!op || !varies(value) || !in_loop_[v.op]) return {State::yes, hash(value, -1)};
    if (micro >= 0) return {State::yes, hash(value, micro)};
    if (v.layout.at(micro_axis_).kind == Placement::Kind::split) return {State::varies, {}};
    for (int64_t m = 0; m < micros_; ++m) all.sum += hash(value, m);
    return all;
}

std::optional<Contributions> Sums::expected(ValueId value, int64_t micro) {
    int& row = rows_[value];
    if (row == none) {
        row = static_cast<int>(known_.size() / width_);
        known_.resize(known_.size() + width_);
    }
    const size_t at = row * width_ + (micro + 1);
    if (known_[at].state == Known::State::no) known_[at] = compute(value, micro);
    if (known_[at].state == Known::State::varies) return std::nullopt;
    return known_[at].sum;
}

void Sums::leaves(ValueId value, std::vector<ValueId>& all) const {
    const OpId maker = plan_.program.value(value).op;
    const Op* const op = maker == none ? nullptr : &plan_.program.op(maker);
    int64_t micro = 0;
    if (op && passes(*op)) return leaves(input(*op, micro), all);
    if (op && adds(op->kind)) {
        for (ValueId part : op->inputs) leaves(part, all);
    } else {
        all.push_back(value);
    }
}

/// Names contributions missing in `found`, by trying all subsets. Of more than 16, says only that they are others.
std::string Sums::subset(const std::vector<ValueId>& parts, int64_t micro, const Contributions& found) {
    std::vector<std::pair<ValueId, int64_t>> all;
    for (ValueId part : parts)
        for (int64_t m = 0; m < micros_; ++m)
            if (const auto whole = expected(part, micro); whole && *whole != hash(part, -1)) all.emplace_back(part, m);
    for (uint64_t taken = 0; all.size() <= 16 && taken < uint64_t{1} << all.size(); ++taken) {
        Contributions sum;
        std::string missing;
        for (size_t i = 0; i < all.size(); ++i)
            if (taken >> i & 1) sum += hash(all[i].first, all[i].second);
        if (sum != found) continue;
        for (size_t i = 0; i < all.size(); ++i)
            if (!(taken >> i & 1))
                missing += fmt::format("{}{} of micro-batch {}", missing.empty() ? "without " : ", ",
                                       label_of(plan_.program, all[i].first), all[i].second);
        return missing;
    }
    return "made of other contributions";
}

std::string Sums::difference(ValueId value, int64_t micro, const Contributions& found) {
    const Contributions missing = expected(value, micro).value_or(found) - found;
    std::vector<ValueId> parts;
    leaves(value, parts);
    for (ValueId part : parts) {
        const std::string name = label_of(plan_.program, part);
        if (missing == hash(part, -1)) return "without " + name;
        if (missing == Contributions{} - hash(part, -1)) return fmt::format("with {} added twice", name);
        for (int64_t first = 0; first < micros_; ++first) {
            if (missing == Contributions{} - hash(part, first))
                return fmt::format("with {} of micro-batch {} added twice", name, first);
            Contributions sum;
            for (int64_t last = first; last < micros_; ++last) {
                sum += hash(part, last);
                if (missing == sum && first == last) return fmt::format("without {} of micro-batch {}", name, first);
                if (missing == sum) return fmt::format("without {} of micro-batches {} to {}", name, first, last);
            }
        }
    }
    return subset(parts, micro, found);
}

}  // namespace orrery
