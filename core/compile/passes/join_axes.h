#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// The properties of mesh axes that decide whether one message can cover several axes.
struct AxisCarriers {
    std::map<std::string, std::string> transports;  ///< name of each axis' transport
    std::set<std::string> tables;                   ///< axes with a chunk table for all_reduce in [collectives]
};

/// Why one message cannot cover both axes: "rep has transport gloo, dp has shm"; "" if it can.
std::string why_apart(const Mesh& mesh, const AxisCarriers& carriers, AxisId a, AxisId b);

/// Groups axes that can share a message. Returns the joined axis of each group, ordered by the first axis in the group.
std::vector<AxisId> join_axes(const Mesh& mesh, const AxisCarriers& carriers, const std::vector<AxisId>& axes);

/// Replaces consecutive all-reduces of one value over several axes by one over the joined axis. For N ranks in all,
/// each sends 2 S (N-1)/N instead of 2 S (P-1)/P per axis of P ranks. The axes must have the same transport and no
/// all_reduce in [collectives]; nothing else may read the value between. The new op replaces the first one. Linear.
///
///     %7 = all_reduce %6 {axis=rep}  dp:P(sum) rep:R
///     %8 = all_reduce %7 {axis=dp}   dp:R rep:R        ->   %8 = all_reduce %6 {axis=rep+dp}  dp:R rep:R
void join_axes(Program& program, const Mesh& mesh, const AxisCarriers& carriers);

/// Values that are sent over one axis, then over another, and why one message over both is not possible.
struct ApartAxes {
    std::string first, then;            ///< name of the first axis, then of the second
    std::string first_kind, then_kind;  ///< kinds of the two collective ops
    std::string why;
    int64_t values = 0;
    int64_t bytes = 0;    ///< total bytes of the values on one rank
    std::string program;  ///< name of the program; "": the train step
};
/// Finds values that still take two messages after `join_axes`, also if they are packed with others in between. Linear.
std::vector<ApartAxes> axes_apart(const Program& program, const Mesh& mesh, const AxisCarriers& carriers);
/// The values that take two messages as text, one line per entry; "" if there are none.
std::string apart_text(const std::vector<ApartAxes>& apart);

}  // namespace orrery
