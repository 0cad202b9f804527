#pragma once
#include <string>
#include <vector>

#include "plan/cost_table.h"

namespace orrery {

/// The same table as if what was measured had not taken turns on processors: of a run with more ranks than processors,
/// kernels and communication by the part of them that a rank had; messages by their fastest, since their mean holds the
/// wait for whoever sends; `totals` with "rest" alone, what a step took beside kernels, communication and waiting. Of
/// `orrery calibrate` as it is. `made_by` is then "calibrate".
CostTable plain_costs(const CostTable& table);

/// Plain tables as one; of equal rows (kernel with threads and ranks beside it; transport, op, ranks and bytes) the
/// later table's counts. Throws Error where they are of different devices, or none is given.
CostTable joined_costs(const std::vector<CostTable>& plain);

/// `kept`, a plain table or none, with what runs measured: rows that are in several runs by the mean of their samples.
/// Messages of runs count only where `kept` has none by that transport, which was timed without anybody's wait.
CostTable refitted(const CostTable* kept, const std::vector<CostTable>& runs);

/// A fact as a number; `otherwise` where the table has none.
double fact_of(const CostTable& table, const std::string& name, double otherwise);
/// Of `totals`; 0: it has none.
double total_of(const CostTable& table, const std::string& name);
/// Whether both were made on machines that say the same of themselves.
bool same_machine(const std::string& a, const std::string& b);

}  // namespace orrery
