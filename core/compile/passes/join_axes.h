#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// What decides whether one message can cover several mesh axes.
struct AxisCarriers {
    std::map<std::string, std::string> transports;  ///< by axis: name of its transport
    std::set<std::string> tables;                   ///< axes with a chunk table for all_reduce in [collectives]
};

/// The reason why one message cannot cover two axes, "rep has transport gloo, dp has shm"; "" if it can.
std::string why_apart(const Mesh& mesh, const AxisCarriers& carriers, AxisId a, AxisId b);

/// Groups axes that can share a message. Returns one joined axis per group, in the order of the first axis of each.
std::vector<AxisId> join_axes(const Mesh& mesh, const AxisCarriers& carriers, const std::vector<AxisId>& axes);

/// Replaces consecutive all-reduces, or all-to-alls, of one value over several axes by one over the joined axis. For N
/// ranks in all, each sends 2 S (N-1)/N instead of 2 S (P-1)/P per axis of P ranks. The axes must have the same
/// transport and no all_reduce in [collectives]; nothing else may read the value between. The new op replaces the first
/// one. Linear.
///
///     %7 = all_reduce %6 {axis=rep}  dp:P(sum) rep:R
///     %8 = all_reduce %7 {axis=dp}   dp:R rep:R        ->   %8 = all_reduce %6 {axis=rep+dp}  dp:R rep:R
///
/// All-to-alls are joined the same way: each rank sends S (N-1)/N for S bytes of its block. No dim may be left by one
/// of their axes and entered by another, as then no block of a rank goes to another rank whole. Only neighbours are
/// joined, since an axis leaves a dim after those that split it further.
///
///     %7 = all_to_all %6 {axis=cp,from=1,to=2}  dp:S(0) cp:S(2)
///     %8 = all_to_all %7 {axis=dp,from=0,to=2}  cp:S(2) dp:S(2)  ->  %8 = all_to_all %6 {axis=dp+cp}  cp:S(2) dp:S(2)
void join_axes(Program& program, const Mesh& mesh, const AxisCarriers& carriers);

/// Values that are sent over one axis, then over another, for a report: why one message cannot cover both axes.
struct ApartAxes {
    std::string first, then;
    std::string first_kind, then_kind;  ///< op kind of the first message, then of the second
    std::string why;
    int64_t values = 0;
    int64_t bytes = 0;    ///< total bytes of the values on one rank
    std::string program;  ///< program that sends; "": the train step
};
/// Finds values that take two messages even after `join_axes`, also if ops pack them with others in between. Linear.
std::vector<ApartAxes> axes_apart(const Program& program, const Mesh& mesh, const AxisCarriers& carriers);
/// The values that take two messages as text, one line per entry; "" if there are none.
std::string apart_text(const std::vector<ApartAxes>& apart);

}  // namespace orrery
