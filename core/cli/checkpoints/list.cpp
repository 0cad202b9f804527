// Implements `orrery checkpoints list` and `show`, which read only manifests.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/json.h"
#include "base/text.h"
#include "cli/checkpoints/subcommands.h"
#include "cli/run_record/run_record.h"
#include "run/checkpoint/restore/chosen_step.h"
#include "run/checkpoint/retain/retention.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

Json number_in(const Json& host, const char* key) {
    return host.is_object() && host.contains(key) && host[key].is_number() ? host[key] : Json();
}

/// Returns a warning if a checkpoint's time is in the future, otherwise "".
std::string ahead(const Json& time) {
    const double now = wall_time();
    if (!time.is_number() || std::abs(time.get<double>()) >= 1e11) return "";
    if (!later_than(static_cast<int64_t>(now), static_cast<int64_t>(time.get<double>()))) return "";
    return fmt::format(
        "saved at a time later than now ({}): the wall clock was ahead; not counted by rules per hour or day",
        utc_text(now));
}

Json describe(const Manifest& manifest) {
    const Json host = parse_json(manifest.host, {"", fmt::format("step {}: host", manifest.step), 0, 0});
    int64_t bytes = 0;
    for (const ManifestObject& object : manifest.objects) bytes += object.bytes;
    const Json time = number_in(host, "time");
    // later times would have years of more than four digits
    const bool dated = time.is_number() && std::abs(time.get<double>()) < 1e11;
    return {{"time", time},
            {"saved", dated ? Json(utc_text(time.get<double>())) : Json()},
            {"bytes", bytes},
            {"objects", manifest.objects.size()},
            {"tensors", manifest.tensors.size()},
            {"loss", number_in(host, "loss")},
            {"eval_loss", number_in(host, "eval_loss")},
            {"ahead", ahead(time)},
            {"mesh", manifest.mesh},
            {"version", Manifest::version}};
}

/// Returns the JSON of one step, valid or not; null if the step was removed meanwhile.
Json entry_of(CheckpointStore& store, int64_t step) {
    Json entry = {{"step", step}};
    try {
        entry["suspect"] = printable(store.mark_of(step));
        entry["pinned"] = printable(store.pin_of(step));
        entry["damaged"] = "";
        entry.update(describe(Manifest::of(store, step)));
    } catch (const Damaged& damage) {
        entry["damaged"] = damage.what();
    } catch (const Error&) {
        if (!has_step(store, step)) return {};
        throw;
    }
    return entry;
}

std::string number_text(const Json& number) {
    return number.is_number() ? fmt::format("{:.4f}", number.get<double>()) : "-";
}

std::vector<std::string> row_of(const Json& entry) {
    const auto text = [&](const char* key) { return entry.at(key).get<std::string>(); };
    std::vector<std::string> notes;
    for (const char* key : {"pinned", "suspect", "damaged"})
        if (const std::string said = text(key); !said.empty()) notes.push_back(fmt::format("{}: {}", key, said));
    if (entry.contains("ahead") && !text("ahead").empty()) notes.push_back(text("ahead"));
    const std::string step = std::to_string(entry.at("step").get<int64_t>()), note = join(notes, "; ");
    if (!entry.contains("bytes")) return {step, "-", "-", "-", "-", "-", "-", note};
    return {step,
            entry.at("saved").is_string() ? text("saved") : "-",
            bytes_text(entry.at("bytes").get<int64_t>()),
            number_text(entry.at("loss")),
            number_text(entry.at("eval_loss")),
            text("mesh").empty() ? "one rank" : text("mesh"),
            std::to_string(entry.at("version").get<int64_t>()),
            note};
}

void print_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& numbers) {
    std::vector<size_t> widths(numbers.size(), 0);
    for (const auto& row : rows)
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const auto& row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) {
            if (i > 0) line += "  ";
            line += numbers[i] ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]);
        }
        std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
    }
}

