#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// The properties of axes that decide whether one message can cover several.
struct AxisCarriers {
    std::map<std::string, std::string> transports;  ///< by axis: the name of its transport
    std::set<std::string> tables;                   ///< axes with an all_reduce in [collectives]
};

/// Why one message cannot cover both axes, as "rep has transport gloo, dp has shm"; "" when it can.
std::string why_apart(const Mesh& mesh, const AxisCarriers& carriers, AxisId a, AxisId b);

/// Groups axes that can share a message. Returns the joined axis of each group, in the order of their first members.
std::vector<AxisId> join_axes(const Mesh& mesh, const AxisCarriers& carriers, const std::vector<AxisId>& axes);

/// Replaces consecutive all-reduces of one value over several axes by one over the joined axis. For N ranks in all,
/// each sends 2 S (N-1)/N instead of 2 S (P-1)/P per axis of P ranks. The axes must have the same transport and no
/// all_reduce in [collectives]; nothing else may read the value between. The new op replaces the first one. Linear.
///
///     %7 = all_reduce %6 {axis=rep}  dp:P(sum) rep:R
///     %8 = all_reduce %7 {axis=dp}   dp:R rep:R        ->   %8 = all_reduce %6 {axis=rep+dp}  dp:R rep:R
void join_axes(Program& program, const Mesh& mesh, const AxisCarriers& carriers);

/// Values that are sent over one axis, then over another.
struct ApartAxes {
    std::string first, then;            ///< the axes
    std::string first_kind, then_kind;  ///< kinds of the ops
    std::string why;
    int64_t values = 0;
    int64_t bytes = 0;    ///< of all values, on one rank
    std::string program;  ///< name of the program; "": the train step
};
/// Finds values that still take two messages after `join_axes`, even if packed with others in between. Linear.
std::vector<ApartAxes> axes_apart(const Program& program, const Mesh& mesh, const AxisCarriers& carriers);
/// One line of text per entry; "" when there are none.
std::string apart_text(const std::vector<ApartAxes>& apart);

}  // namespace orrery
