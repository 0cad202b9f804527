#include "cli/dump.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "base/env.h"
#include "base/regular_file.h"
#include "ir/check_program.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "plan/print.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view last_line = "\nend\n";  ///< marks a complete file

std::string number_of(std::string_view pass) {
    int number = 1;
    for (const Pass& known : passes()) {
        if (known.name == pass) break;
        ++number;
    }
    return fmt::format("{:02}", number);
}

}  // namespace

Dump::Dump(std::string folder) : folder_(std::move(folder)) {
    std::error_code ignored;
    if (fs::exists(folder_, ignored) && !(fs::is_directory(folder_, ignored) && fs::is_empty(folder_, ignored)))
        throw Error(fmt::format("--dump: {} exists and is not an empty folder\n  choose a new folder", folder_),
                    Fault::usage);
    try {
        system_env()->make_folders(folder_);
    } catch (const Error& error) {
        throw Error(fmt::format("--dump: {}\n  choose a folder that can be created", error.what()), Fault::usage);
    }
}

std::string Dump::folder_of(const std::string& program, const std::string& step) {
    std::string name = program;
    for (char& c : name)
        if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-')) c = '_';
    if (name.empty() || name.front() == '.') name = "_" + name;
    const int times = ++seen_[{name, step}];
    std::string folder = folder_ + "/" + name + (times == 1 ? "" : fmt::format("~{}", times));
    system_env()->make_folders(folder);
    return folder;
}

void Dump::look(std::string_view pass, const Program& program, const Mesh* mesh) {
    const std::string folder = folder_of(program.name, std::string(pass));
    const std::string file = fmt::format("{}/{}-{}.ir", folder, number_of(pass), pass);
    system_env()->replace_file(file, program_text(program, mesh));
    try {
        check_program(program);
    } catch (const Error& error) {
        throw Error(fmt::format("the pass {} produced an invalid program: {}\n  the program is in {}", pass,
                                error.what(), file));
    }
}

void Dump::plans(const Compiled& compiled, size_t first) {
    const std::vector<const Plan*> all = compiled.plans();
    for (size_t i = first; i < all.size(); ++i) {
        const Plan* plan = all[i];
        const std::string folder = folder_of(plan->program.name, "plan");
        for (size_t k = 0; k < plan->classes.size(); ++k)
            system_env()->replace_file(fmt::format("{}/class-{}.plan", folder, k), print(*plan, k));
    }
}

std::string program_text(const Program& program, const Mesh* mesh) {
    return print(program, mesh) + std::string(last_line.substr(1));
}

std::string plan_text(const Plan& plan, int64_t rank) {
    if (rank < 0) return print(plan);
    if (rank >= plan.mesh.ranks())
        throw Error(fmt::format("--rank {}: ranks are 0 to {}", rank, plan.mesh.ranks() - 1), Fault::usage);
    return print(plan, static_cast<size_t>(&plan.class_of(rank) - plan.classes.data()));
}

std::string checked_text(const std::string& file, const Loader& plugins) {
    constexpr size_t most = size_t{1} << 30;
    const RegularFile in(file);
    if (!in.problem().empty()) throw Error(file + ": " + in.problem() + "\n  name a program that --dump has written");
    std::string text = in.text(most);
    const size_t last = text.size() - std::min(text.size(), last_line.size());
    if (text.substr(last) != last_line)
        throw Error(
            fmt::format("{}: the last line is not \"end\": the file is truncated; dump the program again", file));
    text.resize(last + 1);
    std::optional<Mesh> mesh;
    Registry brought;
    const Program program = parse(text, file, &mesh, plugins.codecs(brought));
    try {
        plugins.load_ops(program, brought);
        check_program(program);
    } catch (const Error& error) {
        throw Error(fmt::format("{}: {}", file, error.what()));
    }
    return program_text(program, mesh ? &*mesh : nullptr);
}

}  // namespace orrery
