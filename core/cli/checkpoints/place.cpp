#include "cli/checkpoints/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/load.h"
#include "run/checkpoint/restore/chosen_step.h"
#include "run/settings.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Returns the run's folder, if `where` is it or its checkpoints/; otherwise "".
std::string run_of(const std::string& where) {
    std::error_code ignored;
    fs::path path = fs::path(where).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (fs::is_regular_file(path / "config.toml", ignored)) return path.string();
    if (path.filename() != "checkpoints") return "";
    const fs::path above = path.has_parent_path() ? path.parent_path() : fs::path(".");
    return fs::is_regular_file(above / "config.toml", ignored) ? above.string() : "";
}

/// Names the run or step that the path `where` is inside; "": none.
std::string lies_in(const std::string& where) {
    std::error_code ignored;
    fs::path path = fs::weakly_canonical(fs::absolute(where, ignored), ignored);
    if (!path.has_filename()) path = path.parent_path();
    for (fs::path at = path; !at.empty(); at = at.parent_path()) {
        if (fs::is_regular_file(at / "config.toml", ignored) && fs::is_directory(at / "checkpoints", ignored))
            return "the run " + at.string();
        if (at.filename().string().starts_with("step-") && fs::exists(at / "manifest.json", ignored))
            return "the checkpoint " + at.string();
        if (at == at.parent_path()) break;
    }
    return "";
}

/// Throws Error for a path at which there cannot be checkpoints without a run. If `there`, it must be a folder; if not,
/// it will be written and must not be inside a run or step.
void check_folder(const std::string& where, bool there) {
    std::error_code ignored;
    if (there && !fs::is_directory(where, ignored))
        throw Error(
            fmt::format("{} is not a folder\n  name the folder of a run, for example runs/gpt, or a store and its "
                        "kind",
                        where));
    if (const std::string inside = there ? "" : lies_in(where); !inside.empty())
        throw Error(
            fmt::format("{} is inside {}, where no store searches for checkpoints\n"
                        "  name the run's folder itself, or a folder outside it",
                        where, inside));
}

Config read_config(const std::string& run, const std::vector<std::string>& sets) {
    return load_config(run.empty() ? "" : run + "/config.toml", sets);
}

}  // namespace

StorePlace::StorePlace(const std::string& where, const std::string& kind, const std::vector<std::string>& sets,
                       bool there)
    : run_(run_of(where)), config_(read_config(run_, sets)) {
    Config& run = config_.table("run");
    const Origin asked = kind.empty() ? run.where("store") : Origin{"", "--store " + kind, 0, 0};
    kind_ = kind.empty() ? run.text("store", "posix") : kind;
    policy_ = read_retention(config_);
    loader_.emplace(and_plugin_folders(config_.table("plugins").texts("path")));
    loader_->load("store", kind_, registry_, asked);
    Config& options = config_.table("store").table(kind_);
    store_ = registry_.store(kind_, asked)(options, run_.empty() ? where : run_ + "/checkpoints");
    options.reject_unused();
    if (run_.empty() && store_->is_folder()) check_folder(where, there);
}

void StorePlace::require(int64_t step) { require_there("step", step, *store_); }

std::unique_ptr<FolderLock> StorePlace::lock_step(int64_t step) const {
    return run_.empty() && store_->is_folder() ? FolderLock::of_step(store_->place(), step) : nullptr;
}

std::unique_ptr<WholeFolderLock> StorePlace::lock() const {
    return run_.empty() ? nullptr : std::make_unique<WholeFolderLock>(run_);
}

}  // namespace orrery
