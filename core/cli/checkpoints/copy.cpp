#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/env.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/checkpoints/subcommands.h"
#include "cli/run_record/kept_script.h"
#include "run/checkpoint/retain/copy.h"

namespace orrery {
namespace {

std::optional<Mesh> mesh_of(const std::string& text) {
    if (text.empty()) return std::nullopt;
    std::vector<Axis> axes;
    for (const std::string& part : split(text, ',')) {
        const size_t equals = part.find('=');
        Axis axis{std::string(trim(part.substr(0, equals))), 0, false};
        if (equals != std::string::npos) {
            const std::string size(trim(part.substr(equals + 1)));
            const auto [end, problem] = std::from_chars(size.data(), size.data() + size.size(), axis.size);
            if (problem != std::errc() || end != size.data() + size.size()) axis.size = 0;
        }
        constexpr int64_t most = 1'000'000;
        if (axis.name.empty() || axis.size < 1 || axis.size > most)
            throw Error(fmt::format("--mesh {}: expected axes and their sizes, for example dp=2,tp=2", quote(text)));
        axes.push_back(std::move(axis));
    }
    try {
        return Mesh(std::move(axes));
    } catch (const Error& problem) {
        throw Error(fmt::format("--mesh {}: {}", quote(text), problem.what()));
    }
}

namespace fs = std::filesystem;

/// The run's folder NAME that a copy to NAME/checkpoints makes, if NAME has nothing else: with script, configuration,
/// tokenizer and record for exports of another run. Until it has all of that and the step, its configuration is called
/// config.toml.unfinished, so that the next copy to it finishes what a killed one left.
class NewRun {
public:
    /// `run`: the folder of the other run. `to`: the copy's destination. nullopt: it is not such a place.
    static std::optional<NewRun> of(const std::string& run, const std::string& to) {
        fs::path path = fs::path(to).lexically_normal();
        if (!path.has_filename()) path = path.parent_path();
        if (path.filename() != "checkpoints") return std::nullopt;
        NewRun made(run, path.has_parent_path() ? path.parent_path() : fs::path("."));
        std::error_code missing;
        made.begun_ = fs::is_regular_file(made.unfinished(), missing);
        for (const auto& entry : fs::directory_iterator(made.folder_, missing)) {
            const std::string name = entry.path().filename();
            const bool own = name == path.filename() || name.starts_with(unfinished_config) ||
                             name == FolderLock::job || name == FolderLock::launcher;
            if (!own && !made.begun_) return std::nullopt;
        }
        return made;
    }

    std::string folder() const { return folder_.string(); }
    /// Whether an earlier copy began to make it and was killed.
    bool begun() const { return begun_; }
    /// Also removes what a killed copy left of the other files. Call it with the folder locked.
    void begin() const {
        if (fs::exists(folder_ / "config.toml"))
            throw Error(fmt::format("{} has become a run's folder meanwhile\n  run the command again", folder()));
        copy(run_ / "config.toml", unfinished());
        std::vector<fs::path> left;
        if (begun_)
            for (const auto& entry : fs::directory_iterator(folder_)) left.push_back(entry.path());
        for (const fs::path& path : left) {
            const std::string name = path.filename();
            if (name == "lua" || name == "tokenizer" || name.find(".new.") != name.npos) fs::remove_all(path);
        }
    }
    /// Takes begin() back, unless an earlier copy began it as well.
    void drop() const {
        std::error_code ignored;
        if (!begun_) fs::remove(unfinished(), ignored);
    }
    void finish() const {
        for (const char* folder : {"lua", "tokenizer"})
            if (fs::is_directory(run_ / folder))
                for (const auto& entry : fs::recursive_directory_iterator(run_ / folder))
                    if (entry.is_regular_file()) copy(entry.path(), folder_ / entry.path().lexically_relative(run_));
        for (const char* file : {"script.lua", "published.json"})
            if (fs::is_regular_file(run_ / file)) copy(run_ / file, folder_ / file);
        std::error_code problem;
        fs::rename(unfinished(), folder_ / "config.toml", problem);
        if (problem)
            throw Error(fmt::format("cannot rename {} to config.toml: {}", unfinished().string(), problem.message()),
                        Fault::failed);
    }

private:
    NewRun(fs::path run, fs::path folder) : run_(std::move(run)), folder_(std::move(folder)) {}

