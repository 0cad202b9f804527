#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "cli/script_host.h"
#include "ir/describe.h"
#include "plan/lint.h"

namespace orrery {
namespace {

/// What strategies left as it is, and marks that came after another one's.
void list_marks(const Program& program) {
    for (const Note& note : program.notes())
        std::printf("left: %s%s (%s)\n", note.value == none ? "" : (label_of(program, note.value) + ": ").c_str(),
                    note.text.c_str(), note.origin.text().c_str());
    for (const Mark& mark : program.ignored())
        std::printf("not taken: %s %s:%s (%s), an earlier mark stays\n", label_of(program, mark.value).c_str(),
                    mark.axis.c_str(), mark.placement.text().c_str(), mark.origin.text().c_str());
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
    // A plan for a cluster is checked where its data is not; data that is here must be sound.
    if (host.data() && std::filesystem::exists(host.data()->path))
        Dataset looked_at(*host.data());
    else if (host.data())
        std::printf("not looked at: data file %s is not here\n", host.data()->path.c_str());
    for (const std::string& note : host.notes()) std::printf("%s\n", note.c_str());
    std::printf("checked: the plan is complete and free of deadlock%s\n",
                host.settings().memory_bytes > 0 ? ", and fits in device.memory_gib" : "");
    return 0;
}

}  // namespace orrery
