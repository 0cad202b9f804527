#include "cli/calibrate/table_files.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/env.h"
#include "base/files/result_file.h"
#include "base/text.h"
#include "orrery/error.h"
#include "run/calibrate/kept_costs.h"
#include "sim/local/local_costs.h"

namespace orrery {
namespace {

int64_t rows(const CostTable& table) { return static_cast<int64_t>(table.kernels.size() + table.wires.size()); }

}  // namespace

TableFiles::TableFiles(const CalibrateCommand& command) : keep_(command.keep) {
    if (command.out) require_writable("-o", *command.out);
    out_ = command.out;
    if (const auto table = there(); table && table->made_by == "run")
        throw Error(fmt::format("-o {}: it would overwrite the costs that a run measured\n  name another file", *out_));
    if (keep_ && kept_costs_path("").empty())
        throw Error("--keep: no cache folder, since neither XDG_CACHE_HOME nor HOME is set\n  set one, or use -o FILE");
}

void TableFiles::choose_kept(const std::string& machine) {
    if (!keep_) return;
    const std::string file = kept_costs_path(machine);
    system_env()->make_folders(std::filesystem::path(file).parent_path().string());
    require_writable("--keep", file);
    kept_ = file;
}

std::optional<CostTable> TableFiles::there() const {
    try {
        return before();
    } catch (const Error&) {  // -o replaces any other file
        return std::nullopt;
    }
}

void TableFiles::require_own(const std::string& device) const {
    if (const auto table = there(); table && table->device != device)
        throw Error(
            fmt::format("-o {}: it is a table of device {}, and device {} is measured\n  name another file, or "
                        "remove it",
                        *out_, table->device, device));
}

std::optional<CostTable> TableFiles::before() const {
    std::error_code unknown;
    if (!out_ || !std::filesystem::is_regular_file(*out_, unknown)) return std::nullopt;
    return read_costs(*out_);
}

std::optional<CostTable> TableFiles::kept(const std::string& machine, const std::string& device) const {
    const std::string not_used = keep_ ? "it is replaced" : "it is not used";
    try {
        std::optional<CostTable> table = kept_costs(machine);
        if (!table) return table;
        std::string other = differences(table->machine, machine, "here");
        if (other.empty() && table->device != device) other = fmt::format("device {}, here {}", table->device, device);
        if (other.empty()) return table;
        tell(fmt::format("{}: it was measured on another machine: {}; {}", kept_costs_path(machine), other, not_used));
    } catch (const Error& problem) {
        tell(fmt::format("{}; {}", problem.what(), not_used));
    }
    return std::nullopt;
}

void TableFiles::write(const CostTable& table) {
    if (out_) write(table, *out_);
    if (kept_) write(table, *kept_);
    print(table);
}

void TableFiles::write_measured(const CostTable& table) {
    if (out_) write(table, *out_);
    if (kept_) {
        const std::optional<CostTable> before = kept(table.machine, table.device);
        const CostTable all = before ? remeasured(*before, table) : table;
        write(all, *kept_);
        if (before) {
            const int64_t fresh = rows(all) - rows(*before), again = rows(table) - fresh;
            tell(fmt::format("  {} measured now, {} of them replace older ones; {} of the saved table stay unchanged",
                             plural(rows(table), "row"), count_text(again), count_text(rows(*before) - again)));
        }
    }
    print(table);
}

void TableFiles::print(const CostTable& table) const {
    if (out_ || kept_) return;
    const std::string text = cost_table_text(table);
    std::fwrite(text.data(), 1, text.size(), stdout);
}

void TableFiles::write(const CostTable& table, const std::string& file) const {
    std::fflush(stdout);  // the file may be standard output
    write_result(file, cost_table_text(table));
    tell(fmt::format("{}: table of measured costs written, {} of kernels and {} of communication", file,
                     plural(static_cast<int64_t>(table.kernels.size()), "row"),
                     plural(static_cast<int64_t>(table.wires.size()), "row")));
}

void TableFiles::tell(const std::string& line) const {
    const bool beside = out_ ? is_own_file(*out_) : kept_.has_value();
    std::fprintf(beside ? stdout : stderr, "%s\n", line.c_str());
}

}  // namespace orrery
