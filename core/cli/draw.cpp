#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/files/result_file.h"
#include "base/text.h"
#include "cli/script_runner.h"
#include "config/load.h"
#include "draw/picture.h"
#include "lua/script.h"
#include "plan/check/check_schedule.h"

namespace orrery {
namespace {

/// A pipeline schedule. `lines`: where the order of each rank is written, for messages.
struct Orders {
    Schedule schedule;
    int64_t micros = 1;
    int stages = 1;
    std::vector<Origin> lines;
};

/// Returns the number of a rank's pipeline stages: those that its line lists, or the chunks 0, 1, ... in its order.
int chunks_of(const Schedule& schedule, size_t rank) {
    if (!schedule.stages.empty()) return static_cast<int>(schedule.stages[rank].size());
    std::set<int> chunks;
    for (const Fragment& f : schedule.ranks[rank].order) chunks.insert(f.chunk);
    int count = 0;
    while (chunks.count(count)) ++count;
    return std::max(count, 1);
}

/// Reads the order of fragments, one line per rank: "F0 F1 B0 B1". If stages do not interleave, a line begins with its
/// rank's stages by chunk: "0,7: F0 F0.1 ...". Empty lines and lines that begin with # are skipped.
Orders read_orders(const std::filesystem::path& path, const DrawCommand& command) {
    Orders all;
    all.schedule.name = path.stem().string();
    std::ifstream text(path);
    std::string line;
    for (int at = 1; std::getline(text, line); ++at) {
        std::string_view words = trim(line);
        if (words.empty() || words.front() == '#') continue;
        const Origin here{"", path.string(), at, 0};
        try {
            if (const size_t colon = words.find(':'); colon != std::string_view::npos) {
                auto& stages = all.schedule.stages.emplace_back();
                for (const std::string& stage : split(words.substr(0, colon), ',')) stages.push_back(std::stoi(stage));
                words = words.substr(colon + 1);
            }
            all.schedule.ranks.push_back(RankSchedule::parse(words));
        } catch (const Error& error) {
            throw Error(here, error.what());
        } catch (const std::logic_error&) {
            throw Error(here, "expected the rank's stages before the colon, for example 0,7:");
        }
        all.lines.push_back(here);
    }
    const size_t ranks = all.schedule.ranks.size();
    if (ranks == 0)
        throw Error(fmt::format("{} has no fragments; write one line for each rank, for example F0 B0", path.string()));
    if (!all.schedule.stages.empty() && all.schedule.stages.size() != ranks)
        throw Error(fmt::format(
            "{}: only some lines begin with the rank's stages\n  begin every line with stages (0,7:), or none",
            path.string()));
    all.stages = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
        const bool given = command.chunks > 0 && all.schedule.stages.empty();
        all.stages += given ? static_cast<int>(command.chunks) : chunks_of(all.schedule, rank);
        for (const Fragment& f : all.schedule.ranks[rank].order) all.micros = std::max(all.micros, f.micro + 1);
    }
    if (command.micro > 0) all.micros = command.micro;
    return all;
}

/// Runs a schedule's function with the limits of [lua] for scripts. All other functions of scripts are refused.
class ScheduleHost final : public Host {
public:
    explicit ScheduleHost(const ScriptCommand& command) : Host(load_config(command.config, command.sets)) {}
    const Mesh& mesh() override { return mesh_; }
    std::unique_ptr<Strategy> make_strategy(std::string_view, Config&, const Origin& asked) override { refuse(asked); }
    std::unique_ptr<DataSource> make_data(std::string_view, Config&, const Origin& asked) override { refuse(asked); }
    const OpDef& use_op(std::string_view, const Origin& asked) override { refuse(asked); }
    void compile(Experiment) override { refuse({}); }
    void declare_options(const std::vector<Option>&) override { refuse({}); }
    void print(const std::string& line) override { std::fprintf(stderr, "%s\n", line.c_str()); }
    void give_up(const std::string& text) override { end_process(text); }

private:
    [[noreturn]] static void refuse(const Origin& asked) {
        throw Error(
            asked,
            "a schedule cannot compile or run programs; it only orders fragments by ranks, micro-batches and chunks");
    }
    Mesh mesh_;
};

/// Calls the function of a Lua schedule; `name` is in `folder` or one of orrery/schedules.
Orders call_schedule(const std::string& name, const std::filesystem::path& folder, const ScriptCommand& script,
                     const DrawCommand& command) {
    ScheduleHost host(script);
    const Pipeline asked{"", name, static_cast<int>(command.chunks), {}};
    Orders all;
    int chunks = 1;
    all.schedule = load_schedule(asked, command.stages, command.micro, folder, host, &chunks);
    all.micros = command.micro;
    all.stages = static_cast<int>(command.stages) * chunks;
    return all;
}

Schedule read_schedule(const ScriptCommand& script, const DrawCommand& command) {
    const std::filesystem::path path = command.schedule;
    const bool lua = path.extension() == ".lua";
    const bool plain = !lua && std::filesystem::is_regular_file(path);
    if (!plain && (command.stages < 1 || command.micro < 1))
        throw Error(
            "--schedule needs the number of pipeline ranks and micro-batches\n  add --stages 4 --micro 8, and "
            "--chunks 2 if a rank has several stages");
    if (lua && !std::filesystem::is_regular_file(path))
        throw Error(fmt::format("schedule file {} not found", path.string()));
    Orders all = lua     ? call_schedule(path.stem().string(), path.parent_path(), script, command)
                 : plain ? read_orders(path, command)
                         : call_schedule(command.schedule, "", script, command);
    check_schedule(all.schedule, all.micros, all.stages, true, all.lines);
    return std::move(all.schedule);
}

int terminal_width() {
    if (const char* columns = std::getenv("COLUMNS"); columns && std::atoi(columns) > 0) return std::atoi(columns);
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

bool coloured(const std::string& when) {
    if (when != "auto") return when == "always";
    const char* without = std::getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && (!without || !*without);
}

void show(const Picture& picture, const DrawCommand& command) {
    if (command.out.empty()) {
        const TextStyle style{command.width > 0 ? command.width : terminal_width(), coloured(command.colour)};
        std::fputs(draw_text(picture, style).c_str(), stdout);
        return;
    }
    write_result(command.out, draw_svg(picture));
    std::printf("%s: %s\n", command.out.c_str(), picture.title.c_str());
}

}  // namespace

void require_svg(const std::string& file) {
    if (file.empty()) return;
    if (!file.ends_with(".svg"))
        throw Error(fmt::format("-o {}: the drawing is an SVG; expected a file name that ends in .svg", file));
    require_writable("-o", file);
}

int draw_command(const ScriptCommand& script, const DrawCommand& command) {
    require_svg(command.out);
    if (!command.schedule.empty()) {
        if (!script.script.empty())
            throw Error("draw: a script and --schedule cannot be combined: a script has its own schedule");
        show(picture(read_schedule(script, command)), command);
        return 0;
    }
    if (script.script.empty()) throw Error("draw: nothing to draw; name a script, or give --schedule");
    if (script.script_help) return show_options(script, Job{});
    ScriptRunner drawn(script, Job{}, {.scratch = ScriptUse::Scratch::noted, .prints = false});
    drawn.load_for_hosts(0);
    drawn.run();
    const Plan& plan = round_program(drawn.compiled(), command.program, "--program").plan;
    if (const Round& round = drawn.compiled().round; command.program.empty() && round.names().size() > 1)
        std::fprintf(stderr, "round %s: drawing program %s; choose another with --program NAME\n", round.text().c_str(),
                     round.names().front().c_str());
    for (const std::string& note : drawn.notes) std::fprintf(stderr, "%s\n", note.c_str());
    show(picture(plan, command.by == "flops", drawn.settings.memory_bytes), command);
    return 0;
}

}  // namespace orrery
