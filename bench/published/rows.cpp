#include "published/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

#include "orrery/error.h"

namespace orrery::published {
namespace {

/// One record of RFC 4180: cells parted by commas, perhaps quoted, with quotes doubled inside.
std::vector<std::string> record(const std::string& text, size_t& at) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (quoted && c == '"' && at + 1 < text.size() && text[at + 1] == '"')
            cells.back() += text[at++];
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && c == ',')
            cells.emplace_back();
        else if (!quoted && c == '\n')
            break;
        else if (c != '\r')
            cells.back() += c;
    }
    ++at;
    return cells;
}

double number(const Table& table, size_t row, const std::string& column, double fallback) {
    const std::string& text = table.cell(row, column);
    if (text.empty()) return fallback;
    double value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size())
        throw Error(fmt::format("{}: row {}: {} is \"{}\", expected a number", table.path, table.cell(row, "id"),
                                column, text));
    return value;
}

/// A column of counts, and the most that is no slip of the pen.
struct Counted {
    const char* column;
    int64_t most;
};

/// Products of the bounds stay below 2^63: accelerators, tokens of a step, elements of a param.
constexpr Counted counted[] = {
    {"n_gpus", 1 << 20},   {"layers", 1 << 14},      {"hidden", 1 << 20}, {"heads", 1 << 16},
    {"kv_heads", 1 << 16}, {"ffn", 1 << 24},         {"vocab", 1 << 26},  {"seq", 1 << 27},
    {"tp", 1 << 12},       {"pp", 1 << 12},          {"cp", 1 << 12},     {"ep", 1 << 12},
    {"dp", 1 << 20},       {"micro_batch", 1 << 20}, {"vp", 1 << 12},     {"global_batch", 1 << 28}};

/// Of a column of `counted`; nullopt: the cell is empty.
std::optional<int64_t> maybe(const Table& table, size_t row, const std::string& column) {
    const std::string& text = table.cell(row, column);
    if (text.empty()) return std::nullopt;
    const double value = number(table, row, column, 0);
    const auto known =
        std::find_if(std::begin(counted), std::end(counted), [&](const Counted& one) { return one.column == column; });
    const int64_t most = known->most;
    if (!(value >= 1 && value <= static_cast<double>(most)) || value != std::floor(value))
        throw Error(fmt::format("{}: row {}: {} is {}, expected a whole number from 1 to {}", table.path,
                                table.cell(row, "id"), column, text, most));
    return static_cast<int64_t>(value);
}

int64_t count(const Table& table, size_t row, const std::string& column, int64_t fallback) {
    return maybe(table, row, column).value_or(fallback);
}

}  // namespace

const std::vector<std::string> measured_columns = {"value",       "metric",    "MFU",         "mfu",
                                                   "iter_time_s", "tok_s_gpu", "peak_mem_gib"};

const std::string& Table::cell(size_t row, const std::string& column) const {
    static const std::string nothing;
    const auto found = std::find(columns.begin(), columns.end(), column);
    return found == columns.end() ? nothing : rows[row][static_cast<size_t>(found - columns.begin())];
}

bool Table::has(const std::string& column) const {
    return std::find(columns.begin(), columns.end(), column) != columns.end();
}

Table read_table(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw Error(fmt::format("cannot read {}\n  name a CSV file with the columns of published_rows.csv", path));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    Table table;
    table.path = path;
    size_t at = 0;
    table.columns = record(text, at);
    while (at < text.size()) {
        std::vector<std::string> cells = record(text, at);
        if (cells.size() == 1 && cells[0].empty()) continue;
        if (cells.size() != table.columns.size())
            throw Error(fmt::format("{}: row {} has {} cells, the first line names {} columns", path,
                                    table.rows.size() + 1, cells.size(), table.columns.size()));
        table.rows.push_back(std::move(cells));
    }
    return table;
}

Table without_measured(Table table) {
    for (const std::string& column : measured_columns) {
        const auto found = std::find(table.columns.begin(), table.columns.end(), column);
        if (found == table.columns.end()) continue;
        const auto at = found - table.columns.begin();
        table.columns.erase(found);
        for (auto& row : table.rows) row.erase(row.begin() + at);
    }
    return table;
}

std::string missing_in(const Table& table, size_t row) {
    std::string missing;
    for (const char* column : {"gpu", "n_gpus", "layers", "hidden", "heads", "ffn", "vocab", "seq", "global_batch"})
        if (table.cell(row, column).empty()) missing += (missing.empty() ? "no " : ", ") + std::string(column);
    return missing;
}

Row read_row(const Table& table, size_t row) {
    Row r;
    const auto text = [&](const char* column) { return table.cell(row, column); };
    const auto whole = [&](const char* column, int64_t fallback) { return count(table, row, column, fallback); };
    r.id = text("id"), r.source = text("source"), r.gpu = text("gpu"), r.model = text("model"),
    r.precision = text("precision");
    r.zero = text("zero_or_fsdp"), r.recompute = text("recompute"), r.notes = text("notes");
    r.gpus = whole("n_gpus", 1), r.layers = whole("layers", 0), r.embed = whole("hidden", 0);
    r.heads = whole("heads", 0), r.kv_heads = whole("kv_heads", r.heads), r.mlp = whole("ffn", 0);
    r.vocab = whole("vocab", 0), r.tokens = whole("seq", 0);
    r.tp = whole("tp", 1), r.pp = whole("pp", 1), r.cp = whole("cp", 1), r.ep = whole("ep", 1);
    r.dp = whole("dp", std::max<int64_t>(1, r.gpus / (r.tp * r.pp * r.cp)));
    r.micro_batch = maybe(table, row, "micro_batch"), r.chunks = maybe(table, row, "vp");
    r.batch = whole("global_batch", 0);
    const double nic = number(table, row, "nic_GBps_per_gpu", 0);
    if (!(nic >= 0 && nic <= 1e6))
        throw Error(
            fmt::format("{}: row {}: nic_GBps_per_gpu is {}, expected GB/s, or nothing", table.path, r.id, nic));
    r.nic_bytes_per_s = 1e9 * nic;
    return r;
}

Label read_label(const Table& table, size_t row) {
    Label label;
    label.family = table.cell(row, "family");
    label.accelerator = accelerator_of(table.cell(row, "gpu"));
    label.precision = table.cell(row, "precision");
    label.model = table.cell(row, "model");
    label.trust = table.cell(row, "trust");
    label.asked = !table.has("predict") || table.cell(row, "predict") == "yes";
    label.measured.step_s = number(table, row, "iter_time_s", 0);
    label.measured.tokens_per_s = number(table, row, "tok_s_gpu", 0);
    label.measured.peak_gib = number(table, row, "peak_mem_gib", 0);
    return label;
}

std::string accelerator_of(const std::string& gpu) {
    std::string name = gpu.substr(0, gpu.find('('));
    while (!name.empty() && name.back() == ' ') name.pop_back();
    return name;
}

}  // namespace orrery::published
