#include "run/bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace orrery {

namespace {

constexpr size_t parts_shown = 4, lines_shown = 8;

/// The text to print for a bit source's value: of a library only the first 12 digits of its digest.
std::string shown(const BitSource& source, const std::string& value) {
    constexpr size_t digits = 12;
    if (value.empty()) return "none";
    return source.file.empty() ? value : value.substr(0, digits);
}

const BitSource* find(const BitSources& bits, const std::string& name) {
    const auto found = std::ranges::find(bits, name, &BitSource::name);
    return found == bits.end() ? nullptr : &*found;
}

std::string listed(const std::vector<std::string>& parts) {
    std::vector<std::string> first(parts.begin(), parts.begin() + std::min(parts.size(), parts_shown));
    if (parts.size() > parts_shown) first.push_back(fmt::format("{} more", parts.size() - parts_shown));
    return join(first, "; ");
}

std::string difference(const BitSources& first, const BitSources& other) {
    std::vector<std::string> parts;
    for (const BitSource& source : other) {
        const BitSource* const of_first = find(first, source.name);
        const std::string value = of_first ? of_first->value : "";
        if (value == source.value) continue;
        parts.push_back(fmt::format("{}: {}{}, rank 0 has {}", source.file.empty() ? source.name : source.file,
                                    source.file.empty() ? "" : "digest ", shown(source, source.value),
                                    shown(source, value)));
    }
    for (const BitSource& source : first)
        if (!find(other, source.name))
            parts.push_back(fmt::format("{}: none, rank 0 has {}", source.name, shown(source, source.value)));
    return listed(parts);
}

}  // namespace

BitSources bit_sources_of(std::string_view arithmetic) {
    BitSources bits;
    for (const std::string& line : split(arithmetic, '\n'))
        if (const size_t cut = line.find('='); cut != std::string::npos)
            bits.push_back({line.substr(0, cut), line.substr(cut + 1)});
    return bits;
}

Json to_json(const BitSources& bits) {
    Json json = Json::object();
    for (const BitSource& source : bits) json[source.name] = source.value;
    return json;
}

std::optional<BitSources> saved_bits(const Json& json) {
    if (!json.is_object()) return std::nullopt;
    BitSources bits;
    for (const auto& [name, value] : json.items())
        if (value.is_string()) bits.push_back({name, value.get<std::string>()});
    return bits;
}

std::string encode(const RankBits& rank) {
    Json bits = Json::array();
    for (const BitSource& source : rank.bits) bits.push_back({source.name, source.value, source.file});
    return message_text(Json{{"host", rank.host}, {"bits", std::move(bits)}});
}

RankBits decode_bits(const std::string& text) {
    const Json json = parse_json(text, {});
    RankBits rank{json.at("host"), {}};
    for (const Json& source : json.at("bits")) rank.bits.push_back({source.at(0), source.at(1), source.at(2)});
    return rank;
}

std::vector<std::string> bits_between(const std::vector<RankBits>& ranks) {
    std::vector<std::pair<std::string, std::string>> order;
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> numbers;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        std::pair of{ranks[rank].host, difference(ranks.front().bits, ranks[rank].bits)};
        if (of.second.empty()) continue;
        std::vector<std::string>& same = numbers[of];
        if (same.empty()) order.push_back(of);
        same.push_back(std::to_string(rank));
    }
    std::vector<std::string> lines;
    for (const auto& of : order) {
        if (lines.size() == lines_shown) {
            lines.push_back(fmt::format("and {} more of this kind", order.size() - lines_shown));
            break;
        }
        const std::vector<std::string>& same = numbers[of];
        lines.push_back(fmt::format("{} {} on host {} and rank 0 on host {} may compute different bits: {}",
                                    same.size() == 1 ? "rank" : "ranks", join_few(same, parts_shown), of.first,
                                    ranks.front().host, of.second));
    }
    return lines;
}

std::string bits_since(const std::optional<BitSources>& saved, const RankBits& now, int64_t step) {
    static const std::set<std::string> always = {"device", "mesh", std::string(order_of_sums), "products",
                                                 "threads_per_rank"};
    if (!saved)
        return fmt::format(
            "the checkpoint of step {} does not record the threads and the code version that made it: the losses "
            "after it may differ in the last bits",
            step);
    std::vector<std::string> parts;
    bool will = false;
    for (const BitSource& source : now.bits) {
        // Skips a source that only one of checkpoint and run has: it comes from a setting that is reported itself.
        const BitSource* const before = find(*saved, source.name);
        if (!before || before->value == source.value) continue;
        will = will || always.contains(source.name);
        const std::string name =
            source.file.empty() ? source.name : fmt::format("the code of {} on host {}", source.file, now.host);
        parts.push_back(
            fmt::format("{} was {} and is {}", name, shown(source, before->value), shown(source, source.value)));
    }
    if (parts.empty()) return "";
    return fmt::format("{}: the losses after step {} {} differ in the last bits", listed(parts), step,
                       will ? "will" : "may");
}

}  // namespace orrery
