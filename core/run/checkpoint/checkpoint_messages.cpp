#include "run/checkpoint/checkpoint_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/suggest.h"
#include "base/text.h"

namespace orrery {

Block box_of(const StateValue& value, const Mesh& mesh, int64_t rank) {
    if (!value.layout.partials().empty())
        throw Error("cannot save " + value.name + ": it holds partial sums (" + value.layout.text(mesh) + ")");
    Block box{value.layout.offset(value.global.shape, mesh, rank), value.layout.local_shape(value.global.shape, mesh)};
    if (value.local.shape != box.shape || value.local.dtype != value.global.dtype)
        throw Error("cannot save " + value.name + ": this rank holds " +
                    TensorType{value.local.dtype, value.local.shape}.text() + ", its layout says " +
                    TensorType{value.global.dtype, box.shape}.text());
    return box;
}

Json schema_of(std::span<const StateValue> state, const Mesh& mesh, int64_t rank) {
    Json schema = Json::array();
    for (const StateValue& value : state) {
        const Block box = box_of(value, mesh, rank);
        if (const std::string bad = not_utf8(value.name); !bad.empty())
            throw Error("the name of " + quote(value.name) + " cannot be saved: " + bad);
        schema.push_back({value.name, name_of(value.global.dtype), value.global.shape, value.layout.text(mesh),
                          box.offset, box.shape});
    }
    return schema;
}

std::vector<bool> owned(const std::vector<Json>& starts, int64_t rank) {
    std::set<std::pair<std::string, std::string>> boxes;
    std::map<std::string, std::pair<std::string, size_t>> types;
    std::vector<bool> mine;
    for (size_t other = 0; other < starts.size(); ++other) {
        std::set<std::string> names;
        for (const Json& entry : starts[other].at("schema")) {
            const auto name = entry[0].get<std::string>();
            if (!names.insert(name).second) throw Error("two values of the state are called " + quote(name));
            const std::string type = entry[1].get<std::string>() + entry[2].dump();
            const auto& [known, owner] = types.try_emplace(name, type, other).first->second;
            if (known != type)
                throw Error(fmt::format("{} is {} on rank {} and {} on rank {}", name, known, owner, type, other));
            const bool first = boxes.emplace(name, entry[4].dump() + entry[5].dump()).second;
            if (static_cast<int64_t>(other) == rank) mine.push_back(first);
        }
    }
    return mine;
}

void count_votes(const std::vector<Json>& starts, const std::vector<Json>& reports) {
    struct Vote {
        std::string digest;
        std::vector<int64_t> ranks;
    };
    std::map<std::pair<std::string, std::string>, std::vector<Vote>> urns;
    for (size_t rank = 0; rank < reports.size(); ++rank) {
        const Json& schema = starts[rank].at("schema");
        const Json& votes = reports[rank].at("votes");
        for (size_t i = 0; i < schema.size(); ++i) {
            auto& urn = urns[{schema[i][0].get<std::string>(), schema[i][4].dump() + schema[i][5].dump()}];
            const auto digest = votes[i].get<std::string>();
            auto same = std::find_if(urn.begin(), urn.end(), [&](const Vote& vote) { return vote.digest == digest; });
            if (same == urn.end()) same = urn.insert(urn.end(), {digest, {}});
            same->ranks.push_back(static_cast<int64_t>(rank));
        }
    }
    for (auto& [what, urn] : urns) {
        if (urn.size() < 2) continue;
        std::stable_sort(urn.begin(), urn.end(),
                         [](const Vote& a, const Vote& b) { return a.ranks.size() > b.ranks.size(); });
        std::vector<std::string> groups;
        for (const Vote& vote : urn) {
            std::vector<std::string> ranks;
            for (const int64_t rank : vote.ranks) ranks.push_back(std::to_string(rank));
            groups.push_back((ranks.size() > 1 ? "ranks " : "rank ") + join(ranks, ", "));
        }
        throw Error("replicas of " + what.first + " differ: " + join(groups, " against ") +
                        "\n  memory or arithmetic of one of them is at fault, or the program is not deterministic",
                    Fault::failed);
    }
}

std::string mismatch(const Manifest& manifest, const std::vector<Json>& starts, bool some) {
    std::set<std::string> wanted;
    std::vector<std::string> stored;
    for (const ManifestTensor& tensor : manifest.tensors) stored.push_back(tensor.name);
    for (const Json& start : starts) {
        for (const Json& entry : start.at("schema")) {
            const auto name = entry[0].get<std::string>();
            if (!wanted.insert(name).second) continue;
            const ManifestTensor* tensor = manifest.find(name);
            if (!tensor) return "it has no tensor " + quote(name) + choices("it has", name, stored);
            const std::string type = entry[1].get<std::string>() + text_of(entry[2].get<Shape>());
            if (tensor->type.text() != type)
                return "its tensor " + quote(name) + " is " + tensor->type.text() + ", the program's is " + type;
        }
    }
    std::erase_if(stored, [&](const std::string& name) { return wanted.count(name) > 0; });
    if (some || stored.empty()) return "";
    if (stored.size() > 5) stored.resize(5), stored.push_back("...");
    return "it has tensors that the program has not: " + join(stored, ", ");
}

void assemble(Manifest& manifest, const std::vector<Json>& starts, const std::vector<Json>& reports) {
    std::map<std::string, size_t> places;
    for (size_t rank = 0; rank < reports.size(); ++rank) {
        const auto first = static_cast<int64_t>(manifest.objects.size());
        for (const Json& object : reports[rank].at("objects")) {
            manifest.objects.push_back({object.at("key"), static_cast<int64_t>(rank), object.at("bytes"),
                                        object.at("sha256"), object.at("crc32c").get<std::vector<uint32_t>>()});
        }
        std::map<std::string, const Json*> shards;
        for (const Json& shard : reports[rank].at("shards")) shards.emplace(shard[0].get<std::string>(), &shard);
        for (const Json& entry : starts[rank].at("schema")) {
            const auto name = entry[0].get<std::string>();
            const auto [place, fresh] = places.try_emplace(name, manifest.tensors.size());
            if (fresh)
                manifest.tensors.push_back({name, {*parse_dtype(entry[1].get<std::string>()), entry[2]}, entry[3], {}});
            if (const auto shard = shards.find(name); shard != shards.end())
                manifest.tensors[place->second].shards.push_back(
                    {first + (*shard->second)[1].get<int64_t>(), (*shard->second)[2], {entry[4], entry[5]}});
        }
    }
    Manifest::parse(manifest.text(), "the new manifest");
}

std::vector<Json> parse_messages(const std::vector<std::string>& texts) {
    std::vector<Json> all;
    for (const std::string& text : texts) all.push_back(parse_json(text, {"", "a message of another rank", 0, 0}));
    return all;
}

}  // namespace orrery
