#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/script_host.h"
#include "config/load.h"
#include "lua/script.h"
#include "plan/draw.h"

namespace orrery {
namespace {

/// Orders of fragments, one line a rank: "F0 F1 B0 B1"; where stages do not interleave the line begins with the rank's
/// stages by chunk: "0,7: F0 F0.1 ...". Empty lines and those that begin with # are skipped.
Schedule parse_schedule(const std::string& name, const std::string& shown, std::istream& text) {
    Schedule schedule;
    schedule.name = name;
    std::string line;
    for (int at = 1; std::getline(text, line); ++at) {
        std::string_view words = trim(line);
        if (words.empty() || words.front() == '#') continue;
        try {
            if (const size_t colon = words.find(':'); colon != std::string_view::npos) {
                auto& stages = schedule.stages.emplace_back();
                for (const std::string& stage : split(words.substr(0, colon), ',')) stages.push_back(std::stoi(stage));
                words = words.substr(colon + 1);
            }
            schedule.ranks.push_back(RankSchedule::parse(words));
        } catch (const Error& error) {
            throw Error(fmt::format("{}:{}: {}", shown, at, error.what()));
        } catch (const std::logic_error&) {
            throw Error(fmt::format("{}:{}: before the colon stand the rank's stages, as in 0,7:", shown, at));
        }
    }
    if (!schedule.stages.empty() && schedule.stages.size() != schedule.ranks.size())
        throw Error(
            fmt::format("{}: only some ranks say which stages they run\n  begin every line with them, or none", shown));
    if (schedule.ranks.empty()) throw Error(fmt::format("{} has no fragments; write one line a rank: F0 B0", shown));
    return schedule;
}

/// Lets a schedule's function run, and keeps what it prints. Anything else that a script can ask for is refused.
class ScheduleHost final : public Host {
public:
    Config& config() override { return config_; }
    const Mesh& mesh() override { return mesh_; }
    std::unique_ptr<Strategy> make_strategy(std::string_view, Config&, const Origin& asked) override { refuse(asked); }
    void compile(Experiment) override { refuse({}); }
    std::string summary() override { refuse({}); }
    void train(const DataSpec&, const TrainOptions&) override { refuse({}); }
    std::string sample(const SampleOptions&) override { refuse({}); }
    void declare_options(const std::vector<Option>&) override { refuse({}); }
    void print(const std::string& line) override { printed += line + "\n"; }
    void give_up(const std::string& text) override { end_process(text); }

    std::string printed;

private:
    [[noreturn]] static void refuse(const Origin& asked) {
        throw Error(asked, "a schedule is a function of ranks, micro-batches and chunks; it compiles and runs nothing");
    }
    Config config_ = load_config("", {});
    Mesh mesh_;
};

/// The orders that the function of a Lua schedule returns: `name` lies in `folder` or is one of orrery/schedules.
Schedule call_schedule(const std::string& name, const std::filesystem::path& folder, const DrawCommand& command) {
    const std::string text = fmt::format(
        "local name, p, m, v = {}, {}, {}, {}\n"
        "local found, make = pcall(require, name)\n"
        "local other\n"
        "if not found then other, make = make, require('orrery.schedules.' .. name) end\n"
        "local ranks, stages = make(p, m, v)\n"
        "for r, order in ipairs(ranks) do\n"
        "  if type(order) == 'table' then order = table.concat(order, ' ') end\n"
        "  print((stages and table.concat(stages[r], ',') .. ': ' or '') .. order)\n"
        "end\n",
        quote(name), command.stages, command.micro, command.chunks);
    ScheduleHost host;
    run_script_text(text, "schedule " + name, folder, host);
    std::istringstream orders(host.printed);
    Schedule schedule = parse_schedule(name, "schedule " + name + ", rank", orders);
    if (static_cast<int64_t>(schedule.ranks.size()) != command.stages)
        throw Error(
            fmt::format("schedule {} gave {} orders for {} ranks", name, schedule.ranks.size(), command.stages));
    return schedule;
}

/// A file of orders, a Lua file, or the name of a schedule.
Schedule read_schedule(const DrawCommand& command) {
    const std::filesystem::path path = command.schedule;
    const bool lua = path.extension() == ".lua";
    const bool plain = !lua && std::filesystem::is_regular_file(path);
    if (!plain && (command.stages < 1 || command.micro < 1 || command.chunks < 1))
        throw Error(
            "a schedule is drawn for a number of ranks and micro-batches\n  add --stages 4 --micro 8, and --chunks "
            "2 where a rank has several stages");
    if (lua && !std::filesystem::is_regular_file(path)) throw Error(fmt::format("no schedule {}", path.string()));
    if (lua) return call_schedule(path.stem().string(), path.parent_path(), command);
    if (!plain) return call_schedule(command.schedule, "", command);
    std::ifstream file(path);
    return parse_schedule(path.stem().string(), path.string(), file);
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
    if (!command.out.ends_with(".svg"))
        throw Error(fmt::format("-o {}: a drawing is an SVG; name the file .svg", command.out));
    std::ofstream file(command.out, std::ios::trunc);
    file << draw_svg(picture);
    file.close();
    if (!file) throw Error(fmt::format("cannot write {}", command.out), Fault::failed);
    std::printf("%s: %s\n", command.out.c_str(), picture.title.c_str());
}

}  // namespace

int draw_command(const ScriptCommand& given, const DrawCommand& command) {
    ScriptCommand script = given;
    script.nodes = 0;  // as many as it takes
    if (!command.schedule.empty()) {
        if (!script.script.empty())
            throw Error("draw a script or --schedule, not both: a script says its own schedule");
        show(picture(read_schedule(command)), command);
        return 0;
    }
    if (script.script.empty()) throw Error("draw what? name a script, or --schedule");
    ScriptHost host(script, script.script_help ? Mode::help : Mode::draw, Job{});
    host.run_script();
    if (script.script_help) return 0;
    if (!host.compiled() || !host.compiled()->train)
        throw Error(script.script + ": the script compiled no program\n  call program:compile() in it");
    for (const std::string& note : host.notes()) std::fprintf(stderr, "%s\n", note.c_str());
    show(picture(*host.compiled()->train, command.by == "flops", host.settings().memory_bytes), command);
    return 0;
}

}  // namespace orrery
