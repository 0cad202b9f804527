#pragma once
#include <optional>
#include <string>

#include "cli/commands.h"
#include "plan/cost_table.h"

namespace orrery {

/// Destinations of the cost table of `orrery calibrate`: the file of -o, this machine's file in the user's cache folder
/// (--keep), or standard output if neither is given. Both files are checked before anything is measured.
class TableFiles {
public:
    /// Throws Error if the file of -o cannot be written or is a run's costs.json, or if there is no cache folder for
    /// --keep.
    explicit TableFiles(const CalibrateCommand& command);

    /// With --keep, adds the cache file of `machine` to the destinations. Throws Error if it cannot be written.
    void choose_kept(const std::string& machine);
    /// Throws Error if the file of -o is a table of another device than `device`, which is to be measured.
    void require_own(const std::string& device) const;
    /// The existing table in the file of -o; nullopt: none. Throws Error if the file is not a table.
    std::optional<CostTable> before() const;
    /// The cached table of the machine and device; nullopt: none. Reports a cached table that cannot be used.
    std::optional<CostTable> kept(const std::string& machine, const std::string& device) const;

    /// Writes the table to all destinations and reports their names. Throws Error if one cannot be written.
    void write(const CostTable& table);
    /// Writes new measurements to all destinations. Cached rows that were not measured again stay, which is reported.
    void write_measured(const CostTable& table);
    /// Prints a line, on standard error if the table goes to standard output.
    void tell(const std::string& line) const;

private:
    /// before(); nullopt as well if the file of -o is not a table.
    std::optional<CostTable> there() const;
    void write(const CostTable& table, const std::string& file) const;
    void print(const CostTable& table) const;

    const bool keep_;
    std::optional<std::string> out_, kept_;
};

}  // namespace orrery
