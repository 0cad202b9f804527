#pragma once
#include <string>
#include <vector>

#include "plan/cost_table.h"

namespace orrery {

/// The same table as if what was measured had not taken turns on processors: of a run with more ranks than processors,
/// kernels by the part of their time in which a rank had its processor, and communication by its fastest; messages of
/// any run by their fastest, since their mean holds the wait for whoever sends; `totals` with "rest" alone, what a step
/// took beside kernels, communication and waiting. Of `orrery calibrate` as it is. `made_by` is then "calibrate".
CostTable plain_costs(const CostTable& table);

/// Plain tables as one; of equal rows (kernel with threads and ranks beside it; transport, op, ranks and bytes) the
/// later table's counts. Communication of a run whose ranks took turns counts only where no other table has the
/// transport. Throws Error where they are of different devices, or none is given.
CostTable joined_costs(const std::vector<CostTable>& plain);

/// `kept`, a plain table, with what was measured anew on its machine: rows that were not measured stay. Facts and notes
/// are those of `fresh`.
CostTable remeasured(const CostTable& kept, const CostTable& fresh);

/// `kept`, a plain table or none, with what runs measured: rows that are in several runs by the mean of their samples.
/// Messages of runs count only where `kept` has none by that transport, which was timed without anybody's wait;
/// communication of runs whose ranks took turns only where nothing else has the transport.
CostTable refitted(const CostTable* kept, const std::vector<CostTable>& runs);

/// A fact as a number; `otherwise` where the table has none.
double fact_of(const CostTable& table, const std::string& name, double otherwise);
/// Of `totals`; 0: it has none.
double total_of(const CostTable& table, const std::string& name);
/// Whether both were made on machines that say the same of themselves.
bool same_machine(const std::string& a, const std::string& b);
/// In what two machines differ, "processor X, here Y, and 2 lines more"; "": in nothing. `where`: the other, as "here".
std::string differences(const std::string& machine, const std::string& other, const std::string& where);
/// "costs are of another machine: processor X, here Y"; "": of this one, whatever the build and threads of a rank were.
std::string other_machine(const std::string& machine, const std::string& here);

}  // namespace orrery
