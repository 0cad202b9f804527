#include "run/checkpoint/format/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "compile/passes/loss_scale.h"

namespace orrery {

namespace {

int64_t stage_of(const Mesh& mesh, int64_t rank, AxisId stage_axis) {
    return stage_axis == none ? 0 : mesh.coordinates(rank)[static_cast<size_t>(stage_axis)];
}

/// The tensors that the first ranks of all pipeline stages list. Throws if two ranks describe a tensor differently.
class Tensors {
public:
    explicit Tensors(Manifest& root) : root_(root) {}

    void add(const Json& schema, int64_t rank) {
        for (const Json& entry : schema) {
            const auto name = entry[0].get<std::string>();
            const auto [known, fresh] = known_.try_emplace(name, Known{entry, rank, 0});
            ++known->second.stages;
            if (fresh) root_.tensors.push_back(tensor_of(entry));
            if (known->second.entry != entry)
                throw Error(fmt::format("tensor {} differs between ranks: it is {} on rank {} and {} on rank {}", name,
                                        text(known->second.entry), known->second.rank, text(entry), rank));
        }
    }
    /// Throws unless each tensor is listed by as many stages as it names; a tensor that names none is on all stages.
    void check_stages(int64_t stages) const {
        for (const auto& [name, known] : known_) {
            const auto said = static_cast<int64_t>(known.entry[4].size());
            if (known.stages != (said == 0 ? stages : said))
                throw Error(fmt::format("tensor {} is saved by {} pipeline stages, expected {}", name, known.stages,
                                        said == 0 ? stages : said));
        }
    }

private:
    struct Known {
        Json entry;
        int64_t rank = 0, stages = 0;
    };
    static std::string text(const Json& entry) {
        return entry[1].get<std::string>() + entry[2].dump() + " split " + entry[3].dump() + " of stages " +
               entry[4].dump();
    }
    static ManifestTensor tensor_of(const Json& entry) {
        const auto shape = entry[2].get<Shape>();
        ManifestTensor tensor{entry[0], {*parse_dtype(entry[1].get<std::string>()), shape}};
        tensor.splits = Layout(shape.size());
        for (size_t dim = 0; dim < entry[3].size(); ++dim)
            for (const Json& axis : entry[3][dim])
                tensor.splits.set(axis.get<AxisId>(), Placement::split(static_cast<int>(dim)));
        tensor.stages = entry[4].get<std::vector<int64_t>>();
        return tensor;
    }

