#pragma once
#include <optional>
#include <string>

#include "cli/commands.h"
#include "plan/cost_table.h"

namespace orrery {

/// Where the table of `orrery calibrate` goes: the file of -o, this machine's in the user's cache folder (--keep), or
/// standard output where neither is asked for. Both are looked at before anything is measured.
class TableFiles {
public:
    /// Throws Error where the file of -o cannot be written, or where --keep has no folder to write to.
    explicit TableFiles(const CalibrateCommand& command);

    /// With --keep the table of `machine` is written, too. Throws Error where it cannot be.
    void choose_kept(const std::string& machine);
    /// The file of -o as it is; nullopt: there is none yet. Throws Error where it is no table.
    std::optional<CostTable> before() const;
    /// What is kept for the machine and its device; nullopt: nothing. A table that cannot be used is told.
    std::optional<CostTable> kept(const std::string& machine, const std::string& device) const;

    /// The same table to all places; says what was written, where that is not standard output. Throws as
    /// write_result.
    void write(const CostTable& table);
    /// What was measured: kept rows that were not measured stay, which is told.
    void write_measured(const CostTable& table);
    /// A line beside the table: on standard error where the table itself goes to standard output.
    void tell(const std::string& line) const;

private:
    void write(const CostTable& table, const std::string& file) const;
    void print(const CostTable& table) const;

    const bool keep_;
    std::optional<std::string> out_, kept_;
};

}  // namespace orrery
