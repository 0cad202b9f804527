#include "run/agreement.h"

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

}  // namespace

std::string encode(const Agreement& parts) {
    std::string text;
    for (const auto& [name, value] : parts) {
        std::string line = name + "\t" + value;
        std::replace(line.begin(), line.end(), '\n', ' ');
        text += line + "\n";
    }
    return text;
}

void require_agreement(const std::vector<std::string>& all) {
    constexpr size_t shown = 4;
    const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& text) { return text != all[0]; });
    if (other == all.end()) return;
    const Agreement first = decode(all[0]), second = decode(*other);
    std::vector<std::string> names;
    for (const Agreement* parts : {&first, &second})
        for (const auto& [name, value] : *parts)
            if (value_of(first, name) != value_of(second, name) &&
                std::find(names.begin(), names.end(), name) == names.end())
                names.push_back(name);
    std::string text = fmt::format("rank {} and rank 0 would not do the same", other - all.begin());
    for (size_t i = 0; i < std::min(names.size(), shown); ++i)
        text +=
            fmt::format("\n  {}: {}, rank 0 has {}", names[i], value_of(second, names[i]), value_of(first, names[i]));
    if (names.size() > shown) text += fmt::format("\n  and {} more", names.size() - shown);
    throw Error(text +
                    "\n  give every rank the same script, configuration and build; iterate tables in order (ipairs), "
                    "not with pairs",
                Fault::peer);
}

}  // namespace orrery