    Manifest& root_;
    std::map<std::string, Known> known_;
};

std::string side_of(const std::vector<int64_t>& ranks) {
    return fmt::format("{} {}", ranks.size() > 1 ? "ranks" : "rank", fmt::join(ranks, ", "));
}

}  // namespace

Rounds::Rounds(int64_t rank, int64_t ranks, Gather gather, Gather to_first, Broadcast from_first)
    : rank_(rank),
      ranks_(ranks),
      gather_(std::move(gather)),
      to_first_(std::move(to_first)),
      from_first_(std::move(from_first)) {}

std::string Rounds::topic_of(std::string_view what) { return fmt::format("checkpoint/{}/{}", rounds_++, what); }

std::vector<std::string> Rounds::to_all(std::string_view what, const std::string& mine) {
    return gather_(topic_of(what), mine);
}

std::vector<std::string> Rounds::to_first(std::string_view what, const std::string& mine) {
    const std::string topic = topic_of(what);
    std::vector<std::string> all = to_first_ ? to_first_(topic, mine) : gather_(topic, mine);
    if (rank_ == 0 && static_cast<int64_t>(all.size()) != ranks_)
        throw Error(fmt::format("{} ranks answered, but the mesh has {} ranks", all.size(), ranks_), Fault::peer);
    return all;
}

std::string Rounds::from_first(std::string_view what, const std::string& mine) {
    const std::string topic = topic_of(what), said = rank_ == 0 ? mine : "";
    return from_first_ ? from_first_(topic, said) : gather_(topic, said).at(0);
}

Json schema_of(std::span<const StateValue> state) {
    Json schema = Json::array();
    std::set<std::string_view> names;
    for (const StateValue& value : state) {
        if (const std::string bad = not_utf8(value.name); !bad.empty())
            throw Error("the name of " + quote(value.name) + " cannot be saved: " + bad);
        if (!names.insert(value.name).second)
            throw Error("duplicate name of a value in the state: " + quote(value.name));
        schema.push_back(Json::array({value.name, name_of(value.global.dtype), value.global.shape,
                                      value.layout.splits(), value.stages, value.fixed}));
    }
    return schema;
}

bool first_of_stage(const Mesh& mesh, int64_t rank, AxisId stage_axis) {
    std::vector<int64_t> at = mesh.coordinates(rank);
    if (stage_axis != none) at[static_cast<size_t>(stage_axis)] = 0;
    return std::all_of(at.begin(), at.end(), [](int64_t coordinate) { return coordinate == 0; });
}

std::string report_of(const Json& schema, std::span<const StateValue> state, const std::vector<Share>& shares,
                      const std::vector<std::string>& votes, const ObjectWriter& writer, const Mesh& mesh, int64_t rank,
                      AxisId stage_axis) {
    std::map<std::string, std::map<std::string, std::string>> by_holders;
    for (size_t i = 0; i < state.size(); ++i)
        if (shares[i].count > 1) by_holders[shares[i].holders][state[i].name] = votes[i];
    Json sums = Json::object();
    for (const auto& [holders, named] : by_holders) {
        Sha256 sum;
        for (const auto& [name, vote] : named) sum.update(vote);
        sums[holders] = sum.hex();
    }
    Json report = {{"step", writer.index().step},
                   {"index", Json::array({writer.entry().bytes, writer.entry().sha256})},
                   {"bytes", writer.bytes()},
                   {"schema", sha256(schema.dump())},
                   {"votes", std::move(sums)}};
    if (writer.unsound()) report["unsound"] = true;
    if (first_of_stage(mesh, rank, stage_axis)) report["tensors"] = schema;
    return message_text(report);
}

Assembled assemble(const std::vector<std::string>& reports, int64_t step, const Mesh& mesh, AxisId stage_axis,
                   int64_t piece_bytes) {
    Assembled made;
    Manifest& root = made.root;
    root.step = step;
    root.mesh = mesh.text();
    root.axes = mesh;
    root.stage_axis = stage_axis;
    root.piece_bytes = piece_bytes;
    Tensors tensors(root);
    std::map<int64_t, std::pair<std::string, int64_t>> schemas;
    std::map<std::string, std::string> votes;
    int64_t bytes = 0, expected = 0, stages = 0;
    for (size_t i = 0; i < reports.size(); ++i) {
        const auto rank = static_cast<int64_t>(i);
        const Json report = parse_message(reports[i]);
        if (report.at("step") != step)
            throw Error(fmt::format("rank {} is at step {}", rank, report.at("step").get<int64_t>()));
        if (report.contains("tensors")) tensors.add(report["tensors"], rank), ++stages;
        const auto [first, fresh] = schemas.try_emplace(stage_of(mesh, rank, stage_axis), report.at("schema"), rank);
        if (first->second.first != report.at("schema"))
            throw Error(
                fmt::format("the state differs between rank {} and rank {}: other values, types, layouts or stages",
                            rank, first->second.second));
        for (const auto& [holders, vote] : report.at("votes").items())
            if (votes.try_emplace(holders, vote).first->second != vote) made.disputed = holders;
        bytes += report.at("bytes").get<int64_t>();
        made.unsound = made.unsound || report.contains("unsound");
        const IndexEntry index{rank, report.at("index")[0], report.at("index")[1]};
        if (index.bytes > 0) root.indexes.push_back(index);
    }
    tensors.check_stages(stages);
    for (const ManifestTensor& tensor : root.tensors) expected += tensor.type.bytes();
    if (bytes != expected)
        throw Error(fmt::format("the tensors have {} bytes, but {} bytes were written for them", expected, bytes));
    return made;
}

std::string votes_in(std::span<const StateValue> state, const std::vector<Share>& shares,
                     const std::vector<std::string>& votes, const std::string& holders) {
    Json own = Json::array();
    for (size_t i = 0; i < state.size(); ++i)
        if (shares[i].holders == holders) own.push_back(Json::array({state[i].name, votes[i]}));
    return own.empty() ? "" : message_text(own);
}

std::string dispute_of(const std::vector<std::string>& votes) {
    struct Side {
        std::string digest;
        std::vector<int64_t> ranks;
    };
    std::map<std::string, std::vector<Side>> urns;
    for (size_t rank = 0; rank < votes.size(); ++rank) {
        if (votes[rank].empty()) continue;
        for (const Json& vote : parse_message(votes[rank])) {
            std::vector<Side>& urn = urns[vote[0].get<std::string>()];
            const auto digest = vote[1].get<std::string>();
            auto same = std::find_if(urn.begin(), urn.end(), [&](const Side& side) { return side.digest == digest; });
            if (same == urn.end()) same = urn.insert(urn.end(), {digest, {}});
            same->ranks.push_back(static_cast<int64_t>(rank));
        }
    }
    for (auto& [name, urn] : urns) {
        if (urn.size() < 2) continue;
        std::stable_sort(urn.begin(), urn.end(),
                         [](const Side& a, const Side& b) { return a.ranks.size() > b.ranks.size(); });
        std::vector<std::string> sides;
        for (const Side& side : urn) sides.push_back(side_of(side.ranks));
        return "replicas of " + name + " differ: " + join(sides, " against ") +
               "\n  memory or arithmetic of one of them is at fault, or the program is not deterministic";
    }
    return "replicas differ, and then agree: their states change while they are saved";
}

bool has_loss_scale(const Manifest& root) {
    return std::all_of(loss_scale_states.begin(), loss_scale_states.end(),
                       [&](std::string_view name) { return root.find(name) != nullptr; });
}

int64_t other_rows(const ManifestTensor& tensor, const StateValue& value) {
    const Shape &saved = tensor.type.shape, &own = value.global.shape;
    if (!value.other_rows || tensor.type.dtype != value.global.dtype || saved.size() != own.size() || saved == own)
        return 0;
    return std::equal(saved.begin() + 1, saved.end(), own.begin() + 1) ? saved[0] : 0;
}

bool takes_over(const ManifestTensor& tensor, const StateValue& value) {
    return value.other_rows != OtherRows::hints || tensor.type == value.global || other_rows(tensor, value) > 0;
}

std::string mismatch(const Manifest& root, std::span<const StateValue> state) {
    std::vector<std::string> stored;
    for (const ManifestTensor& tensor : root.tensors) stored.push_back(tensor.name);
    for (const StateValue& value : state) {
        const ManifestTensor* tensor = root.find(value.name);
        if (!tensor && value.absent_ok) continue;
        if (!tensor) return "it has no tensor " + quote(value.name) + choices("it has", value.name, stored);
        if (!takes_over(*tensor, value)) continue;
        const int64_t islands = other_rows(*tensor, value);
        if (islands > 0 && value.other_rows == OtherRows::refused)
            return fmt::format(
                "it is of {}, the program of {}\n  choose how they resume in o.strategy.islands: resume = \"mean\" "
                "(each takes "
                "the mean of params and states), \"copies\" (those of one island), or \"round\" (the mean, only at the "
                "end of a round)",
                plural(islands, "island"), value.global.shape[0]);
        if (islands == 0 && !(tensor->type == value.global))
            return "its tensor " + quote(value.name) + " is " + tensor->type.text() + ", the program's is " +
                   value.global.text();
    }
    return "";
}

std::string beyond(const Manifest& root, const std::vector<std::string>& names, const std::vector<std::string>& drop,
                   std::string& dropped) {
    std::set<std::string_view> held(names.begin(), names.end());
    if (has_loss_scale(root)) held.insert(loss_scale_states.begin(), loss_scale_states.end());
    std::vector<std::string> more, lost;
    for (const ManifestTensor& tensor : root.tensors) {
        if (held.count(tensor.name) > 0) continue;
        const auto matched = [&](const std::string& pattern) { return matches(pattern, tensor.name); };
        (std::ranges::any_of(drop, matched) ? lost : more).push_back(tensor.name);
    }
    if (!lost.empty()) dropped = "dropped, as checkpoint.drop says: " + join_few(lost, 5);
    if (lost.empty() && !drop.empty())
        dropped = "checkpoint.drop drops nothing: it matches no tensor of the checkpoint that the program lacks";
    if (more.empty()) return "";
    std::set<std::string> patterns;  // of the last two parts of names, as of errors of feedback: "*.error.dp"
    for (const std::string& name : more) {
        const size_t last = name.rfind('.'), cut = last == 0 || last == name.npos ? last : name.rfind('.', last - 1);
        patterns.insert(cut == name.npos ? name : "*" + name.substr(cut));
    }
    return fmt::format(
        "it has tensors that the program does not have: {}\n  to resume without them, set checkpoint.drop = [\"{}\"]",
        join_few(more, 5), fmt::join(patterns, "\", \""));
}

Json parse_message(const std::string& text) { return parse_json(text, {"", "a message of another rank", 0, 0}); }

}  // namespace orrery
