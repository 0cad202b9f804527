// The run that sweeps break: two ranks save with an incremental format, retire, restore.
//   saver threads PLACE LAST     steps 10, 20 ... LAST by ranks that are threads
//   saver RANK PLACE LAST        the same by two processes; what SWEEP_FAULT names is done to the calls of that rank,
//                                2: of none
//   saver check PLACE NEWEST COUNT   every visible step is whole, one is as new as NEWEST, there are COUNT at least;
//                                restores the newest, saves anew
// Exit code 1 with the reason where something fails; notes of a save go to stderr as "note: ...". With SWEEP_EVERY=N
// each step that N divides is kept. Beside the recorder each save is noted: "started 20",
// "acknowledged 20".
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "small_run.h"

using namespace orrery;
using namespace orrery::sweeps;

namespace {

/// Beside the recorder's log, what was acknowledged goes to the file SWEEP_ACKS, which lies elsewhere.
void note(const std::string& text) {
    using Note = void(const char*);
    static const auto tell = reinterpret_cast<Note*>(::dlsym(RTLD_DEFAULT, "sweep_note"));
    if (tell) tell(text.c_str());
    const char* acks = std::getenv("SWEEP_ACKS");
    if (!acks || !text.starts_with("acknowledged ")) return;
    std::ofstream(acks, std::ios::app) << text.substr(13) << std::endl;
}

/// Two processes that tell each other texts over a pair of sockets; the end of one is seen by the other.
class Pair {
public:
    Pair(int64_t rank, int socket) : rank_(rank), socket_(socket) {}

    std::vector<std::string> gather(const std::string& topic, const std::string& mine) {
        if (rank_ == 0) {
            std::string theirs = receive(topic);
            send(mine);
            return {mine, std::move(theirs)};
        }
        send(mine);
        return {receive(topic), mine};
    }

private:
    void send(const std::string& text) {
        const auto bytes = static_cast<uint64_t>(text.size());
        whole(const_cast<char*>(reinterpret_cast<const char*>(&bytes)), sizeof bytes, true, "");
        whole(const_cast<char*>(text.data()), text.size(), true, "");
    }
    std::string receive(const std::string& topic) {
        uint64_t bytes = 0;
        whole(reinterpret_cast<char*>(&bytes), sizeof bytes, false, topic);
        std::string text(bytes, '\0');
        whole(text.data(), text.size(), false, topic);
        return text;
    }
    void whole(char* data, size_t bytes, bool out, const std::string& topic) {
        while (bytes > 0) {
            const ssize_t done = out ? ::send(socket_, data, bytes, MSG_NOSIGNAL) : ::recv(socket_, data, bytes, 0);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) throw Error(fmt::format("rank {} died before {}", 1 - rank_, topic), Fault::peer);
            data += done;
            bytes -= static_cast<size_t>(done);
        }
    }

    int64_t rank_;
    int socket_;
};

void work(const TestStore& stores, const std::string& place, int64_t last, int64_t rank, const Gather& gather) {
    const auto store = stores.open(place);
    const int64_t newest = restore_newest(*store, dp2, rank, gather);
    CheckpointOptions keeps = options;
    if (const char* every = std::getenv("SWEEP_EVERY")) keeps.keep.every_steps = std::stoll(every);
    Checkpoints saver(*store, dp2, rank, gather, keeps);
    for (int64_t step = std::max<int64_t>(newest, 0) + 10; step <= last; step += 10) {
        if (rank == 0) note(fmt::format("started {}", step));
        const State state(dp2, rank, step);
        saver.save(step, state.values, host_of(step));
        for (const std::string& said : saver.notes()) std::fprintf(stderr, "note: %s\n", said.c_str());
        if (rank == 0) note(fmt::format("acknowledged {}", step));
    }
    restore_newest(*store, dp2, rank, gather);
}

int as_process(int64_t rank, int socket, const std::string& place, int64_t last) {
    try {
        Pair pair(rank, socket);
        const TestStore stores("posix");
        work(stores, place, last, rank,
             [&](const std::string& topic, const std::string& mine) { return pair.gather(topic, mine); });
        return 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), problem.what());
        return 1;
    }
}

/// 1 when a rank failed, 2 when one that was not to be hit was killed.
int on_processes(int64_t victim, const std::string& place, int64_t last) {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return 2;
    pid_t ranks[2];
    for (int rank = 0; rank < 2; ++rank) {
        ranks[rank] = ::fork();
        if (ranks[rank] != 0) continue;
        ::close(sockets[1 - rank]);
        if (rank != victim) ::unsetenv("SWEEP_FAULT");
        std::_Exit(as_process(rank, sockets[rank], place, last));
    }
    ::close(sockets[0]);
    ::close(sockets[1]);
    int worst = 0;
    for (const pid_t rank : ranks) {
        int status = 0;
        ::waitpid(rank, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = 1;
    }
    return worst;
}

int on_threads(const std::string& place, int64_t last) {
    const TestStore stores("posix");
    const std::string problems =
        on_two([&](int64_t rank, const Gather& gather) { work(stores, place, last, rank, gather); });
    std::fputs(problems.c_str(), stderr);
    return problems.empty() ? 0 : 1;
}

int check(const std::string& place, const Promise& promise) {
    const TestStore stores("posix");
    const auto store = stores.open(place);
    if (const std::string wrong = judge(*store, promise); !wrong.empty()) throw Error(wrong);
    save_again(stores, place);
    return 0;
}

}  // namespace

int main(int count, char** words) {
    if (count < 3) return 2;
    const std::string what = words[1], place = words[2];
    try {
        if (what == "check") return count == 5 ? check(place, {std::stoll(words[3]), std::stoul(words[4])}) : 2;
        if (count != 4) return 2;
        return what == "threads" ? on_threads(place, std::stoll(words[3]))
                                 : on_processes(std::stoll(what), place, std::stoll(words[3]));
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
