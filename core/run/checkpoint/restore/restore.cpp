#include "run/checkpoint/restore/restore.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "run/checkpoint/format/block_reader.h"
#include "run/checkpoint/format/messages.h"
#include "run/checkpoint/format/problem_of.h"
#include "run/checkpoint/format/row_sum.h"
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

/// The blocks of a checkpoint's tensor that a rank's block `own` of a value is read from: itself or, from a checkpoint
/// of other rows, those of some.
std::vector<Block> blocks_of(const ManifestTensor& tensor, const StateValue& value, Block own) {
    const int64_t rows = other_rows(tensor, value), row = rows == 0 ? 0 : own.offset[0];
    if (rows == 0) return {std::move(own)};
    const bool mean = value.other_rows == OtherRows::mean && can_be_added(value.global.dtype);
    const int64_t step = mean ? 1 : value.other_rows == OtherRows::sum ? value.global.shape[0] : rows;
    std::vector<Block> blocks;
    for (int64_t other = mean ? 0 : step == rows ? row % rows : row; other < rows; other += step) {
        blocks.push_back(own);
        blocks.back().offset[0] = other;
    }
    return blocks;
}

void fill_values(CheckpointStore& store, const Manifest& manifest, std::span<const StateValue> state, const Mesh& mesh,
                 int64_t rank) {
    BlockReader reader(store, manifest);
    for (const StateValue& value : state) {
        const ManifestTensor& tensor = *manifest.find(value.name);
        const Tensor& to = value.local;
        const std::span<std::byte> bytes(static_cast<std::byte*>(to.data), static_cast<size_t>(to.bytes()));
        const std::vector<Block> blocks = blocks_of(tensor, value, box_of(value, mesh, rank));
        if (blocks.size() == 1) {
            reader.read(tensor, blocks[0], bytes);
            continue;
        }
        RowSum sum(to.count());
        for (const Block& block : blocks) {
            reader.read(tensor, block, bytes);
            sum.add(to.dtype, bytes.data());
        }
        const bool adds = value.other_rows == OtherRows::sum;
        sum.write(adds ? 1 : static_cast<double>(blocks.size()), to.dtype, bytes.data());
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
        std::vector<StateValue> there;
        std::vector<Wanted> wanted;
        for (const StateValue& value : state) {
            const ManifestTensor* const tensor = manifest.find(value.name);
            if (!tensor || !takes_over(*tensor, value)) continue;
            there.push_back(value);
            if (value.other_rows != OtherRows::sum && value.other_rows != OtherRows::hints)
                restored.islands = std::max(restored.islands, other_rows(*tensor, value));
            for (Block& block : blocks_of(*tensor, value, box_of(value, mesh_, rank_)))
                wanted.push_back({value.name, std::move(block)});
        }
        manifest.load(store_, wanted);
        try {
            fill_values(store_, manifest, there, mesh_, rank_);
        } catch (const Damaged&) {
            // With all indexes, the error can name the object with contents that the damaged object has.
            fill_values(store_, Manifest::of(store_, step), there, mesh_, rank_);
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

/// On rank 0: combines the messages of all ranks to {"failure", "foreign", "damage"}, of which at most one is not "",
/// and "dropped", a note.
std::string Restore::judge_fills(int64_t step, const std::vector<std::string>& fills, bool some) {
    std::string failure, foreign, damage, dropped;
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
        if (!some && foreign.empty() && damage.empty())
            foreign = beyond(Manifest::root_of(store_, step), names, drop_, dropped);
        if (foreign.empty()) return;
        if (std::string found = belied(store_, step); !found.empty()) damage = std::move(found);
    });
    if (!problem.empty() && failure.empty()) failure = "rank 0: " + problem;
    if (!failure.empty() || !damage.empty()) foreign.clear();
    if (!failure.empty()) damage.clear();
    return message_text({{"failure", failure}, {"foreign", foreign}, {"damage", damage}, {"dropped", dropped}});
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
    if (auto dropped = verdict.at("dropped").get<std::string>(); !dropped.empty()) notes_.push_back(std::move(dropped));
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
