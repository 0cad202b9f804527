#include "run/control/agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/error.h"

namespace orrery {

namespace {

Agreement decode(const std::string& text) {
    Agreement parts;
    for (size_t at = 0; at < text.size();) {
        const size_t tab = text.find('\t', at), end = text.find('\n', at);
        parts.emplace_back(text.substr(at, tab - at), text.substr(tab + 1, end - tab - 1));
        at = end + 1;
    }
    return parts;
}

std::string value_of(const Agreement& parts, const std::string& name) {
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.first == name; });
    return found == parts.end() ? "nothing" : found->second;
}

std::string text_of(const ConfigValue& value) {
    if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? "true" : "false";
    if (const auto* integer = std::get_if<int64_t>(&value.data)) return fmt::format("{}", *integer);
    if (const auto* number = std::get_if<double>(&value.data)) return fmt::format("{}", *number);
    if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
    std::string list;
    for (const ConfigValue& item : std::get<ConfigValue::List>(value.data))
        list += (list.empty() ? "" : ", ") + text_of(item);
    return "[" + list + "]";
}

/// Whether a key has no effect: it belongs to a transport or rendezvous that no plugin of this run has read.
bool is_idle(const std::string& table, const ConfigValue& value) {
    return !value.used && (table.starts_with("transport.") || table.starts_with("rendezvous.")) &&
           !table.starts_with("transport.axis");
}

void collect(const Config& table, Agreement& parts) {
    for (const auto& [name, value] : table.items()) {
        if (const auto* below = std::get_if<std::shared_ptr<Config>>(&value.data))
            collect(**below, parts);
        else if (!value.per_host && !is_idle(table.path(), value))
            parts.emplace_back(table.path().empty() ? name : table.path() + "." + name, text_of(value));
    }
}

}  // namespace

Agreement settings_of(const Config& config) {
    Agreement parts;
    collect(config, parts);
    std::sort(parts.begin(), parts.end());
    return parts;
}

std::string encode(const Agreement& parts) {
    std::string text;
    for (const auto& [name, value] : parts) {
        std::string line = name + "\t" + value;
        std::replace(line.begin(), line.end(), '\n', ' ');
        text += line + "\n";
    }
    return text;
}

void require_agreement(Exchange& exchange, const std::string& topic, const Agreement& parts, const std::string& host) {
    constexpr size_t shown = 4;
    const std::string mine = encode(parts);
    const auto found = exchange.compare(topic, mine, host + "\n" + mine, WaitLimit::step);
    if (!found) return;
    const size_t host_0 = found->first.find('\n'), host_n = found->other.find('\n');
    const Agreement first = decode(found->first.substr(host_0 + 1)), second = decode(found->other.substr(host_n + 1));
    std::vector<std::string> names;
    for (const Agreement* all : {&first, &second})
        for (const auto& [name, value] : *all)
            if (value_of(first, name) != value_of(second, name) &&
                std::find(names.begin(), names.end(), name) == names.end())
                names.push_back(name);
    std::string text = fmt::format("the configuration differs between rank {} on host {} and rank 0 on host {}",
                                   found->rank, found->other.substr(0, host_n), found->first.substr(0, host_0));
    for (size_t i = 0; i < std::min(names.size(), shown); ++i)
        text +=
            fmt::format("\n  {}: {}, rank 0 has {}", names[i], value_of(second, names[i]), value_of(first, names[i]));
    if (names.size() > shown) text += fmt::format("\n  and {} more", names.size() - shown);
    try {  // waits until all ranks have read the difference; it does not matter if a rank has ended already
        exchange.all(topic + " told", "", WaitLimit::step);
    } catch (const Error&) {
    }
    throw Error(text +
                    "\n  give every rank the same script, configuration and build; iterate tables in order (ipairs), "
                    "not with pairs",
                Fault::usage);
}

}  // namespace orrery
