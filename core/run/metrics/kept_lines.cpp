#include "run/metrics/kept_lines.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

#include "base/env.h"
#include "base/json.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

double number_of(const Json& value) { return value.is_number() ? value.get<double>() : std::nan(""); }

std::string tag_of(const std::string& key) {
    for (const StepColumn& column : step_columns())
        if (key == column.key) return column.tag;
    return "results/" + key;
}

void tell_step(EventFile& events, const Json& line) {
    events.begin(line.value("time", 0.0), line["step"].get<int64_t>());
    for (const auto& [key, value] : line.items()) {
        if (key == "step") continue;
        const std::string tag = tag_of(key);
        if (!value.is_array()) events.add(tag, number_of(value));
        for (size_t i = 0; value.is_array() && i < value.size(); ++i)
            events.add(tag + "/" + std::to_string(i), number_of(value[i]));
    }
    events.end();
}

}  // namespace

void KeptLines::tell_again(EventFile& events, int64_t step_number, double now) const {
    events.start(now, step_number);
    if (!step.empty()) tell_step(events, Json::parse(step));
    if (!evaluation.empty()) tell_evaluation(events, Json::parse(evaluation));
}

void tell_evaluation(EventFile& events, const Json& line) {
    events.begin(line.value("time", 0.0), line["step"].get<int64_t>());
    for (const auto& [key, value] : line.items())
        if (key != "step" && key != "time")
            events.add(key == "eval_loss" ? "validation_metrics/loss" : "evaluations/" + key, number_of(value));
    events.end();
}

KeptLines trim_lines(const std::string& path, int64_t last_step) {
    KeptLines last;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return last;
    const auto env = system_env();
    const std::string all = env->read_file(path);
    std::istringstream in(all);
    std::vector<std::string> lines;
    std::map<int64_t, size_t> evaluated;
    for (std::string line; std::getline(in, line);) {
        const Json json = Json::parse(line, nullptr, false);
        const auto number = json.is_object() ? json.find("step") : json.end();
        if (number == json.end() || !number->is_number() || number->get<double>() > static_cast<double>(last_step))
            continue;
        const auto step = number->get<int64_t>();
        const bool evaluation = json.contains("eval_loss");
        if (evaluation) {
            const auto [at, first] = evaluated.emplace(step, lines.size());
            if (!first) lines[at->second].clear();
            at->second = lines.size();
        }
        lines.push_back(line + "\n");
        if (step == last_step) (evaluation ? last.evaluation : last.step) = line;
    }
    std::string kept;
    for (const std::string& line : lines) kept += line;
    if (kept != all) env->replace_file(path, kept);
    return last;
}

void replace_evaluation(const std::string& path, int64_t step, const std::string& line) {
    const auto env = system_env();
    std::istringstream in(env->read_file(path));
    std::string kept;
    for (std::string old; std::getline(in, old);) {
        const Json json = Json::parse(old, nullptr, false);
        if (json.is_object() && json.contains("eval_loss") && json.value("step", Json()) == Json(step)) continue;
        kept += old + "\n";
    }
    env->replace_file(path, kept + line);
}

}  // namespace orrery
