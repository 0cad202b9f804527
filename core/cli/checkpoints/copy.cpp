#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>

#include "base/env.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/checkpoints/subcommands.h"
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

/// Makes the folder above a copy in NAME/checkpoints a run's, if it has nothing else: with script, configuration,
/// tokenizer and record for exports of the folder `run`. Returns NAME; "": it is not such a place.
std::string make_run(const std::string& run, const std::string& to) {
    fs::path path = fs::path(to).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (path.filename() != "checkpoints") return "";
    const fs::path from = run, made = path.has_parent_path() ? path.parent_path() : fs::path(".");
    for (const auto& entry : fs::directory_iterator(made))
        if (entry.path().filename() != path.filename()) return "";
    const auto env = system_env();
    const auto copy = [&](const fs::path& file) {
        const fs::path target = made / file.lexically_relative(from);
        env->make_folders(target.parent_path().string());
        env->replace_file(target.string(), env->read_file(file.string()));
    };
    for (const char* folder : {"lua", "tokenizer"})
        if (fs::is_directory(from / folder))
            for (const auto& entry : fs::recursive_directory_iterator(from / folder))
                if (entry.is_regular_file()) copy(entry.path());
    for (const char* file : {"script.lua", "published.json", "config.toml"})  // config.toml, which makes it a run, last
        if (fs::is_regular_file(from / file)) copy(from / file);
    return made.string();
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
    const StepCopy copy = copy_step(place.store(), command.step, to.store(), options);
    const bool makes = !command.dry_run && place.is_run() && !to.is_run() && place.kind() == to.kind();
    const std::string made = makes && to.store().is_folder() ? make_run(place.run(), command.to) : "";
    const std::string mesh = copy.resharded ? options.mesh->text() : "";
    if (command.json) {
        Json answer = about(place);
        answer["step"] = command.step;
        answer["to"] = about(to);
        answer["dry_run"] = command.dry_run;
        answer["resharded"] = copy.resharded;
        answer["bytes"] = copy.bytes;
        if (!copy.resharded || !command.dry_run) answer["objects"] = copy.objects;
        if (!made.empty()) answer["run"] = made;
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
    if (!made.empty())
        std::printf("%s is a run's folder now, with the script and configuration of %s\n", made.c_str(),
                    place.run().c_str());
    return 0;
}

}  // namespace orrery
