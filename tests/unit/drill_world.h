#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/supervise/verdict.h"
#include "control/commit.h"
#include "drill_net.h"
#include "run/control/job.h"

/// One world that joins Membership, Supervisor and Commit: nodes with a launcher and ranks, a store, and what a row of
/// tests/jobs/drills.txt does to them.
namespace orrery::test {

/// A row; drills.txt says what its columns mean.
struct Drill {
    struct Event {
        std::string when, what, whom;
        int64_t number = -1;  ///< of whom
    };
    std::string name;
    std::map<std::string, int64_t> job;
    std::vector<Event> events;
    std::vector<std::string> ends;
    int code = 0;
    std::string says, after;

    int64_t of(const std::string& key, int64_t otherwise) const {
        const auto at = job.find(key);
        return at == job.end() ? otherwise : at->second;
    }
    /// Whether a node that is asked to stop leaves, and the job resumes without it.
    bool drains() const {
        return of("nodes", 1) > 1 && of("ends", 0) == 0 && (of("spares", 0) > 0 || job.count("wait") > 0);
    }
};
std::vector<Drill> read_drills(std::string_view text);

/// How a job ended.
struct Outcome {
    std::vector<std::string> ends;    ///< of its generations, "process:1"
    std::map<int64_t, int> codes;     ///< of launchers that ended by themselves, by node
    std::string said;                 ///< by them
    int64_t steps = 0;                ///< of the newest generation that trained
    std::vector<std::string> broken;  ///< what must hold in any drill, and did not
};

class HostRanks;
class Launcher;

/// One generation of ranks.
struct Generation {
    int64_t number = 0;
    Service* service = nullptr;  ///< nullptr: a single rank has none
    std::vector<struct Rank*> ranks = {};
    int64_t base = -1;  ///< the step that it resumes from, once its ranks have met
    int64_t stop_at = -1;
    bool called_off = false;  ///< asked to stop before it trained
    std::map<int64_t, CommitVerdict> verdicts = {};
};

struct Rank {
    Process& process;
    int64_t number;
    Generation& generation;
    HostRanks& host;
    Link* link = nullptr;
    bool ended = false, met = false, hooked = false, starved = false, dying = false;
    RankEnd end = {};
    int64_t step = 0, arrived = 0;
    std::optional<LinkTime> blocked = {};  ///< by the disk, since when
    LinkTime waits{0};
    std::unique_ptr<Commit> commit = {};
    std::map<int64_t, uint64_t> asked = {};  ///< numbers of requests, by rank
    std::map<int64_t, std::string> told = {};
    std::function<void()> all_told = {};
};

class DrillWorld {
public:
    DrillWorld(const Drill& drill, uint64_t seed);
    ~DrillWorld();
    /// Until all launchers have ended, or the virtual time is over.
    Outcome play();

    // For launchers.
    Rank& start_rank(Generation& generation, HostRanks& host, int64_t number);
    void signal(Rank& rank);
    void kill(Rank& rank);
    void over(Launcher& launcher, int code);
    /// A drained node's launcher ends, as ordered.
    void left(Launcher& launcher, int code);
    void say(const std::string& text) { outcome_.said += text + " "; }
    void generation_ended(const std::string& how) { outcome_.ends.push_back(how); }
    void notice() { look_for_event("noticed"); }
    /// All ranks of a host have ended.
    void host_ended();
    void must(bool holds, const std::string& what);
    Generation& new_generation() { return generations_.emplace_back(); }
    /// The job as a process of that generation knows it; launchers have generation 0.
    Job job(int64_t generation, const Process& process) const;
    Service& serve(Launcher& launcher, int64_t generation);
    Launcher* launcher_of(int64_t node);
    /// Takes a generation beyond `after`.
    int64_t mint(int64_t after);

    Net net;
    const Drill& drill;
    const int64_t nodes, spares, per_node;
    const std::chrono::milliseconds silence;
    int64_t claimed = 0;                                  ///< the newest generation of the store
    std::set<int64_t> unfit;                              ///< nodes whose device is gone
    std::vector<std::shared_ptr<const void>> notes = {};  ///< what launchers have told each other
    int64_t moved = -1;                                   ///< the generation that the folder lacks since it was moved

private:
    void begin_node(int64_t node);
    void do_event(const Drill::Event& event);
    void look_for_event(std::string_view now);
    void steps_done(int64_t step);
    bool hook(Rank& rank, std::string_view when);
    void arm();
    void struck(std::string_view by);

    void heard(Rank& rank);
    void ask(Rank& rank, const std::string& key, const std::vector<int64_t>& of, std::function<void()> then);
    std::vector<int64_t> others(const Rank& rank) const;
    void begin_training(Rank& rank);
    void lose_nothing();
    void arrive(Rank& rank);
    void finish_step(Rank& rank);
    void save(Rank& rank);
    void next_action(Rank& rank);
    void round(Rank& rank, const CommitAction& action);
    void work(Rank& rank);
    CommitAnswer act(Rank& rank, const CommitAction& action);
    void saved(Rank& rank);
    void fail(Rank& rank, const Error& error, const char* site, const Loss& heard);
    void stop(Rank& rank);
    void exit(Rank& rank, int code, bool done, std::optional<Loss> told);
    std::string position(const Rank& rank) const;
    int64_t newest() const;
    /// Seconds that a wait may take; a row's 0 means the default, which is 30 for steps as short as these.
    int64_t bound_s() const { return drill.of("bound", 20) > 0 ? drill.of("bound", 20) : 30; }

    Outcome outcome_;
    int64_t steps_ = 0, best_ = 0, trainings_ = 0;
    size_t next_event_ = 0;
    bool hooked_ = false, frozen_ = false, resumes_ = false;
    LinkTime struck_{0};
    std::set<int64_t> drained_;        ///< nodes that were asked to stop and have not left
    std::optional<LinkTime> ends_by_;  ///< when what was done then must be over
    std::deque<Generation> generations_;
    std::deque<Rank> ranks_;
    std::vector<std::unique_ptr<Launcher>> launchers_;
    std::map<int64_t, Launcher*> here_;                                      ///< by node
    std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> parts_, read_;  ///< ranks, by generation and step
    std::map<int64_t, int64_t> visible_;  ///< steps of the store, and the generation of each
};

}  // namespace orrery::test
