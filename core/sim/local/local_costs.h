#pragma once
#include <string>
#include <vector>

#include "plan/cost_table.h"

namespace orrery {

/// Converts a cost table to a plain one: costs as if ranks did not share processors. In a run with more ranks than
/// processors, a kernel counts by the time in which its rank had its processor, and a collective by its fastest call.
/// Messages of any run count by their fastest call, since the mean includes waits for the sender. The result has
/// `made_by` "calibrate", and in `totals` only "rest": the step's time besides kernels, communication and waiting. A
/// table of `orrery calibrate` stays unchanged.
CostTable plain_costs(const CostTable& table);

/// Joins plain cost tables. Of rows with the same key (kernel with threads and active ranks; transport, op, ranks and
/// bytes) the later table's wins. Communication of a run whose ranks shared processors is used only if no other table
/// has the transport. Throws Error if the tables are of different devices, or if there are none.
CostTable joined_costs(const std::vector<CostTable>& plain);

/// Updates the plain cost table `kept` with new measurements of its machine; rows that were not measured again stay.
/// Facts and notes come from `fresh`.
CostTable remeasured(const CostTable& kept, const CostTable& fresh);

/// Updates `kept`, a plain table or nullptr, with measurements of runs; rows in several runs get the mean of their
/// samples. Runs' communication is used only for transports and ops without calibrated rows, because it includes waits
/// for other ranks; that of runs whose ranks shared processors only if nothing else has the transport.
CostTable refitted(const CostTable* kept, const std::vector<CostTable>& runs);

/// Says which rows of a table differ widely between repetitions, with a spread of 1 or more: "3 of 56 rows ... (the
/// worst: gelu ..., 2.3 times)", and what to do; "" if none does. Rows of runs have no spread.
std::string spread_note(const CostTable& table);

/// Returns the fact `name` of a cost table as a number; `otherwise` if the table has no such number above 0.
double fact_of(const CostTable& table, const std::string& name, double otherwise);
/// Returns the seconds of the entry `name` in a cost table's `totals`; 0 if there is none.
double total_of(const CostTable& table, const std::string& name);
bool same_machine(const std::string& a, const std::string& b);
/// Says how two machines differ: "processor X, here Y, and 2 lines more"; "" if they do not. `where`: name of the other
/// machine, "here".
std::string differences(const std::string& machine, const std::string& other, const std::string& where);
/// Returns "costs are of another machine: processor X, here Y"; "" if both are one machine, with any build and threads.
std::string other_machine(const std::string& machine, const std::string& here);

}  // namespace orrery
