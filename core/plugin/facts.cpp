#include "plugin/facts.h"

#include <algorithm>
#include <map>

#include "base/suggest.h"
#include "base/text.h"
#include "orrery/error.h"

namespace orrery {

namespace {

constexpr std::string_view facts_section = ".orrery_facts";
constexpr size_t most_text = 4096;  // max bytes of ORRERY_FACTS, as a damaged file may claim any size

enum class Form : uint8_t { flag, list };
using Known = std::map<std::string, Form, std::less<>>;

/// Returns the names of facts that plugins of a kind may declare in ORRERY_FACTS, each with its form.
const Known& known_of(std::string_view kind) {
    static const std::map<std::string, Known, std::less<>> kinds = {
        {"device", {{"host_memory", Form::flag}, {"memory", Form::list}, {"leaves_nothing", Form::flag}}},
        {"transport", {{"devices", Form::list}, {"same_process", Form::flag}, {"pins_ranks", Form::flag}}},
        {"engine",
         {{"variables", Form::list},
          {"programs", Form::list},
          {"start", Form::list},
          {"remote", Form::flag},
          {"foreground", Form::flag}}},
        {"launcher",
         {{"variables", Form::list},
          {"inside", Form::list},
          {"uncounted", Form::flag},
          {"restarts", Form::flag},
          {"late_name", Form::flag}}},
    };
    static const Known none;
    const auto found = kinds.find(kind);
    return found == kinds.end() ? none : found->second;
}

Error fault(const std::string& what) { return Error("its ORRERY_FACTS " + what); }

Form form_of(std::string_view kind, const std::string& name) {
    const Known& known = known_of(kind);
    const auto found = known.find(name);
    if (found != known.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [other, form] : known) names.push_back(other);
    const std::string one = "a " + std::string(kind) + " has";
    throw fault("have " + quote(name) + (names.empty() ? ", but " + one + " no facts" : choices(one, name, names)));
}

std::vector<std::string> values_of(const std::string& name, const std::string& text) {
    std::vector<std::string> values = split(text, ',');
    if (values.empty() || std::ranges::count(values, "") > 0)
        throw fault("have " + name + " without a value\n  write " + name + "=A or " + name + "=A,B");
    return values;
}

/// Whether a text is printable ASCII only, since a terminal would interpret control characters.
bool is_plain(std::string_view text) {
    return std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c < 127; });
}

}  // namespace

PluginFacts::PluginFacts(std::string_view kind, std::string_view text) {
    if (!is_plain(text)) throw fault("have a byte that is not printable ASCII");
    for (const std::string& word : split(std::string(text), ' ')) {
        if (word.empty()) continue;
        const size_t sign = word.find('=');
        const std::string name = word.substr(0, sign);
        if (has(name)) throw fault("have " + quote(name) + " twice");
        std::vector<std::string> values;
        if (form_of(kind, name) == Form::list)
            values = values_of(name, sign == std::string::npos ? "" : word.substr(sign + 1));
        else if (sign != std::string::npos)
            throw fault("have " + quote(word) + ", but " + name + " takes no value");
        facts_.emplace_back(name, std::move(values));
    }
}

bool PluginFacts::has(std::string_view name) const {
    return std::ranges::any_of(facts_, [&](const auto& fact) { return fact.first == name; });
}

std::vector<std::string> PluginFacts::values(std::string_view name) const {
    const auto found = std::ranges::find_if(facts_, [&](const auto& fact) { return fact.first == name; });
    return found == facts_.end() ? std::vector<std::string>{} : found->second;
}

std::string PluginFacts::text() const {
    std::vector<std::string> words;
    for (const auto& [name, values] : facts_) words.push_back(name + (values.empty() ? "" : "=" + join(values, ",")));
    return join(words, " ");
}

DeviceFacts PluginFacts::of_device() const {
    DeviceFacts facts{has("host_memory"), has("host_memory") ? "cpu" : "", has("leaves_nothing")};
    const std::vector<std::string> memory = values("memory");
    if (memory.size() > 1) throw fault("have several values of memory, expected one");
    if (!memory.empty()) facts.memory = memory.front();
    return facts;
}

TransportFacts PluginFacts::of_transport() const {
    if (!has("devices"))
        throw fault(
            "do not list the devices whose memory it supports\n  write ORRERY_FACTS(\"devices=cpu\") in its source");
    return {values("devices"), has("same_process"), has("pins_ranks")};
}

std::string facts_text(const LibraryFile& file) {
    std::string text = file.bytes_of(facts_section, most_text).value_or(std::string(1, '\0'));
    if (text.empty() || text.back() != '\0') throw fault("do not end with a zero byte: the file is damaged");
    text.pop_back();
    return text;
}

}  // namespace orrery
