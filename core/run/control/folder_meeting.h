#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace orrery {

/// Where the tasks of a job meet, and the secret by which they know each other.
struct MeetingPlace {
    std::string id;  ///< of this start of the job, unique among the jobs of a host
    std::string host;
    int port = 0;
    std::string secret;
};

/// Which task asks, and how long it waits.
struct FolderMeeting {
    std::string folder;  ///< one that all tasks of the job see; created if missing
    std::string job;     ///< the launcher's id of the job: files of another job are not read
    int64_t rank = 0, ranks = 1;
    std::chrono::milliseconds limit{30'000};
};

// Tasks meet through files of mode 0600 in a folder. Each task but 0 asks, with a random text; task 0, once all have
// asked, writes the place and their texts. A task takes a file that has its own text, so that none takes one that an
// earlier job of the same id has left, removes its question, and task 0 removes the place: no file is left.
//
//     task 0                      task 1
//     remove what is there        .meeting-JOB.1: text            (writes it again if it was removed)
//     .meeting-JOB: place, texts
//                                 remove .meeting-JOB.1
//     remove .meeting-JOB

/// Task 0's part. Throws Error if a task has not asked within the limit, naming it.
void tell_place(const FolderMeeting& meeting, const MeetingPlace& place);
/// The part of another task. Throws Error if no place was written for it within the limit.
MeetingPlace ask_place(const FolderMeeting& meeting);

}  // namespace orrery
