#include "cli/run_record/run_record.h"

#include <ctime>
#include <mutex>

#include "base/env.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

std::mutex mutex;  ///< guards the run record and its file
RunRecord* living = nullptr;

/// Shortens an earlier start: plugins, command and hosts by rank would add up over thousands of starts.
Json in_short(const Json& start) {
    Json kept = Json::object();
    for (const char* key : {"start", "end", "why", "exit_code", "version", "revision", "plan", "ranks", "generation"})
        if (const auto at = start.find(key); at != start.end()) kept[key] = *at;
    if (kept.contains("ranks")) return kept;  // an earlier start has shortened it
    kept["ranks"] = nullptr;                  // null if the ranks never joined
    const auto hosts = start.find("hosts");
    if (hosts == start.end() || !hosts->is_array()) return kept;
    size_t ranks = 0;
    for (const Json& host : *hosts)
        if (host.is_object() && host.contains("ranks")) ranks += host["ranks"].size();
    kept["ranks"] = ranks;
    return kept;
}

/// Returns the starts recorded in a run.json, oldest first; none if the file is not a run record.
Json starts_in(const std::string& path) {
    Json starts = Json::array();
    const RegularFile file(path);  // refuses a pipe, on which reading would block
    if (!file.there()) return starts;
    if (!file.problem().empty()) throw Error(path + " " + file.problem() + "\n  move it away", Fault::failed);
    const Json last = Json::parse(file.text(static_cast<size_t>(file.bytes())), nullptr, false);
    if (!last.is_object()) return starts;
    if (const auto before = last.find("before"); before != last.end() && before->is_array())
        for (const Json& start : *before)
            if (start.is_object()) starts.push_back(in_short(start));
    starts.push_back(in_short(last));
    return starts;
}

}  // namespace

std::string utc_text(double seconds_since_1970) {
    const auto seconds = static_cast<std::time_t>(seconds_since_1970);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

RunRecord::RunRecord(const std::string& folder, const Json& start)
    : path_(folder + "/run.json"), record_(std::make_unique<Json>()) {
    *record_ = {{"start", utc_text(wall_time())}, {"end", nullptr}, {"why", nullptr}, {"exit_code", nullptr}};
    record_->update(start);
    (*record_)["before"] = starts_in(path_);
    const std::lock_guard lock(mutex);
    write();
    living = this;
}

RunRecord::~RunRecord() {
    const std::lock_guard lock(mutex);
    living = nullptr;
}

void RunRecord::write() const {
    const std::string text = record_->dump(2, ' ', false, Json::error_handler_t::replace);  // paths may not be UTF-8
    system_env()->replace_file(path_, text + "\n");
}

void RunRecord::add(const Json& more) {
    const std::lock_guard lock(mutex);
    const Json before = std::move((*record_)["before"]);
    record_->erase("before");
    record_->update(more);
    (*record_)["before"] = before;
    write();
}

void end_run_record(const std::string& why, int exit_code) {
    const std::lock_guard lock(mutex);
    if (!living || !(*living->record_)["end"].is_null()) return;
    Json& record = *living->record_;
    record["end"] = utc_text(wall_time());
    record["why"] = why;
    record["exit_code"] = exit_code;
    try {
        living->write();
    } catch (const std::exception&) {  // a full disk, for example; the caller reports what ended the run
    }
}

}  // namespace orrery
