// drill save PLACE STEP: writes and commits a step whose contents follow from its number, but for one object that is
// linked from the step before; exit 1 on an error.
// drill save3, save4 PLACE STEP: the same for a generation of the job.
// drill claim PLACE GENERATION: takes it; exit 1 when it, or a newer one, is taken.
// drill check PLACE LEAST: every step that is visible is whole, and there are at least LEAST of them.
// drill list PLACE 0: prints the visible steps.
#include <cstdio>

#include "stores.h"

using namespace orrery;

namespace {

std::string contents(int64_t step, int part) {
    std::string text;
    for (int i = 0; i < 3000 * (part + 1); ++i) text += static_cast<char>(step * 31 + part * 7 + i);
    return text;
}

int save(CheckpointStore& store, int64_t step) {
    store.discard(step);
    for (int part = 0; part < 2; ++part)
        store.put(step, "part-" + std::to_string(part), bytes_of_text(contents(step, part)));
    const std::vector<int64_t> before = store.steps();
    if (before.empty())
        store.put(step, "fixed", bytes_of_text(contents(0, 1)));
    else
        store.link(step, "fixed", before.front(), "fixed");
    store.flush(step);
    store.commit(step, "step " + std::to_string(step));
    const std::vector<int64_t> steps = store.steps();
    for (size_t i = 2; i < steps.size(); ++i) store.remove(steps[i]);
    return 0;
}

int check(CheckpointStore& store, size_t least) {
    const std::vector<int64_t> steps = store.steps();
    for (const int64_t step : steps) {
        if (store.manifest(step) != "step " + std::to_string(step)) throw Error("manifest of " + std::to_string(step));
        for (int part = 0; part < 3; ++part) {
            const std::string expected = part < 2 ? contents(step, part) : contents(0, 1);
            const std::string key = part < 2 ? "part-" + std::to_string(part) : "fixed";
            const bool whole = store.size(step, key) == static_cast<int64_t>(expected.size()) &&
                               text_at(store, step, key, 0, expected.size()) == expected;
            if (!whole) throw Error(key + " of step " + std::to_string(step) + " is damaged");
        }
    }
    if (steps.size() < least) throw Error("only " + std::to_string(steps.size()) + " steps are left");
    return 0;
}

int list(CheckpointStore& store) {
    for (const int64_t step : store.steps()) std::printf("%lld ", static_cast<long long>(step));
    return 0;
}

}  // namespace

int main(int count, char** words) {
    if (count != 4) return 2;
    try {
        const auto store = TestStore("posix").open(words[2]);
        std::string what = words[1];
        if (what == "claim") return store->claim(std::stoll(words[3])) ? 0 : 1;
        if (what.size() == 5 && what.starts_with("save")) {
            store->act_for(what.back() - '0');
            what.pop_back();
        }
        if (what == "list") return list(*store);
        return what == "save" ? save(*store, std::stoll(words[3])) : check(*store, std::stoul(words[3]));
    } catch (const Error& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