Json json_of(const Manifest& manifest) {
    Json objects = Json::array(), tensors = Json::array();
    for (const ManifestObject& object : manifest.objects)
        objects.push_back(
            {{"key", object.key}, {"rank", object.rank}, {"bytes", object.bytes}, {"sha256", object.sha256}});
    for (const ManifestTensor& tensor : manifest.tensors) {
        Json shards = Json::array();
        for (const ManifestShard& shard : tensor.shards)
            shards.push_back({{"object", manifest.objects[static_cast<size_t>(shard.object)].key},
                              {"begin", shard.begin},
                              {"offset", shard.box.offset},
                              {"shape", shard.box.shape}});
        tensors.push_back({{"name", tensor.name},
                           {"dtype", name_of(tensor.type.dtype)},
                           {"shape", tensor.type.shape},
                           {"layout", tensor.splits.text(manifest.axes)},
                           {"shards", std::move(shards)}});
    }
    return {{"objects", std::move(objects)}, {"tensors", std::move(tensors)}};
}

std::string ranks_text(const Manifest& manifest, const ManifestTensor& tensor) {
    std::vector<int64_t> ranks;
    for (const ManifestShard& shard : tensor.shards)
        ranks.push_back(manifest.objects[static_cast<size_t>(shard.object)].rank);
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::vector<std::string> runs;
    for (size_t i = 0; i < ranks.size();) {
        size_t end = i + 1;
        while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
        runs.push_back(end == i + 1 ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
        i = end;
    }
    return runs.empty() ? "none" : join(runs, ", ");
}

}  // namespace

int list_checkpoints(StorePlace& place, const CheckpointsCommand& command) {
    CheckpointStore& store = place.store();
    Json steps = Json::array(), strays = Json::array();
    int64_t bytes = 0;
    for (const int64_t step : store.steps()) {
        Json entry = entry_of(store, step);
        if (entry.is_null()) continue;
        if (entry.contains("bytes")) bytes += entry["bytes"].get<int64_t>();
        steps.push_back(std::move(entry));
    }
    for (const Stray& stray : store.strays()) strays.push_back({{"step", stray.step}, {"what", stray.what}});
    if (command.json) {
        Json all = about(place);
        all["steps"] = std::move(steps);
        all["strays"] = std::move(strays);
        print_json(all);
        return 0;
    }
    std::printf("%s (%s): %s, %s\n", store.place().c_str(), place.kind().c_str(),
                plural(static_cast<int64_t>(steps.size()), "checkpoint").c_str(), bytes_text(bytes).c_str());
    std::vector<std::vector<std::string>> rows = {{"step", "saved", "bytes", "loss", "eval", "mesh", "version", ""}};
    for (const Json& entry : steps) rows.push_back(row_of(entry));
    if (rows.size() > 1) print_table(rows, {true, false, true, true, true, false, true, false});
    for (const Json& stray : strays)
        std::printf("beside them: %s\n", printable(stray.at("what").get<std::string>(), 4000).c_str());
    return 0;
}

int show_checkpoint(StorePlace& place, const CheckpointsCommand& command) {
    CheckpointStore& store = place.store();
    place.require(command.step);
    const Manifest manifest = Manifest::of(store, command.step);
    const Json entry = entry_of(store, command.step);
    if (command.json) {
        Json all = about(place);
        all.update(entry.is_null() ? Json::object() : entry);
        all.update(json_of(manifest));
        print_json(all);
        return 0;
    }
    if (!entry.is_null())
        print_table({{"step", "saved", "bytes", "loss", "eval", "mesh", "version", ""}, row_of(entry)},
                    {true, false, true, true, true, false, true, false});
    std::vector<std::vector<std::string>> rows = {{"", "object", "rank", "bytes", "sha256"}};
    for (const ManifestObject& object : manifest.objects)
        rows.push_back({"", object.key, std::to_string(object.rank), bytes_text(object.bytes), object.sha256});
    print_table(rows, {false, false, true, true, false});
    rows = {{"", "tensor", "type", "layout", "shards", "written by ranks"}};
    for (const ManifestTensor& tensor : manifest.tensors) {
        const std::string layout = tensor.splits.text(manifest.axes);
        rows.push_back({"", tensor.name, tensor.type.text(), layout.empty() ? "-" : layout,
                        std::to_string(tensor.shards.size()), ranks_text(manifest, tensor)});
    }
    print_table(rows, {false, false, false, false, true, false});
    return 0;
}

}  // namespace orrery
