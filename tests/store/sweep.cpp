// Damage by chance to a folder with three checkpoints: the newest sound one is used and what is damaged is named, or
// the start is refused with what to do. 100 folders, or 2,000 and a table in the file that ORRERY_LONG names.
#include <cstdlib>

#include <fmt/format.h>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "damage.h"
#include "states.h"

using namespace orrery;
namespace fs = std::filesystem;

namespace {

constexpr int64_t good_steps[] = {10, 20, 30};

/// Three checkpoints as they were saved, in memory.
struct Originals {
    std::map<std::string, std::string> files;  ///< by path below the place

    explicit Originals(const fs::path& place) {
        for (const auto& entry : fs::recursive_directory_iterator(place))
            if (entry.is_regular_file())
                files[fs::relative(entry.path(), place).string()] = Damage::contents(entry.path());
    }
    void write(const fs::path& place) const {
        for (const auto& [path, bytes] : files) {
            fs::create_directories((place / path).parent_path());
            Damage::write(place / path, bytes);
        }
    }
};

enum class Is : uint8_t { sound, suspect, signed_anew, damaged };

/// Judged by bytes alone.
Is judge(const fs::path& place, int64_t step, const Originals& originals) {
    const std::string name = Damage::name_of(step);
    if (!fs::is_directory(fs::symlink_status(place / name))) return Is::damaged;
    bool known = false, manifest = true;
    for (const auto& [path, bytes] : originals.files) {
        if (!path.starts_with(name + "/") || path.ends_with("/.orrery-checkpoint")) continue;
        known = true;
        const bool same =
            fs::is_regular_file(fs::symlink_status(place / path)) && Damage::contents(place / path) == bytes;
        if (!same && !path.ends_with("/manifest.json")) return Is::damaged;
        manifest = manifest && same;
    }
    if (!known) return Is::damaged;
    if (fs::exists(place / name / "suspect.txt")) return manifest ? Is::suspect : Is::damaged;
    if (manifest) return Is::sound;
    const std::string text = Damage::contents(place / name / "manifest.json");
    if (!Json::accept(text)) return Is::damaged;
    Json json = Json::parse(text);
    if (!json.is_object() || !json.contains("digest") || json["step"] != step) return Is::damaged;
    const Json digest = json["digest"];
    json.erase("digest");
    return sha256(json.dump()) == digest ? Is::signed_anew : Is::damaged;
}

/// All that has the name of a step, newest first.
std::vector<int64_t> claims(const fs::path& place) {
    std::vector<int64_t> steps;
    for (const auto& entry : fs::directory_iterator(place)) {
        const std::string name = entry.path().filename();
        const std::string digits = name.starts_with("step-") ? name.substr(5) : "";
        if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos)
            steps.push_back(std::stoll(digits));
    }
    std::sort(steps.rbegin(), steps.rend());
    return steps;
}

int64_t count_foreign(const fs::path& place) {
    int64_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(place))
        count += entry.is_regular_file() && !entry.is_symlink() && Damage::contents(entry.path()) == Damage::foreign;
    return count;
}

bool names(const std::vector<std::string>& texts, int64_t step) {
    const std::string number = "step " + std::to_string(step);
    for (const std::string& text : texts)
        for (const std::string& way : {number + ",", number + ":", number + " ", Damage::name_of(step) + " "})
            if (text.find(way) != std::string::npos) return true;
    return false;
}

class Case {
public:
    Case(const TestStore& stores, fs::path place, const Originals& originals)
        : stores_(stores), place_(std::move(place)), originals_(originals) {}

    /// "" when all is as promised. `ended`: how.
    std::string run(std::string& ended) {
        const Outcome outcome = restore(stores_, place_, model(dp2), dp2);
        const std::string wrong = look(outcome, ended);
        return wrong.empty() ? go_on(outcome) : wrong;
    }

private:
    std::string look(const Outcome& outcome, std::string& ended) const {
        std::vector<std::string> said = outcome.passed_over;
        said.insert(said.end(), outcome.notes.begin(), outcome.notes.end());
        said.push_back(outcome.problems[0]);
        int64_t expected = -1, newest = -1;
        for (const int64_t step : claims(place_)) {
            newest = std::max(newest, step);
            const Is is = judge(place_, step, originals_);
            if (is == Is::sound || (is == Is::signed_anew && outcome.step == step)) {
                expected = step;
                break;
            }
            if (!names(said, step)) return fmt::format("nothing is said of step {}: {}", step, join(said, "; "));
        }
        const bool threw = outcome.problems != quiet(dp2);
        if (expected >= 0 || newest < 0) {
            ended = newest < 0 ? "nothing left" : expected == newest ? "the newest used" : "an older one used";
            if (threw) return "refused: " + outcome.problems[0];
            if (outcome.step != expected) return "step " + std::to_string(outcome.step) + " is used";
            if (newest < 0) return "";
            // The model's state of step 10 N was drawn with the seed N.
            return outcome.equal && outcome.seed == expected / 10 ? "" : "the state is that of another step";
        }
        ended = "refused";
        for (const std::string& problem : outcome.problems)
            if (problem.find("--fresh") == std::string::npos) return "no word of what to do: " + problem;
        return "";
    }

