#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>

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
            throw Error(fmt::format("--mesh {}: expected axes and their sizes, as dp=2,tp=2", quote(text)));
        axes.push_back(std::move(axis));
    }
    try {
        return Mesh(std::move(axes));
    } catch (const Error& problem) {
        throw Error(fmt::format("--mesh {}: {}", quote(text), problem.what()));
    }
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
        throw Error(
            fmt::format("copy: --to {} is where step {} lies already\n  name another place", command.to, command.step));
    std::unique_ptr<WholeFolderLock> lock;
    std::unique_ptr<FolderLock> step_lock;
    if (!command.dry_run) {
        lock = to.lock();
        step_lock = to.lock_step(command.step);
    }
    const StepCopy copy = copy_step(place.store(), command.step, to.store(), options);
    const std::string mesh = copy.resharded ? options.mesh->text() : "";
    if (command.json) {
        Json answer = about(place);
        answer["step"] = command.step;
        answer["to"] = about(to);
        answer["dry_run"] = command.dry_run;
        answer["resharded"] = copy.resharded;
        answer["bytes"] = copy.bytes;
        if (!copy.resharded || !command.dry_run) answer["objects"] = copy.objects;
        print_json(answer);
        return 0;
    }
    const std::string laid =
        copy.resharded ? " for mesh " + (mesh.empty() ? "of one rank" : mesh) : ", object by object";
    if (command.dry_run)
        std::printf("step %lld of %s would be written to %s%s: %s\n", static_cast<long long>(command.step),
                    place.store().place().c_str(), to.store().place().c_str(), laid.c_str(),
                    bytes_text(copy.bytes).c_str());
    else
        std::printf("step %lld of %s is in %s%s: %s, %s, read back\n", static_cast<long long>(command.step),
                    place.store().place().c_str(), to.store().place().c_str(), laid.c_str(),
                    plural(copy.objects, "object").c_str(), bytes_text(copy.bytes).c_str());
    return 0;
}

}  // namespace orrery
