#include "run/control/folder_meeting.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <thread>

#include "base/env.h"
#include "base/files/atomic_file.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "orrery/error.h"
#include "run/control/rendezvous.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr size_t largest_file = 32 << 20;  // a text of 40 bytes for each of many tasks
constexpr auto first_pause = 20ms, longest_pause = 500ms;

std::string file_of(const FolderMeeting& meeting, int64_t task) {
    std::string name = meeting.folder + "/.meeting-";
    for (const char c : meeting.job) name += std::isalnum(static_cast<unsigned char>(c)) || c == '.' ? c : '_';
    return task == 0 ? name : fmt::format("{}.{}", name, task);
}

/// Removes a file that an earlier job may have left. Throws Error if another user made it, and it cannot be removed.
void remove_old(const std::string& path) {
    struct stat info {};
    if (::unlink(path.c_str()) == 0 || ::lstat(path.c_str(), &info) != 0 || info.st_uid == ::geteuid()) return;
    throw Error(
        fmt::format("{} belongs to user {}, expected the current user {}, and cannot be removed\n  choose "
                    "another run.folder, one that other users cannot write to",
                    path, info.st_uid, ::geteuid()));
}

/// Returns the object in a file that only this user can have written, for this job; nullopt if there is none.
std::optional<Json> read(const FolderMeeting& meeting, int64_t task) {
    const RegularFile file(file_of(meeting, task));
    if (!file.problem().empty() || file.info().st_uid != ::geteuid() || (file.info().st_mode & 077) != 0) return {};
    try {
        Json text = parse_json(file.text(largest_file), {file_of(meeting, task), "", 0, 0});
        if (text.is_object() && text.value("job", "") == meeting.job) return text;
    } catch (const std::exception&) {  // of another version
    }
    return {};
}

/// Calls `done` until it returns true, with growing pauses. Returns false at the limit.
template <class Done>
bool wait_until(const FolderMeeting& meeting, Done done) {
    const auto until = Clock::now() + meeting.limit;
    for (std::chrono::milliseconds pause = first_pause;;
         pause = std::min<std::chrono::milliseconds>(2 * pause, longest_pause)) {
        if (done()) return true;
        if (Clock::now() >= until) return false;
        std::this_thread::sleep_for(pause);
    }
}

Error not_shared(const FolderMeeting& meeting, const std::string& found) {
    return Error(
        fmt::format("{} within {:g} s (run.join_timeout_s) in {}, where the {} tasks of this job meet\n"
                    "  set run.folder to a folder that all hosts see",
                    found, static_cast<double>(meeting.limit.count()) / 1000, meeting.folder, meeting.ranks));
}

}  // namespace

void tell_place(const FolderMeeting& meeting, const MeetingPlace& place) {
    system_env()->make_folders(meeting.folder);
    for (int64_t task = 0; task < meeting.ranks; ++task) remove_old(file_of(meeting, task));
    std::map<int64_t, std::string> asked;
    const bool all = wait_until(meeting, [&] {
        // Making and removing a file also makes a network file system forget which files were not there.
        AtomicFile(file_of(meeting, 0), ".look", 0600).open(Fault::usage);
        for (int64_t task = 1; task < meeting.ranks; ++task) {
            if (asked.count(task) > 0) continue;
            if (const auto text = read(meeting, task)) asked[task] = text->value("text", "");
        }
        return static_cast<int64_t>(asked.size()) == meeting.ranks - 1;
    });
    if (!all) {
        int64_t missing = 1;
        while (asked.count(missing) > 0) ++missing;
        throw not_shared(meeting, fmt::format("task {} did not ask for the address of task 0", missing));
    }
    Json texts = Json::array({""});
    for (const auto& [task, text] : asked) texts.push_back(text);
    const Json answer = {{"job", meeting.job}, {"id", place.id},         {"host", place.host},
                         {"port", place.port}, {"secret", place.secret}, {"texts", texts}};
    write_private(file_of(meeting, 0), message_text(answer), Fault::usage);
    wait_until(meeting, [&] {
        AtomicFile(file_of(meeting, 0), ".look", 0600).open(Fault::usage);
        std::erase_if(asked, [&](const auto& one) { return !system_env()->exists(file_of(meeting, one.first)); });
        return asked.empty();
    });  // a task that has ended meanwhile is missed when the tasks join
    ::unlink(file_of(meeting, 0).c_str());
}

MeetingPlace ask_place(const FolderMeeting& meeting) {
    system_env()->make_folders(meeting.folder);
    const std::string own = file_of(meeting, meeting.rank), text = make_nonce();
    remove_old(own);
    MeetingPlace place;
    const bool told = wait_until(meeting, [&] {
        const auto found = read(meeting, 0);
        const Json texts = found ? found->value("texts", Json()) : Json();
        const auto at = static_cast<size_t>(meeting.rank);
        if (!texts.is_array() || at >= texts.size() || texts[at] != text) {
            write_private(own, message_text({{"job", meeting.job}, {"text", text}}), Fault::usage);
            return false;
        }
        place = {found->value("id", ""), found->value("host", ""), found->value("port", 0), found->value("secret", "")};
        return true;
    });
    ::unlink(own.c_str());
    if (!told) throw not_shared(meeting, "task 0 did not write its address");
    return place;
}

}  // namespace orrery
