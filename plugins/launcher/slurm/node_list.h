#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::slurm {

/// What a Slurm node list says: "r[1-2]n[007-009]-ib,login" is 7 hosts, of which r1n007-ib is the first.
struct NodeList {
    std::string first;
    int64_t hosts = 0;
    std::string problem;  ///< why the text is not a node list; "": it is one
};
/// Reads a list of names, each with any number of brackets that hold numbers and ranges; zeros in front are part of
/// a name. Host order: the last bracket of a name counts fastest.
NodeList node_list(std::string_view text);

/// Tasks on a node by a Slurm list: node 2 of "4(x2),3" has 3. 0 when the list does not have the node or is malformed.
int64_t tasks_on(std::string_view list, int64_t node);

}  // namespace orrery::slurm
