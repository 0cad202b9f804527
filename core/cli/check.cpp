#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/script_host.h"
#include "ir/describe.h"
#include "plan/lint.h"

namespace orrery {
namespace {

/// "wpe.weight, 6.8 KiB: ", of the whole value.
std::string named(const Program& program, ValueId id) {
    return label_of(program, id) + ", " + bytes_text(program.value(id).type.bytes()) + ": ";
}

/// What strategies left as it is, and marks that came after another one's.
void list_marks(const Program& program) {
    for (const Note& note : program.notes())
        std::printf("left: %s%s (%s)\n", note.value == none ? "" : named(program, note.value).c_str(),
                    note.text.c_str(), note.origin.text().c_str());
    for (const Mark& mark : program.ignored())
        std::printf("not taken: %s %s:%s (%s), an earlier mark stays\n", label_of(program, mark.value).c_str(),
                    mark.axis.c_str(), mark.placement.text().c_str(), mark.origin.text().c_str());
}

/// A plan for a cluster is checked where its data is not, and then names none; what is named must be there and sound.
void look_at(const DataSpec& data) {
    if (data.path.empty())
        return void(std::printf("no data: the plan is proved for its shapes; training needs data.path\n"));
    std::error_code ignored;
    if (!std::filesystem::exists(data.path, ignored))
        throw Error(data.origin,
                    fmt::format("no data file {}, seen from {}\n  set data.path to one; to check a plan where its data "
                                "is not, leave the path out (--set data.path=)",
                                data.path, std::filesystem::current_path(ignored).string()));
    const Dataset looked_at(data);
}

}  // namespace

int check_command(const ScriptCommand& given) {
    ScriptCommand command = given;
    command.nodes = 0;  // as many as it takes
    ScriptHost host(command, command.script_help ? Mode::help : Mode::check, Job{});
    host.run_script();
    if (command.script_help) return 0;
    if (!host.compiled())
        throw Error(command.script + ": the script compiled no program\n  call program:compile() in it");
    if (!host.summary_shown()) std::printf("%s\n", host.summary().c_str());
    list_marks(host.compiled()->train->program);
    std::printf("%s", lint_text(redistributions(*host.compiled()->train, wires_of(*host.compiled()))).c_str());
    if (host.data()) look_at(*host.data());
    for (const std::string& note : host.notes()) std::printf("%s\n", note.c_str());
    std::printf("checked: the plan is complete and free of deadlock%s\n",
                host.settings().memory_bytes > 0 ? ", and fits in device.memory_gib" : "");
    return 0;
}

}  // namespace orrery
