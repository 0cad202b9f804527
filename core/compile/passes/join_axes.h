#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// What carries the messages of each axis, as far as it decides whether one message can go over several.
struct AxisCarriers {
    std::map<std::string, std::string> transports;  ///< by axis: the name of its transport
    std::set<std::string> tables;                   ///< axes whose all_reduce [collectives] makes
};

/// "" where one message can go over both axes; else why not, as "rep has transport gloo, dp shm".
std::string why_apart(const Mesh& mesh, const AxisCarriers& carriers, AxisId a, AxisId b);

/// Named axes in groups that can share a message, each as the axis that its members make together; groups stand in the
/// order of their first members.
std::vector<AxisId> join_axes(const Mesh& mesh, const AxisCarriers& carriers, const std::vector<AxisId>& axes);

/// All-reduces of one value over several axes, one after the other, become one over all ranks of these: of N, each
/// sends 2 S (N-1)/N instead of 2 S (P-1)/P for each axis of P. Where nothing else reads what lies between, and where
/// both axes have the same transport and no all_reduce of [collectives]. It stands where the first one did. Linear.
void join_axes(Program& program, const Mesh& mesh, const AxisCarriers& carriers);

/// Values that are sent over one axis, then over another.
struct ApartAxes {
    std::string first, then;            ///< the axes
    std::string first_kind, then_kind;  ///< of the ops
    std::string why;
    int64_t values = 0;
    int64_t bytes = 0;    ///< of them all, on a rank
    std::string program;  ///< "": the train step's
};
/// All-reduces, gathers and reduce-scatters of a program behind `join_axes`, with the same carriers; also where values
/// are packed in one message between the two. Linear.
std::vector<ApartAxes> axes_apart(const Program& program, const Mesh& mesh, const AxisCarriers& carriers);
/// A sentence for each, by lines; "" for none.
std::string apart_text(const std::vector<ApartAxes>& apart);

}  // namespace orrery
