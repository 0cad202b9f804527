// enumerate RECORD ROOT PLACE WORK COUNT [--expect-loss]: what a power cut may leave of a recorded run, COUNT different
// states of it or all there are, each made below WORK and judged as a start would: no commit is lost, none damaged, and
// two ranks go on. Exit code 1 with the call and the state where one is not; with --expect-loss (a planted bug was
// recorded) where all are sound.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/hash.h"
#include "crash_states.h"
#include "small_run.h"

using namespace orrery;
using namespace orrery::sweeps;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& root, const Tree& tree) {
    fs::remove_all(root);
    fs::create_directories(root);
    for (const auto& [path, contents] : tree) {
        if (path.ends_with('/'))
            fs::create_directories(root / path);
        else
            std::ofstream(root / path, std::ios::binary) << contents;
    }
}

std::string digest_of(const Tree& tree) {
    Sha256 digest;
    for (const auto& [path, contents] : tree) {
        const std::string text = fmt::format("{}\n{}\n", path, contents.size()) + contents;
        digest.update(std::as_bytes(std::span(text.data(), text.size())));
    }
    return digest.hex();
}

/// Which of the pending calls have reached the disk, in the try-th state of a moment: all, none, each one alone, all
/// but each one, then by chance.
std::vector<bool> choose(size_t pending, size_t number, std::mt19937& random) {
    if (number == 0) return std::vector<bool>(pending, true);
    if (number == 1) return std::vector<bool>(pending, false);
    std::vector<bool> kept(pending, number >= 2 + pending);
    if (number < 2 + pending)
        kept[number - 2] = true;
    else if (number < 2 + 2 * pending)
        kept[number - 2 - pending] = false;
    else
        for (size_t i = 0; i < pending; ++i) kept[i] = random() % 2 == 0;
    return kept;
}

/// The first thing in a step's place that is not the store's, "" when there is none.
std::string others(CheckpointStore& store) {
    for (const Stray& stray : store.strays())
        if (stray.step >= 0) return stray.what;
    return "";
}

struct Sweep {
    const TestStore& stores;
    fs::path work, place;  ///< place: below work
    size_t most;
    std::set<std::string> seen;
    size_t started_anew = 0;
    std::string wrong;

    /// Judges one state; false when there is nothing new in it.
    bool look(const Tree& tree, const Promise& promise) {
        if (!seen.insert(digest_of(tree) + fmt::format(" {}", promise.newest)).second) return false;
        write(work, tree);
        const auto store = stores.open((work / place).string());
        wrong = judge(*store, promise);
        // A removal that was cut off may look like what others left, until the next start's commit finishes it.
        if (wrong.empty() && (seen.size() % 16 == 0 || !others(*store).empty())) {
            ++started_anew;
            try {
                save_again(stores, (work / place).string());
                if (const std::string stays = others(*store); !stays.empty())
                    wrong = "the next start leaves " + stays;
            } catch (const std::exception& problem) {
                wrong = problem.what();
            }
        }
        return true;
    }
};

}  // namespace

int main(int count, char** words) {
    if (count < 6) return 2;
    try {
        const std::vector<Call> calls = read_record(words[1]);
        const std::string root = words[2];
        const size_t most = std::stoul(words[5]);
        const bool expect_loss = count > 6;
        const TestStore stores("posix");
        Sweep sweep{stores, words[4], fs::path(words[3]).lexically_relative(root), most, {}, 0, ""};
        std::mt19937 random(16);
        // Rounds over all moments, so that each has its share; a round that finds nothing new is the last.
        size_t states = 0, moments = 0;
        for (size_t number = 0, idle = 0; sweep.seen.size() < most && idle < 40 && sweep.wrong.empty(); ++number) {
            const size_t before = sweep.seen.size();
            Disk disk(root);
            Promise promise;
            moments = 0;
            for (const Call& call : calls) {
                if (call.what == "note" && call.path == "acknowledged")
                    promise = {std::stoll(call.other), std::min<size_t>(2, promise.count + 1)};
                disk.apply(call);
                ++moments;
                ++states;
                sweep.look(disk.after(choose(disk.pending(), number, random), static_cast<int>(number % 3)), promise);
                if (!sweep.wrong.empty()) {
                    std::printf("a power cut behind call %zu, %s %s %s, state %zu: %s\n", moments, call.what.c_str(),
                                call.path.c_str(), call.other.c_str(), number, sweep.wrong.c_str());
                    break;
                }
                if (sweep.seen.size() >= most) break;
            }
            idle = sweep.seen.size() == before ? idle + 1 : 0;
        }
        std::printf("%zu calls, %zu states made, %zu different ones judged, %zu started anew: %s\n", calls.size(),
                    states, sweep.seen.size(), sweep.started_anew, sweep.wrong.empty() ? "all sound" : "one is not");
        fs::remove_all(words[4]);
        return sweep.wrong.empty() == expect_loss ? 1 : 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