    fs::path unfinished() const { return folder_ / unfinished_config; }
    static void copy(const fs::path& file, const fs::path& target) {
        const auto env = system_env();
        env->make_folders(target.parent_path().string());
        env->replace_file(target.string(), env->read_file(file.string()));
    }

    fs::path run_, folder_;
    bool begun_ = false;
};

/// Copies the step and, if `made` is given, makes the run's folder around it.
StepCopy copy_into(StorePlace& place, StorePlace& to, int64_t step, CopyOptions options,
                   const std::optional<NewRun>& made) {
    options.finishes = made && made->begun();
    if (!made || options.only_look) return copy_step(place.store(), step, to.store(), options);
    const WholeFolderLock lock(made->folder());
    made->begin();
    StepCopy copy;
    try {
        copy = copy_step(place.store(), step, to.store(), options);
    } catch (...) {
        made->drop();
        throw;
    }
    made->finish();
    return copy;
}

}  // namespace

int copy_checkpoint(StorePlace& place, const CheckpointsCommand& command) {
    CopyOptions options;
    options.mesh = mesh_of(command.mesh);
    options.only_look = command.dry_run;
    place.require(command.step);
    StorePlace to(command.to, command.to_store, command.sets, false);
    std::error_code none;
    if (place.kind() == to.kind() && std::filesystem::equivalent(place.store().place(), to.store().place(), none))
        throw Error(fmt::format("copy: --to {} is the store that step {} is copied from\n  choose another destination",
                                command.to, command.step));
    std::unique_ptr<WholeFolderLock> lock;
    std::unique_ptr<FolderLock> step_lock;
    if (!command.dry_run) {
        lock = to.lock();
        step_lock = to.lock_step(command.step);
    }
    const bool makes = place.is_run() && !to.is_run() && place.kind() == to.kind() && to.store().is_folder();
    const std::optional<NewRun> made = makes ? NewRun::of(place.run(), command.to) : std::nullopt;
    const StepCopy copy = copy_into(place, to, command.step, options, made);
    const std::string mesh = copy.resharded ? options.mesh->text() : "";
    if (command.json) {
        Json answer = about(place);
        answer["step"] = command.step;
        answer["to"] = about(to);
        answer["dry_run"] = command.dry_run;
        answer["resharded"] = copy.resharded;
        answer["bytes"] = copy.bytes;
        if (!copy.resharded || !command.dry_run) answer["objects"] = copy.objects;
        if (made) answer["run"] = made->folder();
        print_json(answer);
        return 0;
    }
    const std::string laid =
        copy.resharded ? " for mesh " + (mesh.empty() ? "of one rank" : mesh) : ", object by object";
    if (command.dry_run)
        std::printf("step %lld of %s would be copied to %s%s: %s\n", static_cast<long long>(command.step),
                    place.store().place().c_str(), to.store().place().c_str(), laid.c_str(),
                    bytes_text(copy.bytes).c_str());
    else
        std::printf("copied step %lld of %s to %s%s: %s, %s, verified by reading it back\n",
                    static_cast<long long>(command.step), place.store().place().c_str(), to.store().place().c_str(),
                    laid.c_str(), plural(copy.objects, "object").c_str(), bytes_text(copy.bytes).c_str());
    if (made)
        std::printf("%s %s, with the script and configuration of %s\n", made->folder().c_str(),
                    command.dry_run ? "would become a run's folder" : "is a run's folder now", place.run().c_str());
    return 0;
}

}  // namespace orrery
