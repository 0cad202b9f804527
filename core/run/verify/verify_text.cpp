#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "ir/codecs.h"
#include "ir/describe.h"
#include "ir/op.h"
#include "run/verify/verify.h"

namespace orrery {
namespace {

constexpr const char* kind_names[kinds_of_values] = {"forward", "backward", "gradients", "update"};

/// Name of a value for a report: "layers.0.mlp.up.weight.grad" or "%12 (gelu) of layers.0.mlp", followed by "...,
/// all_reduce over dp" after a collective.
std::string title(const Program& program, ValueId id) {
    if (id == none) return "";
    const ValueId original = original_of(program, id);
    const Value& made = program.value(original);
    if (made.name.empty() && made.op != none && op_def(program.op(made.op).kind).casts) {  // a narrowed gradient
        const ValueId before = original_of(program, program.op(made.op).inputs[0]);
        const OpId again = program.value(before).op;
        const bool twice = program.value(before).name.empty() && again != none && op_def(program.op(again).kind).casts;
        const ValueId first = twice ? original_of(program, program.op(again).inputs[0]) : before;
        if (!program.value(first).name.empty())
            return fmt::format("{}, {}", program.value(first).name,
                               twice ? "as it came back" : std::string("as ") + std::string(name_of(made.type.dtype)));
    }
    const Value& value = program.value(original);
    std::string text = label_of(program, original);
    if (value.name.empty() && value.op != none && !program.op(value.op).scope.empty())
        text += " of " + program.op(value.op).scope;
    if (original == id) return text;
    const Op& op = program.op(program.value(id).op);
    return fmt::format("{}, {} over {}", text, op.kind, op.attributes.text("axis"));
}

std::string rank_text(const Mesh& mesh, int64_t rank) {
    std::string text = fmt::format("rank {}", rank), places;
    const auto at = mesh.coordinates(rank);
    for (size_t i = 0; i < at.size(); ++i)
        if (!mesh.axes()[i].sequential && mesh.axes()[i].size > 1)
            places += fmt::format("{}{}={}", places.empty() ? "" : " ", mesh.axes()[i].name, at[i]);
    return places.empty() ? text : fmt::format("{} ({})", text, places);
}

std::string members_text(const std::vector<int64_t>& ranks) {
    std::vector<std::string> words;
    for (int64_t rank : ranks) words.push_back(fmt::format("{}", rank));
    return join(words, ", ");
}

std::string why(const Finding& f) {
    if (f.exact && !f.own)
        return "bits differ although no earlier sum changes its order: a kernel may sum blocks of other sizes in "
               "another order; device.cpu.reference = true uses one order";
    if (f.chosen && f.far.distance <= f.tolerance)
        return "another rank that computes the same block made a different choice: their inputs differ in some bits";
    if (f.chosen)
        return "rounding does not explain the order of the two values that decided this choice, although "
               "the op's inputs are within their tolerance";
    if (f.planned)
        return "replayed on the oracle's values cut by its layout, the op is wrong, too: a bug in layout, lowering or "
               "kernel";
    if (!f.members.empty()) return "the result on all members differs from a replay on their inputs";
    if (!f.edge.empty() && f.own) return "this rank's result differs from a replay on the members' inputs";
    if (f.own) return "replayed on this rank's inputs, the op gives another result: this rank is wrong";
    return "every op gives the rank's result when replayed on its inputs, and the oracle's on the oracle's values: "
           "only accumulated rounding exceeds the tolerance";
}

/// The message of codes that has this result, in its own or another shape, or made this from the codes; nullptr if
/// there is none.
const CodedMessage* coded_of(const Program& program, ValueId value) {
    for (const CodedMessage& coded : program.coded)
        if (coded.decoded == value || coded.sum_decoded == value) return &coded;
    while (value != none) {
        if (const CodedMessage* coded = coded_message(program, value)) return coded;
        const OpId maker = program.value(value).op;
        if (maker == none || !op_def(program.op(maker).kind).alias) return nullptr;
        value = program.op(maker).inputs[0];
    }
    return nullptr;
}

std::string finding_text(const Plan& plan, const Finding& f) {
    const Program& program = plan.program;
    const ValueId original = original_of(program, f.value);
    const OpId op = f.op != none ? f.op : program.value(f.value).op;
    std::string text = fmt::format("  tensor    {}\n", title(program, f.value));
    if (op != none) text += fmt::format("  op        {}\n", describe(program, program.op(op)));
    if (!f.replaces.empty()) text += fmt::format("  replaces  {}\n", f.replaces);
    const std::string& axis = f.edge.empty() || op == none ? "" : program.op(op).attributes.text("axis");
    text += f.members.empty() ? fmt::format("  where     {}", rank_text(plan.mesh, f.rank))
                              : fmt::format("  where     communicator {} of ranks {}", axis, members_text(f.members));
    if (f.micro >= 0 && plan.mesh.microbatches() > 1) text += fmt::format(", micro-batch {}", f.micro);
    text += fmt::format(", step {}\n", f.step);
    if (program.value(original).op != op && program.value(original).op != none)
        text += fmt::format("  made by   {}\n", describe(program, program.op(program.value(original).op)));
    text += f.chosen ? fmt::format("  off by    a choice between values {:.2g} apart", f.far.distance)
                     : fmt::format("  off by    {:.2g} of its norm",
                                   f.far.norm > 0 ? f.far.distance / f.far.norm : f.far.distance);
    if (f.tolerance > 0)
        text += fmt::format(", {:.3g} times the bound of rounding errors", f.far.distance / f.tolerance);
    text += fmt::format("; {} of {} elements differ", count_text(f.far.unequal), count_text(f.far.count));
    if (f.far.worst != Difference::none)
        text += fmt::format("\n  farthest  element {} of the rank's {}: {:.9g}, expected {:.9g}",
                            index_text(f.type.shape, f.far.worst), f.type.text(), f.far.have, f.far.want);
    const CodedMessage* const coded = f.planned ? coded_of(program, f.value) : nullptr;
    if (!coded) return text + fmt::format("\n  so        {}\n", why(f));
    const bool whole = coded->decoded == none;  // what each member encoded is not decoded alone
    return text + fmt::format(
                      "\n  so        on the oracle's values this is farther from {} than codec {} allows (bound "
                      "{:.3g}):\n            its bound is too small, or layout, lowering or a kernel is wrong\n",
                      whole ? "the plain sum" : "what was encoded", coded->codec,
                      codec_named(program, coded->codec, {}).bound);
}

}  // namespace

bool VerifyReport::passed() const {
    const bool compared_any =
        std::any_of(compared.begin(), compared.end(), [](const Compared& line) { return line.comparisons > 0; });
    return roots.empty() && further == 0 && compared_any && unjudged.empty() && !(judges_gradients && gradients > 1);
}

std::string VerifyReport::text(const Plan& plan, const VerifyOptions& options) const {
    const Program& program = plan.program;
    std::string text = fmt::format("{} on {}: {} rank{} as threads against one device, {} step{}\n", program.name,
                                   plan.mesh.text().empty() ? "one rank" : plan.mesh.text(), ranks,
                                   ranks == 1 ? "" : "s", steps, steps == 1 ? "" : "s");
    text += fmt::format("  {:<10} {:>12} {:>10} {:>14}  {:>9}  {}\n", "", "comparisons", "replays", "elements", "worst",
                        "of the bound of rounding errors");
    if (!collectives.empty()) text += fmt::format("  collectives as configured: {}\n", join(collectives, ", "));
    int64_t elements = 0, comparisons = 0;
    for (size_t kind = 0; kind < kinds_of_values; ++kind) {
        const Compared& line = compared[kind];
        elements += line.elements;
        comparisons += line.comparisons + line.replays;
        text +=
            fmt::format("  {:<10} {:>12} {:>10} {:>14}  {:>9.2g}  {}\n", kind_names[kind], count_text(line.comparisons),
                        count_text(line.replays), count_text(line.elements), std::max(line.worst, 0.0),
                        line.worst > 0 ? fmt::format("{}, rank {}", title(program, line.value), line.rank) : "");
    }
    if (gradients >= 0)
        text += fmt::format("  ||g - ref|| <= 1e-5 ||ref|| + 1e-6 ||all gradients||: worst {:.2g} of this bound{}{}\n",
                            gradients, gradients > 0 ? ", " + title(program, worst_gradient) : "",
                            judges_gradients ? "" : " (not judged: 16-bit values)");
    for (const auto& [option, what] : codec_options)
        for (const std::string& axis : program.axes_with(option)) {
            const Codec& codec = codec_named(program, program.codec(axis, option), {});
            if (plan.mesh.size(axis) == 1 || codec.name == "none") continue;
            const auto sent = [&](const CodedMessage& coded) {
                return coded.axis == axis && coded.codec == codec.name;
            };
            if (!codec.sums_in && std::ranges::none_of(program.coded, sent)) continue;
            text += fmt::format("  {} are sent as {} over {}: {}\n", what, codec.name, axis,
                                codec.sums_in && option != "param_codec"
                                    ? "the tolerance includes the rounding of terms of sums"
                                    : "the tolerance is the codec's bound; later ops use the plain values");
        }
    const int64_t left_out = compared[3].left_out;
    if (left_out > 0)
        text += fmt::format("  {} elements of the update not compared: their gradients are below rounding noise\n",
                            count_text(left_out));
    for (const auto& [op, tied] : ties)
        text += fmt::format(
            "  {} within rounding of a tie: {}; the compared values differ by {:.2g} to {:.2g}, at most {:.2g} of the "
            "tolerance; ranks continued with the oracle's choice\n",
            plural(std::ssize(tied.choices), "choice"), op, tied.smallest, tied.largest, tied.worst);
    if (options.bitwise) {
        text += fmt::format(
            "  bitwise: {} values compared bit by bit; {} exempt, since sums before them have another order:\n",
            count_text(exact), count_text(reordered));
        for (size_t i = 0; i < std::min<size_t>(sums.size(), 4); ++i)
            text += fmt::format("    {} {}\n", title(program, sums[i]), program.value(sums[i]).layout.text(plan.mesh));
        if (sums.size() > 4) text += fmt::format("    and {} more sums\n", sums.size() - 4);
    }
    if (passed())
        return text + fmt::format(
                          "PASS: {} of the program's values agree on every rank, {} elements in {} comparisons; {} "
                          "have no memory of their own\n",
                          count_text(values), count_text(elements), count_text(comparisons), count_text(unseen));
    if (roots.empty() && further == 0 && !unjudged.empty()) {
        std::vector<std::string> nowhere, uncertain;
        for (ValueId param : unjudged) {
            const bool noise = std::find(noisy.begin(), noisy.end(), param) != noisy.end();
            (noise ? uncertain : nowhere).push_back(program.value(param).name);
        }
        if (!nowhere.empty())
            text += fmt::format(
                "NOT JUDGED: the gradient of {}\n"
                "  never compared: no value that is complete on the ranks is the gradient or a linear "
                "function of it\n",
                join_few(nowhere));
        if (!uncertain.empty())
            text += fmt::format(
                "NOT JUDGED: the gradient of {}\n"
                "  the result of the update is uncertain on one device, too: rounding noise has changed the params "
                "that it reads\n",
                join_few(uncertain));
        return text;
    }
    if (roots.empty())
        return text + "FAIL: a gradient is outside its tolerance, although all values are within theirs\n";
    text += "FAIL: the first divergence\n" + finding_text(plan, roots.front());
    for (size_t i = 1; i < std::min<size_t>(roots.size(), 5); ++i)
        if (roots[i].edge.empty() || roots[i].edge != roots[i - 1].edge)
            text += fmt::format("  also      {} on {}, step {}\n", title(program, roots[i].value),
                                rank_text(plan.mesh, roots[i].rank), roots[i].step);
    if (further > 0) text += fmt::format("  {} further values differ as a consequence\n", count_text(further));
    return text;
}

}  // namespace orrery
