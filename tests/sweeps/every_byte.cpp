// Damages a checkpoint in every way that one place of it can be: each byte flipped, each file cut at each length, each
// file missing, swapped with each other one, or of the step before. `every_byte WORK STRIDE`: each STRIDE-th byte and
// length. Each damage is found by damage_of and names the step; a start goes on from the step before. Exit code 1 with
// the first that is not.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "small_run.h"
#include "store/damage.h"

using namespace orrery;
using namespace orrery::sweeps;
namespace fs = std::filesystem;

namespace {

std::string contents(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

struct Sweep {
    const TestStore& stores;
    std::string place;
    std::map<std::string, int> counts;
    int starts = 0;

    /// After `kind` was done to `file` of step 20.
    void expect_found(const std::string& kind, const std::string& what, bool start) {
        ++counts[kind];
        const auto store = stores.open(place);
        const std::vector<int64_t> steps = store->steps();
        const bool visible = std::find(steps.begin(), steps.end(), 20) != steps.end();
        if (visible) {
            const std::string said = read_back(*store, 20);
            if (said.find("step 20") == std::string::npos && said.find("step-00000020") == std::string::npos)
                throw Error(fmt::format("{} {}: {}", kind, what, said.empty() ? "not found" : "named as: " + said));
        }
        if (!start) return;
        ++starts;
        const std::string problems = on_two([&](int64_t rank, const Gather& gather) {
            const auto own = stores.open(place);
            if (const int64_t step = restore_newest(*own, dp2, rank, gather); step != 10)
                throw Error(fmt::format("{} {}: it goes on from step {}", kind, what, step));
        });
        if (!problems.empty()) throw Error(problems);
    }
};

}  // namespace

int main(int count, char** words) {
    if (count != 3) return 2;
    try {
        const size_t stride = std::stoul(words[2]);
        const fs::path place = fs::path(words[1]) / "ckpt", newer = place / "step-00000020",
                       older = place / "step-00000010";
        fs::remove_all(words[1]);
        const TestStore stores("posix");
        const std::string problems = on_two([&](int64_t rank, const Gather& gather) {
            const auto store = stores.open(place.string());
            Checkpoints saver(*store, dp2, rank, gather, options);
            for (const int64_t step : {10, 20}) {
                const State state(dp2, rank, step);
                saver.save(step, state.values, host_of(step));
            }
        });
        if (!problems.empty()) throw Error(problems);
        std::vector<std::string> files;
        for (const auto& entry : fs::directory_iterator(newer))
            if (entry.path().filename() != ".orrery-checkpoint") files.push_back(entry.path().filename());
        std::sort(files.begin(), files.end());
        Sweep sweep{stores, place.string(), {}, 0};
        for (const std::string& file : files) {
            const fs::path path = newer / file;
            const std::string sound = contents(path);
            // What is linked lies in the older step too: it is changed here alone.
            const auto damage = [&](const std::string& kind, const std::string& what, const std::string& bytes,
                                    bool start) {
                fs::remove(path);
                put(path, bytes);
                sweep.expect_found(kind, file + " " + what, start);
            };
            for (size_t at = 0; at < sound.size(); at += stride) {
                std::string bytes = sound;
                bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
                damage("flipped", fmt::format("byte {}", at), bytes, at % (stride * 97) == 0);
            }
            for (size_t length = 0; length < sound.size(); length += stride)
                damage("cut", fmt::format("at {}", length), sound.substr(0, length), length % (stride * 97) == 0);
            if (!file.ends_with(".json")) damage("grown", "by a byte", sound + " ", true);  // white space is none's
            for (const std::string& other : files)
                if (const std::string bytes = contents(newer / other); other != file && bytes != sound)
                    damage("swapped", "with " + other, bytes, true);
            if (const std::string bytes = fs::exists(older / file) ? contents(older / file) : sound; bytes != sound)
                damage("stale", "of step 10", bytes, true);
            fs::remove(path);
            sweep.expect_found("missing", file, true);
            put(path, sound);
        }
        const auto store = stores.open(place.string());
        if (const std::string wrong = judge(*store, {20, 2}); !wrong.empty()) throw Error("put back: " + wrong);
        int all = 0;
        for (const auto& [kind, number] : sweep.counts) std::printf("%s %d\n", kind.c_str(), number), all += number;
        std::printf("%d damages of %zu files, %d starts: all found\n", all, files.size(), sweep.starts);
        fs::remove_all(words[1]);
        return 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
