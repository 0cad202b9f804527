#pragma once
#include "orrery/mesh.h"
#include "orrery/program.h"
#include "orrery/schedule.h"

namespace orrery {

/// Sends what messages over an axis carry as the axis' codecs encode it (Program::codec). "codec" applies to sums over
/// ranks of gradients of params and of what linear ops computed from them; not to the loss or norms; and to sums over
/// islands. Codes belong to an array: later passes join them in messages as they join arrays.
///
/// If ranks can add the codes (bf16, f16), terms are cast before the all_reduce or reduce_scatter, and the sum is cast
/// back. Contributions of micro-batches are always accumulated in the gradient's own type.
///
///     %5 = all_reduce %4 {axis=dp}  f32   ->   %8 = cast %4 {dtype=bf16}     bf16
///                                              %9 = all_reduce %8 {axis=dp}  bf16
///                                              %5 = cast %9 {dtype=f32}      f32
///
/// Otherwise member r of P encodes its term in P parts and sends part p to member p, which decodes the P codes of its
/// part, adds them in the order of members in f32, and has a reduce_scatter's result. For an all_reduce it encodes its
/// part of the sum again, and each member gathers and decodes all parts. S: bytes of the codes of one term.
///
///     %8 = terms %4 {axis=dp}           f32[P,..]  split 0      the member's own term
///     %9 = encode(%8)                   [P,P,1,..] split 0      blocks are counted in each part
///     %10 = all_to_all %9 {from=0,to=1} [P,P,1,..] split 1      sends S (P-1)/P
///     %11 = sum(decode(%10)) {dims=[0]} f32[P,1,..] split 0
///     %12 = all_gather(encode(%11))     [P,1,..]                sends S (P-1)/P
///     %5 = decode(%12)                  f32[..]
///
/// What a program sums of a sent state (ir/sent.h) is gathered, so that encoding and message are its opening
/// (plan/opening.h), and all that comes after the message is local. A member receives S (P-1), for two members as much
/// as above.
///
///     %8 = terms %4 {axis=site}         f32[P,..]  split 0      the member's own term, from the state alone
///     %9 = all_gather(encode(%8))       [P,1,..]                sends S (P-1)
///     %5 = sum(decode(%9)) {dims=[0]}   f32[..]
///
/// Sent unencoded, with a note: arrays of one dim, and those of which a part would be shorter than a block. Of an
/// all_reduce with codes and a next one without, over another axis, the second comes first. Throws Error at the op for
/// other sums that are also over another axis of ranks.
///
/// Codes of matrices that ranks add in several rounds (powersgd): code_factors.h.
///
/// What is gathered (Program::codec "param_codec", "activation_codec"), exchanged, or passed to another stage is
/// encoded by those that have it, in a part for each member that gets one, and decoded by those. `schedule`: tells
/// which stages share a rank; nullptr without a pipeline.
///
///     %8 = reshape %4                   f32[P,1,..] split 0     a member's own part of a gather
///     %9 = all_gather(encode(%8))       [P,1,..]                sends S (P-1)/P, S being the codes of the whole
///     %5 = reshape(decode(%9))          f32[..]
void encode_edges(Program& program, const Mesh& mesh, const Schedule* schedule);

/// Whether a strategy gave an axis of more than one rank a codec.
bool has_codec(const Program& program, const Mesh& mesh);

}  // namespace orrery
