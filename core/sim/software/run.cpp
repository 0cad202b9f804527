#include "sim/software/run.h"

#include <algorithm>
#include <utility>

#include "ir/op.h"
#include "sim/software/passes.h"

namespace orrery {
namespace {

bool reads_logits(const KernelSpec& spec) {
    const OpDef* def = find_op_def(spec.op);
    return def && !def->operands.empty() && def->operands.front() == "logits";
}

/// What a cross entropy in several kernels moves beyond one in one kernel, as bytes of copies. In bytes of a logit,
/// read and written: PyTorch's makes f32 (6) and the logarithm of the softmax (8), then its gradient (12) from a
/// gradient (4) and bf16 (6); Megatron-LM's makes f32 (6), the maximum (4), and by a kernel each the difference (8),
/// the exponential (8), the sum (4), the quotient (8), then the gradient (8) and bf16 (6). One kernel reads 2, then
/// reads 2 and writes 2.
int64_t loss_bytes(const KernelSpec& spec, SoftwareDefaults::Loss loss) {
    if (!reads_logits(spec)) return 0;
    const bool torch = loss == SoftwareDefaults::Loss::torch;
    const bool gradient = spec.outputs[0].shape == spec.inputs[0].shape;
    const int64_t more = gradient ? (torch ? 18 : 10) : (torch ? 12 : 36);
    return more / 2 * spec.inputs[0].count();  // a copy reads and writes
}

void add_loss_kernels(RankClass& c, SoftwareDefaults::Loss loss) {
    if (loss == SoftwareDefaults::Loss::fused) return;
    std::vector<Copies> copies(c.stream.size());
    for (size_t index = 0; index < c.stream.size(); ++index)
        if (const Instruction& i = c.stream[index]; i.opcode == Opcode::kernel)
            copies[index].bytes = loss_bytes(c.kernels[at(i.kernel)], loss);
    insert_copies(c, copies);
}

}  // namespace

void settle(SoftwareRun& run, const SoftwareJob& job) {
    SoftwareDefaults& by = run.software;
    run.chunks_tp = run.sequence && by.chunks_tp && !job.experts && job.tp_is_near;
    run.scatters = job.tp > 1 && !run.sequence && by.scatters_messages;
    run.reduce_bf16 = by.gradients == SoftwareDefaults::Gradients::bits_16 ||
                      (by.gradients == SoftwareDefaults::Gradients::f32_of_bf16 && job.f16);
    by.eight_bit_params &= run.eight_bit;
    by.casts_each_use &= run.eight_bit;
}

SoftwareRun run_of(SoftwareDefaults software, const Plan& plan) {
    SoftwareRun run;
    run.software = std::move(software);
    const AxisFlags data = axes_named(plan.mesh, {"dp", "rep"}), tp = axes_named(plan.mesh, {"tp"});
    for (const ScopeMark& mark : plan.program.scope_marks())
        run.recomputes_blocks |= mark.recompute && mark.kinds.empty();
    for (const RankClass& c : plan.classes) {
        run.chunks = std::max(run.chunks, std::ssize(c.stages));
        for (const KernelSpec& spec : c.kernels)
            if (reads_logits(spec)) run.logits = spec.inputs[0].shape.back();
        for (const Instruction& i : c.stream) {
            const bool in_fragment = i.fragment.micro >= 0;
            if (i.opcode == Opcode::all_gather && data[at(i.axis)]) run.zero = std::max(run.zero, in_fragment ? 3 : 1);
            if (i.op != none && i.axis != none && tp[at(i.axis)] && gathers_again(plan.program, plan.program.op(i.op)))
                run.gathers_again = true;
            if (i.opcode == Opcode::reduce_scatter && tp[at(i.axis)] && in_fragment) run.sequence = true;
        }
    }
    return run;
}

int64_t bucket_mib(const SoftwareRun& run) {
    if (run.software.flat) return 160;
    return run.zero < 3 ? 50 : 25;
}

SoftwareProfile profile_of(const SoftwareRun& run) {
    const SoftwareDefaults& by = run.software;
    SoftwareProfile profile;
    profile.keeps_memory = profile.sums_late = !by.planned;
    profile.gradients_late = run.zero != 3 && !by.overlaps_gradients;
    profile.params_late = run.zero != 3 && !by.overlaps_params;
    profile.blocks_messages = run.chunks == 1 ? !by.overlaps_1f1b : !by.overlaps_stages;
    profile.sends_in_pairs = profile.blocks_messages && run.chunks > 1;
    profile.gathers_f32 = by.f32_params;
    profile.gathers_8_bit = by.eight_bit_params;
    profile.reduces_bf16 = run.reduce_bf16;
    profile.all_reduces = by.all_reduces && run.zero > 0;
    profile.recomputes_whole = by.recomputes_whole && run.recomputes_blocks;
    profile.copies_parts = by.copies_parts && run.zero == 1 ? bucket_mib(run) << 20 : 0;
    profile.adds_apart = by.adds_apart;
    profile.cuts_all_params = !by.planned && run.zero > 0;
    return profile;
}

TpChunked with_software(Plan plan, const SoftwareRun& run, int64_t tp_chunks) {
    Plan made = with_profile(std::move(plan), profile_of(run));
    for (RankClass& c : made.classes) add_loss_kernels(c, run.software.loss);
    const auto tp = made.mesh.find("tp");
    // Transformer Engine's ring exchange, its default: a chunk for each member.
    if (tp && tp_chunks == 0 && run.chunks_tp) tp_chunks = made.mesh.size(*tp);
    if (tp && tp_chunks > 0) return tp_chunked(made, *tp, tp_chunks);
    return {std::move(made), 0, 0, {}};
}

std::string launches_of(const SoftwareDefaults& software) {
    return software.launches == SoftwareDefaults::Launches::eager ? "eager" : "queued";
}
std::string elementwise_of(const SoftwareDefaults& software) {
    return software.separate_elementwise ? "separate" : "fused";
}
std::string attention_of(const SoftwareDefaults& software) { return software.older_attention ? "older" : "own"; }

KernelSoftware kernels_of(const SoftwareRun& run, const Constants& constants) {
    const SoftwareDefaults& software = run.software;
    KernelSoftware kernels;
    kernels.launch_s = constants.of("launch_s." + launches_of(software));
    kernels.passes = constants.of("passes." + elementwise_of(software));
    kernels.ramp = constants.of("product.ramp");
    kernels.attention_share = constants.of("attention." + attention_of(software));
    kernels.own_attention = !software.older_attention;
    kernels.separate_attention = software.separate_attention;
    kernels.eight_bit = run.eight_bit && !software.planned;
    kernels.casts_weights = software.casts_each_use;
    kernels.wide = run.logits;
    kernels.eight_bit_share = constants.of("product.eight_bit");
    return kernels;
}

bool lays_out(const KernelSpec& spec) {
    const OpDef* def = find_op_def(spec.op);
    return def && (def->moves == Moves::permutes || def->moves == Moves::cuts || def->moves == Moves::joins);
}

}  // namespace orrery
