#include "run/checkpoint/restore/restore.h"

#include <fmt/format.h>

#include <cstring>

#include "base/json.h"
#include "base/text.h"
#include "run/checkpoint/format/block_reader.h"
#include "run/checkpoint/format/messages.h"
#include "run/checkpoint/format/problem_of.h"
#include "run/checkpoint/restore/chosen_step.h"

namespace orrery {

namespace {

/// Returns the damage of a step whose manifest does not fit the program; "" if its objects agree with the manifest. A
/// manifest that its own objects contradict is damaged, not of another program.
std::string belied(CheckpointStore& store, int64_t step) {
    try {
        const Manifest manifest = Manifest::of(store, step);
        for (size_t i = 0; i < manifest.objects.size(); ++i)
            ObjectReader(store, manifest, static_cast<int64_t>(i)).check_header();
    } catch (const Damaged& found) {
        return of_step(step, found.what());
    }
    return "";
}

/// A block of a checkpoint's tensor that is copied to a value, or one of several that are added there.
struct Part {
    const StateValue* value;
    Block box;
    bool adds = false;
};

/// Appends what this rank reads of a value. If the checkpoint has n rows and the program m of a sum of rows, row r of
/// the program is the sum of rows r, r + m, ... of the checkpoint, so that the sum of all stays.
void add_parts(const StateValue& value, const TensorType& stored, const Block& box, std::vector<Part>& parts) {
    if (!value.sum_of_rows || stored.shape[0] == value.global.shape[0]) {
        parts.push_back({&value, box});
        return;
    }
    std::memset(value.local.data, 0, static_cast<size_t>(value.local.bytes()));
    for (int64_t row = box.offset[0]; row < stored.shape[0]; row += value.global.shape[0]) {
        Part part{&value, box, true};
        part.box.offset[0] = row;
        parts.push_back(std::move(part));
    }
}

void fill_values(CheckpointStore& store, const Manifest& manifest, const std::vector<Part>& parts) {
    BlockReader reader(store, manifest);
    std::vector<float> row;
    for (const auto& [value, box, adds] : parts) {
        const Tensor& local = value->local;
        std::span<std::byte> out{static_cast<std::byte*>(local.data), static_cast<size_t>(local.bytes())};
        if (adds) {
            row.resize(static_cast<size_t>(local.count()));
            out = std::as_writable_bytes(std::span(row));
        }
        reader.read(*manifest.find(value->name), box, out);
        for (size_t i = 0; adds && i < row.size(); ++i) static_cast<float*>(local.data)[i] += row[i];
    }
}

}  // namespace

/// Lists, on rank 0, the store's steps with their suspect marks, and its entries that are not checkpoints, as JSON.
std::string Restore::look() {
    Json mine = {{"problem", ""}, {"steps", Json::array()}, {"strays", Json::array()}};
    mine["problem"] = problem_of([&] {
        const std::vector<int64_t> steps = store_.steps();
        for (const int64_t step : steps) mine["steps"].push_back({step, store_.mark_of(step)});
        for (const Stray& stray : store_.strays()) mine["strays"].push_back({stray.what, takes_a_place(stray, steps)});
    });
    return message_text(mine);
}

/// Reads this rank's blocks of a step into `state`. Returns a message to rank 0: damage, mismatch with the program, or
/// failure. Reads the root, and the indexes of the ranks that may have written a part of these blocks.
std::string Restore::fill(int64_t step, std::span<const StateValue> state, bool some, Restored& restored) {
    std::string foreign, damage;
    const auto read = [&] {
        Manifest manifest = Manifest::root_of(store_, step);
        restored.host = manifest.host;
        restored.loss_scale = has_loss_scale(manifest);
        if (foreign = mismatch(manifest, state); !foreign.empty()) return;
        std::vector<Part> parts;
        for (const StateValue& value : state)
            if (const ManifestTensor* tensor = manifest.find(value.name))
                add_parts(value, tensor->type, box_of(value, mesh_, rank_), parts);
        std::vector<Wanted> wanted;
        for (const Part& part : parts) wanted.push_back({part.value->name, part.box});
        manifest.load(store_, wanted);
        try {
            fill_values(store_, manifest, parts);
        } catch (const Damaged&) {
            // With all indexes, the error can name the object with contents that the damaged object has.
            fill_values(store_, Manifest::of(store_, step), parts);
            throw;
        }
    };
    const std::string failure = problem_of([&] {
        try {
            read();
        } catch (const Damaged& found) {
            damage = of_step(step, found.what());
        }
    });
    Json word = {{"damage", damage}, {"foreign", foreign}, {"failure", failure}};
    if (!some && first_of_stage(mesh_, rank_, stage_axis_))
        for (const StateValue& value : state) word["names"].push_back(value.name);
    return message_text(word);
}

/// On rank 0: combines the messages of all ranks to {"failure", "foreign", "damage"}, of which at most one is not "".
std::string Restore::judge_fills(int64_t step, const std::vector<std::string>& fills, bool some) {
    std::string failure, foreign, damage;
    const std::string problem = problem_of([&] {
        std::vector<std::string> names;
        for (size_t rank = 0; rank < fills.size() && failure.empty(); ++rank) {
            const Json word = parse_message(fills[rank]);
            const auto text = [&](const char* key) { return word.at(key).get<std::string>(); };
            if (const std::string said = text("failure"); !said.empty())
                failure = fmt::format("rank {}: {}", rank, said);
            if (foreign.empty()) foreign = text("foreign");
            if (damage.empty()) damage = text("damage");
            if (word.contains("names"))
                for (const Json& name : word["names"]) names.push_back(name.get<std::string>());
        }
        if (!failure.empty()) return;
        if (!some && foreign.empty() && damage.empty()) foreign = beyond(Manifest::root_of(store_, step), names);
        if (foreign.empty()) return;
        if (std::string found = belied(store_, step); !found.empty()) damage = std::move(found);
    });
    if (!problem.empty() && failure.empty()) failure = "rank 0: " + problem;
    if (!failure.empty() || !damage.empty()) foreign.clear();
    if (!failure.empty()) damage.clear();
    return message_text({{"failure", failure}, {"foreign", foreign}, {"damage", damage}});
}

/// Reads a step into `state` on every rank. Returns the damage that the lowest rank found; "" if there is none. Throws
/// if a rank cannot read for another reason, because the checkpoint may be valid then.
std::string Restore::fill_from(int64_t step, std::span<const StateValue> state, bool some, Restored& restored) {
    const std::vector<std::string> fills = rounds_.to_first("filled", fill(step, state, some, restored));
    const Json verdict = parse_message(rounds_.from_first("fills", rank_ == 0 ? judge_fills(step, fills, some) : ""));
    if (const auto hindered = verdict.at("failure").get<std::string>(); !hindered.empty())
        throw Error(fmt::format("cannot restore step {} from {}: {}\n  the checkpoint may be valid: fix this error, "
                                "and start again",
                                step, store_.place(), hindered),
                    Fault::failed);
    if (const auto other = verdict.at("foreign").get<std::string>(); !other.empty())
        throw Error(
            fmt::format("the checkpoint of step {} in {} is from another program: {}\n  choose another folder "
                        "for this run, or restore the script that made it",
                        step, store_.place(), other));
    return verdict.at("damage").get<std::string>();
}

std::optional<Restored> Restore::into(std::span<const StateValue> state, bool some, int64_t from) {
    const Json found = parse_message(rounds_.from_first("restore", rank_ == 0 ? look() : ""));
    if (const auto problem = found.at("problem").get<std::string>(); !problem.empty())
        throw Error(fmt::format("cannot restore from {}: rank 0: {}", store_.place(), problem), Fault::failed);
    std::vector<std::string> unusable;
    for (const Json& stray : found.at("strays")) {
        const auto what = stray[0].get<std::string>();
        const bool lost = stray[1].get<bool>();  // whether the entry may have been a checkpoint
        if (lost) unusable.push_back(what);
        notes_.push_back((lost ? "passed over: " : "") + what);
    }
    if (from >= 0) return chosen(from, state, found, some);
    Restored restored;
    bool suspect = false;
    const auto pass_over = [&](int64_t step, const std::string& how, const std::string& why) {
        passed_over_.insert(step);
        restored.passed_over.push_back(how + ", an older checkpoint is used: " + why);
        unusable.push_back(why);
    };
    for (const Json& entry : found.at("steps")) {
        const auto step = entry[0].get<int64_t>();
        if (const auto mark = entry[1].get<std::string>(); !mark.empty()) {
            pass_over(step, "suspect", fmt::format("step {} is marked: {}", step, quote(trim(mark))));
            suspect = true;
            continue;
        }
        const std::string damage = fill_from(step, state, some, restored);
        if (!damage.empty()) {
            pass_over(step, "damaged", damage);
            continue;
        }
        restored.step = step;
        return restored;
    }
    if (unusable.empty()) return std::nullopt;
    throw Error(
        (suspect ? "no checkpoint in " + store_.place() + " can be used"
                 : "every checkpoint in " + store_.place() + " is damaged or of another version") +
            "\n  " + join(unusable, "\n  ") + "\n  put a good one back, or start over with --fresh" +
            (suspect ? "; `orrery checkpoints unmark` removes a mark, so that the next start can use that step" : ""),
        Fault::failed);
}

Restored Restore::chosen(int64_t from, std::span<const StateValue> state, const Json& found, bool some) {
    Restored restored;
    std::vector<int64_t> there;
    std::string why = "there is no such checkpoint";
    for (const Json& entry : found.at("steps")) {
        const auto step = there.emplace_back(entry[0].get<int64_t>());
        const auto mark = entry[1].get<std::string>();
        if (step == from) why = mark.empty() ? "" : fmt::format("it is marked as suspect ({})", printable(mark));
        if (step <= from) continue;
        passed_over_.insert(step);
        if (mark.empty()) restored.newer.push_back(step);
    }
    if (why.empty()) why = fill_from(from, state, some, restored);
    if (!why.empty()) refuse_step("--from-step", from, why, store_.place(), there);
    restored.step = from;
    return restored;
}

}  // namespace orrery
