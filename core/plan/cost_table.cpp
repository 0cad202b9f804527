#include "plan/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "ir/describe.h"

namespace orrery {
namespace {

constexpr const char* format_name = "orrery costs";
constexpr int64_t version = 1;

// Upper bounds for ranks and counts in a cost table file. Sums of larger ones would overflow or lose precision.
constexpr int64_t most_ranks = 1 << 24, most_counted = int64_t{1} << 50;
constexpr double most_seconds = 1e9;

struct NumberFact {
    const char* name;
    int64_t least, most;
};
constexpr NumberFact number_facts[] = {
    {"processors", 1, most_ranks}, {"ranks", 1, most_ranks},   {"hosts", 1, most_ranks},
    {"threads", 0, most_ranks},    {"steps", 0, most_counted},
};

/// An attribute as JSON. Infinities and NaN, which JSON cannot represent, become {"number": "-inf"}.
Json json_of(const Attribute& attribute) {
    return std::visit(
        [](const auto& value) -> Json {
            using T = std::decay_t<decltype(value)>;
            if constexpr (std::is_same_v<T, double>)
                if (!std::isfinite(value)) return {{"number", fmt::format("{}", value)}};
            return value;
        },
        attribute);
}

Attribute attribute_of(const Json& json) {
    if (json.is_boolean()) return json.get<bool>();
    if (json.is_number_integer()) return json.get<int64_t>();
    if (json.is_number_float()) return json.get<double>();
    if (json.is_string()) return json.get<std::string>();
    if (json.is_array()) return json.get<std::vector<int64_t>>();
    return std::stod(json.at("number").get<std::string>());
}

TensorType type_of(const std::string& text) {
    const size_t open = text.find('[');
    const auto dtype = parse_dtype(text.substr(0, open));
    if (!dtype || open == std::string::npos || text.back() != ']')
        throw Error(fmt::format("invalid type {}, expected one such as f32[8,512]", quote(text)));
    TensorType type{*dtype, {}};
    const std::string sizes = text.substr(open + 1, text.size() - open - 2);
    double elements = 1;
    if (sizes.empty()) return type;
    for (const std::string& size : split(sizes, ',')) {
        int64_t value = -1;
        const auto [end, fault] = std::from_chars(size.data(), size.data() + size.size(), value);
        if (fault != std::errc() || end != size.data() + size.size() || value < 0)
            throw Error(fmt::format("{} has the size {}", quote(text), quote(size)));
        type.shape.push_back(value);
        elements *= std::max(1.0, static_cast<double>(value));
    }
    if (elements > static_cast<double>(most_counted))
        throw Error(fmt::format("{} has more than {} elements", quote(text), most_counted));
    return type;
}

std::string shown(const Json& value) {
    const std::string text = message_text(value);
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

const Json& object_of(const Json& json, const char* key) {
    const Json& value = json.at(key);
    if (!value.is_object()) throw Error(fmt::format("{} is {}, expected an object", key, shown(value)));
    return value;
}

const Json& list_of(const Json& json, const char* key) {
    const Json& value = json.at(key);
    if (!value.is_array()) throw Error(fmt::format("{} is {}, expected a list", key, shown(value)));
    return value;
}

std::string string_of(const Json& value, const std::string& key) {
    if (!value.is_string()) throw Error(fmt::format("{} is {}, expected text", key, shown(value)));
    return value.get<std::string>();
}

int64_t count_of(const Json& row, const char* key, int64_t least, int64_t most) {
    const int64_t count = whole_number(row.at(key), key);
    if (count < least || count > most) throw Error(fmt::format("{} is {}, expected {} to {}", key, count, least, most));
    return count;
}

std::string fact_of(const Json& value, const std::string& name) {
    const auto* const number = std::ranges::find(number_facts, name, &NumberFact::name);
    if (number == std::end(number_facts)) return string_of(value, "facts." + name);
    int64_t count = -1;
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (fault != std::errc() || end != text.data() + text.size() || count < number->least || count > number->most)
        throw Error(fmt::format("facts.{} is {}, expected a whole number as text, \"{}\" to \"{}\"", name, shown(value),
                                number->least, number->most));
    return text;
}

Json json_of(const std::vector<TensorType>& types) {
    Json list = Json::array();
    for (const TensorType& type : types) list.push_back(type.text());
    return list;
}

std::vector<TensorType> types_of(const Json& list) {
    std::vector<TensorType> types;
    for (const Json& type : list) types.push_back(type_of(type.get<std::string>()));
    return types;
}

void add(Json& row, const Measured& time) {
    row["seconds"] = time.seconds;
    if (time.least_s) row["least_seconds"] = *time.least_s;
    if (time.spread) row["spread"] = *time.spread;
    row["samples"] = time.samples;
    if (time.in_turns) row["in_turns"] = true;
}

double seconds_of(const Json& value, const std::string& key) {
    const double seconds = value.is_number() ? value.get<double>() : -1;
    if (!(seconds >= 0 && seconds <= most_seconds))
        throw Error(fmt::format("{} is {}, expected a number from 0 to {:g}", key, shown(value), most_seconds));
    return seconds;
}

std::optional<double> optional_of(const Json& row, const char* key) {
    if (!row.contains(key)) return std::nullopt;
    return seconds_of(row[key], key);
}

Measured measured_of(const Json& row) {
    Measured time{seconds_of(row.at("seconds"), "seconds"), optional_of(row, "least_seconds"),
                  optional_of(row, "spread"), count_of(row, "samples", 0, most_counted)};
    if (row.contains("in_turns")) row["in_turns"].get_to(time.in_turns);
    return time;
}

Json json_of(const KernelCost& kernel) {
    Json row = {{"op", kernel.spec.op}, {"attributes", Json::object()}};
    for (const auto& [key, value] : kernel.spec.attributes.items()) row["attributes"][key] = json_of(value);
    row["inputs"] = json_of(kernel.spec.inputs);
    row["outputs"] = json_of(kernel.spec.outputs);
    row["threads"] = kernel.threads;
    if (kernel.beside > 0) row["beside"] = kernel.beside;
    add(row, kernel.time);
    return row;
}

KernelCost kernel_of(const Json& row) {
    KernelCost kernel;
    kernel.spec.op = string_of(row.at("op"), "op");
    for (const auto& [key, value] : object_of(row, "attributes").items())
        kernel.spec.attributes.set(key, attribute_of(value));
    kernel.spec.inputs = types_of(list_of(row, "inputs"));
    kernel.spec.outputs = types_of(list_of(row, "outputs"));
    if (kernel.spec.outputs.empty()) throw Error(kernel.spec.op + " has no outputs");
    kernel.threads = static_cast<int>(count_of(row, "threads", 0, most_ranks));
    kernel.time = measured_of(row);
    if (row.contains("beside")) kernel.beside = static_cast<int>(count_of(row, "beside", 0, most_ranks));
    return kernel;
}

Json json_of(const WireCost& wire) {
    Json row = {{"transport", wire.transport}, {"op", wire.op}, {"ranks", wire.ranks}, {"bytes", wire.bytes}};
    if (!wire.axis.empty()) row["axis"] = wire.axis;
    add(row, wire.time);
    if (wire.mean_s) row["mean_seconds"] = *wire.mean_s;
    if (wire.processor_s) row["processor_seconds"] = *wire.processor_s;
    return row;
}

WireCost wire_of(const Json& row) {
    return {string_of(row.at("transport"), "transport"),
            string_of(row.at("op"), "op"),
            count_of(row, "ranks", 1, most_ranks),
            count_of(row, "bytes", 0, most_counted),
            measured_of(row),
            optional_of(row, "processor_seconds"),
            row.contains("axis") ? string_of(row["axis"], "axis") : "",
            optional_of(row, "mean_seconds")};
}

template <class Row>
std::string rows_text(const std::vector<Row>& rows) {
    std::string text = "[";
    for (size_t i = 0; i < rows.size(); ++i) text += (i == 0 ? "\n  " : ",\n  ") + message_text(json_of(rows[i]));
    return text + (rows.empty() ? "]" : "\n ]");
}

/// Parses the rows of the JSON list with this key. Errors name the row.
template <class Row>
std::vector<Row> rows_of(const Json& json, const char* key, Row (*read)(const Json&)) {
    std::vector<Row> rows;
    for (const Json& row : list_of(json, key)) {
        try {
            rows.push_back(read(row));
        } catch (const std::exception& problem) {
            const auto* of_json = dynamic_cast<const Json::exception*>(&problem);
            throw Error(fmt::format("row {} of {}: {}", rows.size() + 1, key,
                                    of_json ? reason_of(*of_json) : std::string(problem.what())));
        }
    }
    return rows;
}

CostTable table_of(const Json& json) {
    if (!json.is_object() || !json.contains("format") || json["format"] != format_name)
        throw Error("it is not a table of measured costs");
    if (const int64_t found = whole_number(json.at("version"), "its version"); found != version)
        throw Error(fmt::format("it has version {}, expected {}; measure again: orrery calibrate", found, version));
    CostTable table;
    table.made_by = string_of(json.at("made_by"), "made_by");
    table.device = string_of(json.at("device"), "device");
    for (const auto& [name, value] : object_of(json, "machine").items())
        table.machine += name + "=" + string_of(value, "machine." + name) + "\n";
    for (const auto& [name, value] : object_of(json, "facts").items())
        table.facts.emplace_back(name, fact_of(value, name));
    for (const auto& [name, value] : object_of(json, "step_seconds").items())
        table.totals.emplace_back(name, seconds_of(value, "step_seconds." + name));
    for (const Json& note : list_of(json, "notes")) table.notes.push_back(string_of(note, "a note"));
    table.kernels = rows_of<KernelCost>(json, "kernels", kernel_of);
    table.wires = rows_of<WireCost>(json, "communication", wire_of);
    return table;
}

}  // namespace

std::string cost_table_text(const CostTable& table) {
    Json machine = Json::object(), facts = Json::object(), totals = Json::object();
    for (const std::string& line : split(trim(table.machine), '\n')) {
        const size_t equals = std::min(line.find('='), line.size());
        if (!line.empty()) machine[line.substr(0, equals)] = line.substr(std::min(equals + 1, line.size()));
    }
    for (const auto& [name, value] : table.facts) facts[name] = value;
    for (const auto& [name, seconds] : table.totals) totals[name] = seconds;
    std::string text = "{";
    const auto member = [&](const char* key, const std::string& value) {
        text += fmt::format("{}\n \"{}\": {}", text.size() == 1 ? "" : ",", key, value);
    };
    member("format", message_text(format_name));
    member("version", std::to_string(version));
    member("made_by", message_text(table.made_by));
    member("device", message_text(table.device));
    member("machine", message_text(machine));
    member("facts", message_text(facts));
    member("step_seconds", message_text(totals));
    member("notes", message_text(table.notes));
    member("kernels", rows_text(table.kernels));
    member("communication", rows_text(table.wires));
    return text + "\n}\n";
}

CostTable parse_cost_table(std::string_view text, const std::string& file) {
    try {
        return table_of(parse_json(text, {}));
    } catch (const Json::exception& problem) {
        throw Error(fmt::format("{}: {}", file, reason_of(problem)));
    } catch (const Error& problem) {
        throw Error(fmt::format("{}: {}", file, problem.what()));
    }
}

std::string spec_text(const KernelSpec& spec) {
    std::string text = spec.op;
    if (const std::string attributes = text_of(spec.attributes); !attributes.empty()) text += " " + attributes;
    for (const TensorType& type : spec.inputs) text += " " + type.text();
    text += " ->";
    for (const TensorType& type : spec.outputs) text += " " + type.text();
    return text;
}

std::string machine_key(const std::string& machine) {
    std::vector<std::string> lines;
    const std::vector<std::string> all = split(machine, '\n');
    for (const std::string& line : all)
        if (!trim(line).empty()) lines.emplace_back(trim(line));
    std::sort(lines.begin(), lines.end());
    return join(lines, "\n");
}

std::string machine_of(Device& device) {
    const std::string machine = device.machine();
    return machine.empty() ? "device=" + device.limits().name + "\n" : machine;
}

}  // namespace orrery
