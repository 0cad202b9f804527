// Implements `orrery checkpoints verify`, which reads every byte.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/json.h"
#include "base/text.h"
#include "cli/checkpoints/subcommands.h"
#include "run/checkpoint/restore/chosen_step.h"

namespace orrery {
namespace {

struct Found {
    std::vector<std::string> damage;
    int64_t objects = 0, bytes = 0;
    bool gone = false;
};

/// Reads all objects of a checkpoint, also those after a damaged one.
Found look(CheckpointStore& store, int64_t step) {
    Found found;
    try {
        const Manifest manifest = Manifest::of(store, step);
        for (size_t i = 0; i < manifest.objects.size(); ++i) {
            const std::string problem = ObjectReader(store, manifest, static_cast<int64_t>(i)).verify();
            if (!problem.empty()) found.damage.push_back(problem);
            ++found.objects;
            found.bytes += manifest.objects[i].bytes;
        }
    } catch (const Damaged& damage) {
        found.damage.push_back(damage.what());
    } catch (const Error&) {
        if (has_step(store, step)) throw;
    }
    found.gone = !has_step(store, step);
    return found;
}

/// Lists files in the places of steps that are not valid steps. `step`: only in this step's place; -1: in all.
std::vector<Stray> lost(CheckpointStore& store, const std::vector<int64_t>& steps, int64_t step) {
    std::vector<Stray> strays = store.strays();
    std::erase_if(
        strays, [&](const Stray& stray) { return !takes_a_place(stray, steps) || (step >= 0 && stray.step != step); });
    return strays;
}

}  // namespace

int verify_checkpoints(StorePlace& place, const CheckpointsCommand& command) {
    CheckpointStore& store = place.store();
    std::vector<int64_t> steps = store.steps();
    const std::vector<Stray> strays = lost(store, steps, command.step);
    if (command.step >= 0) {
        if (strays.empty()) place.require(command.step);
        steps.assign(strays.empty() ? 1 : 0, command.step);
    }
    if (steps.empty() && strays.empty() && !command.json)
        std::printf("%s holds no checkpoint\n", store.place().c_str());
    Json all = Json::array();
    auto bad = static_cast<int64_t>(strays.size());
    if (!command.json)
        for (const Stray& stray : strays) std::printf("no checkpoint: %s\n", printable(stray.what, 4000).c_str());
    for (const int64_t step : steps) {
        const Found found = look(store, step);
        if (found.gone) {  // damage found in a step that was removed meanwhile does not count
            if (!command.json)
                std::printf("step %lld: not verified, it was removed meanwhile\n", static_cast<long long>(step));
            continue;
        }
        bad += !found.damage.empty();
        all.push_back({{"step", step}, {"objects", found.objects}, {"bytes", found.bytes}, {"damage", found.damage}});
        if (command.json) continue;
        for (const std::string& damage : found.damage) std::printf("damaged: %s\n", damage.c_str());
        if (found.damage.empty())
            std::printf("step %lld: valid, %s, %s match its manifest\n", static_cast<long long>(step),
                        plural(found.objects, "object").c_str(), bytes_text(found.bytes).c_str());
        std::fflush(stdout);
    }
    if (command.json) {
        Json answer = about(place);
        answer["steps"] = std::move(all);
        answer["strays"] = Json::array();
        for (const Stray& stray : strays) answer["strays"].push_back({{"step", stray.step}, {"what", stray.what}});
        print_json(answer);
    }
    return bad > 0 ? 1 : 0;
}

}  // namespace orrery