    /// The run goes on, is blocked by nothing and deletes nothing that is not its own.
    std::string go_on(const Outcome& outcome) const {
        if (outcome.step < 0) return "";
        const int64_t next = outcome.step + 10, foreign = count_foreign(place_);
        for (const std::string& problem : save(stores_, place_, model(dp2), dp2, next, 9))
            if (!problem.empty()) return "blocked: " + problem;
        const Outcome again = restore(stores_, place_, model(dp2), dp2);
        if (again.step != next || !again.equal || again.seed != 9) return "what was saved next is not used";
        return count_foreign(place_) == foreign ? "" : "something that is not Orrery's is gone";
    }

    const TestStore& stores_;
    fs::path place_;
    const Originals& originals_;
};

/// Kinds of damage by how it ended.
class Table {
public:
    void add(const std::string& kind, const std::string& ended) { ++counts_[kind][ended]; }
    std::string text() const {
        const std::vector<std::string> ends{"the newest used", "an older one used", "refused", "nothing left", "wrong"};
        std::string all = fmt::format("{:<28}", "damage");
        for (const std::string& end : ends) all += fmt::format(" {:>17}", end);
        std::map<std::string, int> sums;
        for (const auto& [kind, counts] : counts_) {
            all += fmt::format("\n{:<28}", kind);
            for (const std::string& end : ends) {
                const auto found = counts.find(end);
                const int count = found == counts.end() ? 0 : found->second;
                sums[end] += count;
                all += fmt::format(" {:>17}", count);
            }
        }
        all += fmt::format("\n{:<28}", "all");
        for (const std::string& end : ends) all += fmt::format(" {:>17}", sums[end]);
        return all + "\n";
    }

private:
    std::map<std::string, std::map<std::string, int>> counts_;
};

}  // namespace

TEST_CASE("whatever happens to a folder of checkpoints, the newest sound one is used and the rest is named") {
    const char* table_file = std::getenv("ORRERY_LONG");
    const int folders = table_file ? 2000 : 100;
    const TestStore stores("posix");
    const Scratch scratch("checkpoint_sweep");
    CheckpointOptions three = small;
    three.keep = 3;
    for (const int64_t step : good_steps)
        REQUIRE(save(stores, scratch.path, model(dp2), dp2, step, static_cast<int>(step / 10), three) == quiet(dp2));
    const Originals originals(scratch.path);
    Table table;
    std::string problems;
    int wrong = 0;
    for (int number = 0; number < folders; ++number) {
        fs::remove_all(scratch.path);
        originals.write(scratch.path);
        Damage damage(scratch.path, static_cast<unsigned>(number));
        const auto& kinds = Damage::kinds();
        const auto once = [&](size_t kind) {
            return damage.apply(kinds[kind % kinds.size()]) ? kinds[kind % kinds.size()] : "";
        };
        // One of each kind in turn, and every other time up to four more.
        std::string what, ended;
        while (what.empty()) what = once(static_cast<size_t>(number));
        for (int64_t more = number % 2 ? damage.draw(1, 4) : 0; more-- > 0;)
            if (const std::string next = once(static_cast<size_t>(damage.draw(0, 999))); !next.empty())
                what += ", " + next;
        const std::string problem = Case(stores, scratch.path, originals).run(ended);
        table.add(what.find(", ") == std::string::npos ? what : "two to five of these",
                  problem.empty() ? ended : "wrong");
        if (problem.empty() || ++wrong > 20) continue;
        problems += fmt::format("folder {}: {}: {}\n", number, what, problem);
    }
    if (table_file) Damage::write(table_file, table.text());
    INFO(problems << table.text());
    CHECK(wrong == 0);
}
