#include "sim/search/recomputations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "compile/passes/recompute.h"
#include "ir/flops.h"
#include "ir/op.h"
#include "orrery/strategy.h"

namespace orrery {
namespace {

struct Effect {
    double freed = 0, seconds = 0;
    double factor = 1;  ///< FLOPs of GEMMs, over those without recomputation

    /// Whether this frees more for its time than `other`.
    bool better(const Effect& other) const { return freed * other.seconds > other.freed * seconds; }
};

class Finder {
public:
    Finder(const Program& program, int64_t sequences, double flops_s, double bytes_s)
        : program_(program), sequences_(static_cast<double>(sequences)), flops_s_(flops_s), bytes_s_(bytes_s) {
        saved_ = bytes(program);
        seconds_ = seconds(program);
        flops_ = flops(program);
        for (const Layer& layer : layers(program))
            if (!layer.scope.empty()) blocks_.push_back(layer.scope);
    }

    double saved() const { return saved_; }
    int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }

    Effect of_all() const {
        std::vector<ScopeMark> marks;
        for (const std::string& block : blocks_) marks.push_back({block, none, true, {}, {}});
        return of(std::move(marks));
    }

    Effect of_kinds(const std::vector<std::string>& kinds) const { return of({{"", none, true, {}, kinds}}); }

    /// Kinds of forward ops with results that the backward pass reads, in order of the program.
    std::vector<std::string> kinds() const {
        std::set<OpId> read;
        for (const Op& op : program_.ops)
            for (const ValueId input : op.phase == Phase::backward ? op.inputs : std::vector<ValueId>())
                read.insert(program_.value(input).op);
        std::vector<std::string> all;
        for (size_t id = 0; id < program_.ops.size(); ++id) {
            const Op& op = program_.ops[id];
            const OpDef& def = op_def(op.kind);
            if (op.phase != Phase::forward || def.alias || def.casts || def.loss || def.looks_up) continue;
            if (read.count(static_cast<OpId>(id)) > 0 && std::ranges::find(all, op.kind) == all.end())
                all.push_back(op.kind);
        }
        return all;
    }

private:
    Effect of(std::vector<ScopeMark> marks) const {
        const Program made = recompute_by(program_, std::move(marks));
        return {saved_ - bytes(made), seconds(made) - seconds_, flops(made) / flops_};
    }

    double bytes(const Program& program) const { return static_cast<double>(saved_bytes(program)) / sequences_; }

    static double flops(const Program& program) {
        double sum = 0;
        for (const Op& op : program.ops)
            if (op.phase != Phase::update) sum += static_cast<double>(product_flops(program, op));
        return std::max(sum, 1.0);
    }

    double seconds(const Program& program) const {
        double sum = 0;
        for (const Op& op : program.ops) {
            if (op.phase == Phase::update || op_def(op.kind).alias) continue;
            double moved = 0;
            for (const auto* operands : {&op.inputs, &op.outputs})
                for (const ValueId id : *operands) moved += static_cast<double>(program.value(id).type.bytes());
            sum += std::max(static_cast<double>(product_flops(program, op)) / flops_s_, moved / bytes_s_);
        }
        return sum / sequences_;
    }

    const Program& program_;
    const double sequences_, flops_s_, bytes_s_;
    double saved_ = 0, seconds_ = 0, flops_ = 1;
    std::vector<std::string> blocks_;
};

}  // namespace

Recomputations recomputations(const Program& program, int64_t sequences, double flops_s, double bytes_s, bool layers) {
    const Finder finder(program, sequences, flops_s, bytes_s);
    Recomputations found;
    found.worth.emplace_back();
    found.saved = finder.saved();
    const Effect all = finder.of_all();
    found.forward_s = all.seconds;
    std::vector<std::string> left;
    std::map<std::string, Effect> alone;
    for (const std::string& kind : finder.kinds()) {
        const Effect& effect = alone[kind] = finder.of_kinds({kind});
        if (effect.freed < least_freed * found.saved)
            found.useless.push_back(kind);
        else if (effect.better(all))
            left.push_back(kind);
    }
    Effect now;
    for (std::vector<std::string> taken; !left.empty();) {
        Effect best, best_more;
        size_t at = left.size();
        for (size_t i = 0; i < left.size(); ++i) {
            taken.push_back(left[i]);
            const Effect with = taken.size() == 1 ? alone.at(taken[0]) : finder.of_kinds(taken);
            taken.pop_back();
            const Effect more{with.freed - now.freed, with.seconds - now.seconds};
            if (more.freed < least_freed * found.saved || !more.better(all)) continue;
            if (at == left.size() || more.better(best_more)) at = i, best = with, best_more = more;
        }
        if (at == left.size()) break;
        taken.push_back(left[at]);
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
        now = best;
        found.worth.push_back({join(taken, ","), 0, now.freed, now.seconds, now.factor});
        // Alone, too: what is cheap for one device may delay a collective.
        if (taken.size() == 1) continue;
        const Effect& last = alone.at(taken.back());
        found.worth.push_back({taken.back(), 0, last.freed, last.seconds, last.factor});
    }
    std::ranges::stable_sort(found.worth, {}, &Recomputation::freed);
    for (size_t i = found.worth.size(); i-- > 2;)
        if (found.worth[i - 1].seconds >= found.worth[i].seconds)
            found.worth.erase(found.worth.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    if (finder.blocks() == 0 || all.freed <= now.freed) return found;
    for (int64_t quarter = 1, before = 0; quarter <= 4; ++quarter) {
        const int64_t some = finder.blocks() * quarter / 4;
        const double share = static_cast<double>(some) / static_cast<double>(finder.blocks());
        if (some == before || (quarter < 4 && (!layers || share * all.freed <= now.freed))) continue;
        found.worth.push_back({"all", quarter < 4 ? some : 0, share * all.freed, share * all.seconds, 1 + share / 3});
        before = some;
    }
    return found;
}

std::string text_of(const Recomputations& found) {
    std::vector<std::string> parts;
    for (const Recomputation& one : found.worth)
        if (one.kinds != "none")
            parts.push_back(fmt::format("{} {:.0f} %{}", one.text(), 100 * one.freed / found.saved,
                                        one.kinds == "all" ? ""
                                                           : fmt::format(" (takes {:.1f} % of the forward pass)",
                                                                         100 * one.seconds / found.forward_s)));
    std::string text = parts.empty() ? "" : "recomputing frees this share of saved activations: " + join(parts, "; ");
    if (found.useless.empty()) return text;
    return fmt::format("{}next to nothing: {}", text.empty() ? "recomputing frees " : text + "; ",
                       join(found.useless, ", "));
}

}  // namespace orrery
