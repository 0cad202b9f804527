#include "cli/submit/job_file.h"

#include "base/env.h"
#include "base/files/json_file.h"
#include "base/json.h"
#include "orrery/error.h"

namespace orrery {
namespace {

constexpr int64_t most_bytes = 1 << 16;

std::string path_in(const std::string& folder) { return folder + "/job.json"; }

}  // namespace

std::optional<JobFile> read_job_file(const std::string& folder) {
    const std::string path = path_in(folder);
    if (!system_env()->exists(path)) return std::nullopt;
    const Json json = read_json(path, most_bytes);
    try {
        return JobFile{json.at("engine").get<std::string>(), json.at("name").get<std::string>(),
                       json.value("submitted", ""), json.value("ended", false), json.value("start", "")};
    } catch (const Json::exception& problem) {
        throw Error(path + ": " + reason_of(problem) + "\n  expected the engine and its name of the job; move it away");
    }
}

void write_job_file(const std::string& folder, const JobFile& job) {
    Json json = {{"engine", job.engine}, {"name", job.name}};
    if (!job.submitted.empty()) json["submitted"] = job.submitted;
    if (job.ended) json["ended"] = true;
    if (!job.start.empty()) json["start"] = job.start;
    system_env()->replace_file(path_in(folder), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace orrery
