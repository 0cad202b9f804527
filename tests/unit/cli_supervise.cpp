// What a launcher that restarts its job makes of how its ranks ended, and of their time.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/json.h"
#include "cli/launch.h"
#include "cli/signals.h"
#include "cli/supervise/agents.h"
#include "cli/supervise/board.h"
#include "cli/supervise/event_log.h"
#include "cli/supervise/follow.h"
#include "cli/supervise/node_check.h"
#include "cli/supervise/notice.h"
#include "cli/supervise/rank_processes.h"
#include "cli/supervise/verdict.h"
#include "control/loss.h"
#include "meeting.h"
#include "run/train/time_left.h"

using namespace orrery;

namespace {

RankEnd ended(int64_t rank, int code, const Loss& told = {}) {
    RankEnd end{rank, 100};
    end.code = code;
    if (told) end.told = told;
    return end;
}

/// As a rank leaves it, which gave up of itself.
Loss own(Cause cause, const char* site, const std::string& text) {
    return {.cause = cause, .rank = 1, .site = site, .text = text};
}

/// As one leaves it that has heard of `rank`.
Loss heard(int64_t rank, const char* site, const std::string& text) {
    return {.cause = Cause::hang, .rank = rank, .site = site, .hearsay = true, .text = text};
}

RankEnd killed(int64_t rank, int signal) {
    RankEnd end{rank, 100};
    end.signal = signal;
    return end;
}

RankEnd late(int64_t rank, char state) {
    RankEnd end = killed(rank, 9);
    end.late = true;
    end.state = state;
    return end;
}

RankEnd done(int64_t rank) {
    RankEnd end{rank, 100};
    end.done = true;
    return end;
}

const std::string silent = "step 7: rank 1 (pid 4242 on host n2) is silent for 10.2 s";

}  // namespace

TEST_CASE("the first cause is told from what follows it", "[supervise]") {
    const RankEnd peer = ended(0, 1, heard(1, "silence", silent));
    Loss how = verdict({peer, killed(1, 9)}, 7, 1, false);
    CHECK(how.cause == Cause::process);
    CHECK(how.rank == 1);
    CHECK(how.text.shown() == "was killed by signal 9 (Killed)");
    CHECK(how.step == 7);
    CHECK(verdict({killed(1, 9)}, 7, 1, true).cause == Cause::memory);
    CHECK(verdict({killed(1, 11)}, 7, 1, true).cause == Cause::process);

    how = verdict({ended(1, 0), peer}, 3, 1, false);
    CHECK(how.cause == Cause::early_end);
    CHECK(how.rank == 1);
    CHECK(verdict({done(0), done(1)}, 3, 0, false).cause == Cause::done);

    how = verdict({peer, late(1, 'T')}, 7, 1, false);
    CHECK(how.cause == Cause::hang);
    CHECK(how.text.shown() == "was stopped (SIGSTOP)");
    CHECK_FALSE(how.hearsay);
    CHECK(verdict({peer, late(1, 'D')}, 7, 1, false).cause == Cause::storage);

    how = verdict({peer}, 7, 1, false);
    CHECK(how.cause == Cause::hang);
    CHECK(how.hearsay);
    CHECK(how.rank == 1);
    CHECK(how.text.shown() == "does not answer: step 7: rank 1 (pid 4242 on host n2) is silent for 10.2 s");

    how = verdict({ended(1, 1, own(Cause::error, "loss", "step 5: the loss is nan\n  lower the rate")), peer}, 4, 1,
                  false);
    CHECK(how.cause == Cause::error);
    CHECK(how.site == "loss");
    CHECK(how.text.shown() == "failed: step 5: the loss is nan");
    how = verdict({peer, ended(0, 2, own(Cause::mistake, "script", "no such key"))}, 0, 1, false);
    CHECK(how.cause == Cause::mistake);
    CHECK(how.code == 2);  // also where the other rank ended first, with 1
    CHECK(verdict({ended(0, 75, own(Cause::stopped, "save", "stopped")),
                   ended(1, 75, own(Cause::stopped, "save", "stopped"))},
                  9, 75, false)
              .cause == Cause::stopped);
    CHECK(verdict({ended(1, 75, own(Cause::stopped, "save", "stopped")), killed(0, 9)}, 9, 1, false).cause ==
          Cause::process);
    CHECK(verdict({ended(0, 127)}, 0, 127, false).cause == Cause::process);
}

TEST_CASE("whom a rank blames", "[supervise]") {
    const auto judged = [](const Loss& told) { return verdict({ended(0, 1, told)}, 7, 1, false); };
    CHECK(subject_of(judged(heard(12, "connection", "rank 0: all_reduce #14 of dp/0: rank 3 died"))) == "rank 12");
    const Loss unnamed = judged(heard(-1, "step", "rank 3 did not come within 1000 ms"));
    CHECK(subject_of(unnamed).empty());  // not rank 0, which reports it
    CHECK(sentence_of(unnamed).shown() == "rank 3 did not come within 1000 ms");
    Loss launcher = heard(-1, "connection", "the launcher of node 2 (pid 7 on host vm) died");
    launcher.node = 2;
    CHECK(judged(launcher).node == 2);
    // Twice the same, told by another rank in other words.
    CHECK(same_failure(judged(heard(1, "behind", "rank 1 is behind, for 31.2 s")),
                       verdict({ended(1, 1, heard(1, "behind", "rank 1 is behind, for 35.9 s"))}, 7, 1, false)));
}

TEST_CASE("a rank tells its launcher through memory, and a launcher finds it", "[supervise]") {
    Board board(2);
    const std::string variable = board.variable(1, 5);
    const size_t at = variable.find('=');
    ::setenv(variable.substr(0, at).c_str(), variable.substr(at + 1).c_str(), 1);
    {
        const auto place = OwnPlace::of_environment();
        REQUIRE(place);
        place->resumed(3);
        CHECK(board.of(1).step == 3);
        const int64_t began = board.of(1).began_ns;
        CHECK(began > 0);
        place->finished(4);
        place->finished(5);
        const int64_t again = board.of(1).repeated_ns;
        place->finished(6);
        CHECK(board.of(1).repeated_ns == again);  // a new one
        CHECK(board.of(1).last_ns >= again);
        CHECK(board.of(1).step == 6);
        CHECK(board.of(1).resumed == 3);
        place->resumed(6);  // a script's second training
        CHECK(board.of(1).resumed == 3);
        place->failed(heard(3, "silence", std::string(5000, 'x')));
        CHECK(board.of(1).end == 2);
        CHECK(std::string(board.of(1).loss).size() == sizeof(RankTells::loss) - 1);
        CHECK(decode_loss(board.of(1).loss).rank == 3);
        CHECK(board.of(0).step == 0);
    }
    CHECK_FALSE(std::getenv("ORRERY_BOARD"));
    CHECK(OwnPlace::of_environment() == nullptr);
    for (const char* wrong : {"", "x", "0", "-1:0:0", "99999:0:0"}) {
        ::setenv("ORRERY_BOARD", wrong, 1);
        CHECK_THROWS_WITH(OwnPlace::of_environment(), Catch::Contains("ORRERY_BOARD="));
    }
    ::unsetenv("ORRERY_BOARD");
}

TEST_CASE("[.sleeps] of the cases below", "[.sleeps]") { std::this_thread::sleep_for(std::chrono::seconds(2)); }

TEST_CASE("a check of a node that fails, or lasts too long, says so", "[supervise][slow]") {
    CHECK(check_by_run({"whom a rank blames"}, 60, 60).fitness == Fitness::fit);
    CHECK_THAT(check_by_run({"--no-such-flag"}, 60, 60).why, Catch::Contains("for usage"));
    const NodeCheck sleeps = check_by_run({"[.sleeps]"}, 60, 0.2);
    CHECK(sleeps.fitness == Fitness::late);
    CHECK(sleeps.why == "its check timed out after 0.2 s");
}

TEST_CASE("a slow check of a node continues until it ends", "[supervise][slow]") {
    const auto began = std::chrono::steady_clock::now();
    NodeCheck slow = check_by_run({"[.sleeps]"}, 0.2, 600);
    CHECK_THAT(slow.why, Catch::Contains("its check is still running after "));
    while (slow.fitness == Fitness::late) slow = check_by_run({"--no-such-flag"}, 0.2, 600);
    CHECK(slow.fitness == Fitness::fit);
    CHECK(std::chrono::steady_clock::now() - began >= std::chrono::seconds(2));
    // One that ended long ago, and which no call has read, is not taken for a new one.
    CHECK(check_by_run({"[.sleeps]"}, 0.2, 600).fitness == Fitness::late);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    CHECK(check_by_run({"--no-such-flag"}, 60, 0.5).fitness != Fitness::fit);
}

TEST_CASE("[.stays] of the case below", "[.stays]") { std::this_thread::sleep_for(std::chrono::seconds(60)); }

TEST_CASE("a second SIGINT kills ranks only if this host got both", "[supervise]") {
    sigset_t term, before;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &term, &before);  // also in the rank, which stays when it is asked to end
    {
        const SignalsHeld held;
        SignalTaker taker;
        LaunchSpec spec;
        spec.arguments = {"unit_tests", "[.stays]"};
        spec.taken_by = &taker;
        RankProcesses ranks(spec, Job{}, held);
        const auto ends_within = [&](std::chrono::milliseconds limit) {
            const auto until = std::chrono::steady_clock::now() + limit;
            do {
                ranks.look();
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            } while (ranks.any() && std::chrono::steady_clock::now() < until);
            return !ranks.any();
        };
        ranks.asked(SIGINT, false);
        ranks.asked(SIGINT);
        CHECK_FALSE(ends_within(std::chrono::milliseconds(200)));
        ranks.asked(SIGINT);
        REQUIRE(ends_within(std::chrono::seconds(30)));
        CHECK(ranks.ends().at(0).signal == SIGKILL);
        CHECK(ranks.code() == 130);
    }
    ::signal(SIGPIPE, SIG_DFL);
    ::signal(SIGXFSZ, SIG_DFL);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("what launchers say to each other comes back as it was", "[supervise]") {
    const Loss how{.cause = Cause::early_end,
                   .rank = 3,
                   .node = 1,
                   .pid = 42,
                   .nonce = "abc",
                   .code = 3,
                   .step = 12,
                   .site = "signal-9",
                   .hearsay = true,
                   .text = "ended\nwith exit code 0"};
    const Loss back = loss_of(to_json(how));
    CHECK(same_failure(back, how));
    CHECK((back.pid == how.pid && back.nonce == how.nonce && back.hearsay));
    CHECK(back.text.shown() == how.text.shown());
    CHECK(encode(decode_loss(encode(Loss{}))) == encode(Loss{}));
    for (const char* bad : {"", "x", "11 1 -1 -1 0 0 0  \n", "4 256 -1 -1 0 0 0  \n", "4 1 -1 -1 0 0 0  A\n",
                            "4 1 -1 -1 0 0 0  a b\n", "4 1 -1 -1 0 0 0\nsave"})
        CHECK_THROWS_AS(decode_loss(bad), Error);
}

TEST_CASE("a launcher that is lost with the job's end does not keep that from the others", "[supervise]") {
    using namespace std::chrono_literals;
    Job job;
    job.token = "a secret of the test's own";
    job.port = serve(test::tcp(), options_of(job, 1))->port();  // free by now
    const std::shared_ptr<RendezvousBackend> backend(&test::tcp(), [](RendezvousBackend*) {});
    Agents agents(backend, job, 3);
    const auto come = [&](int64_t node) {
        auto mail = std::make_unique<LauncherMail>(*backend, job, node, 3, "order", 5s, nullptr);
        if (const Loss lost = mail->loss()) throw Error(lost.text.shown(), Fault::peer);  // as a follower
        mail->report({{"node", node}, {"self", "x"}, {"event", "here"}, {"more", nullptr}});
        return mail;
    };
    const auto within = [](std::chrono::seconds limit, const std::function<bool()>& done) {
        const auto until = std::chrono::steady_clock::now() + limit;
        while (!done() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(5ms);
        return done();
    };
    auto first = come(1), second = come(2);
    size_t here = 0;
    REQUIRE(within(10s, [&] { return (here += agents.news().size()) == 2; }));
    second.reset();  // as a process that is killed
    REQUIRE(within(10s, [&] { return bool(first->loss()); }));
    std::thread ends([&] { agents.finish({{"do", "finish"}, {"code", 3}}); });
    first.reset();
    std::optional<Json> order;
    std::string problem;
    try {
        within(10s, [&] {
            try {
                first = come(1);
            } catch (const Error&) {  // node 0 has not seen it yet
            }
            return first != nullptr;
        });
        within(5s, [&] { return !first || order || (order = first->next()); });
        if (order) first->report({{"node", 1}, {"self", "x"}, {"event", "finished"}, {"more", nullptr}});
        if (first) first->leave();
    } catch (const std::exception& error) {
        problem = error.what();
    }
    ends.join();
    CHECK(problem == "");
    REQUIRE(order);
    CHECK(order->value("code", 0) == 3);
    CHECK(ended_by_node_0({.cause = Cause::error, .node = 0}));
    CHECK_FALSE(ended_by_node_0({.cause = Cause::error, .node = 1}));
    CHECK_FALSE(ended_by_node_0({.cause = Cause::process, .node = 0}));
}

TEST_CASE("a launcher that fails before it comes reports why, unless that node is there", "[supervise]") {
    using namespace std::chrono_literals;
    Job job;
    job.token = "a secret of the test's own";
    job.port = serve(test::tcp(), options_of(job, 1))->port();  // free by now
    const std::shared_ptr<RendezvousBackend> backend(&test::tcp(), [](RendezvousBackend*) {});
    Agents agents(backend, job, 2);
    const Loss mistake{.cause = Cause::mistake, .node = 1, .code = 2, .text = "no such script"};
    const auto report = [&](const std::string& nonce) {
        Job mine = job;
        mine.nonce = nonce;
        return report_failure(*backend, mine, 1, mistake, 5s, nullptr);
    };
    REQUIRE(report("first"));
    std::vector<NodeNews> news;
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (news.empty() && std::chrono::steady_clock::now() < until) {
        news = agents.news();
        std::this_thread::sleep_for(5ms);
    }
    REQUIRE(news.size() == 1);
    CHECK(news[0].kind == NodeNews::Kind::report);
    CHECK(news[0].text.value("event", "") == "failed");
    CHECK(loss_of(news[0].text.at("more")).text.shown() == "no such script");
    CHECK(agents.meeting() == 1);  // it has left: those who are there need not meet again
    Job one = job;
    one.nonce = "one";
    LauncherMail mail(*backend, one, 1, 2, "order", 5s, nullptr);
    CHECK_FALSE(report("second"));
    CHECK(agents.news().empty());
    CHECK_FALSE(mail.loss());
    mail.leave();
}

TEST_CASE("goodput: where a job's time went", "[supervise]") {
    Goodput goodput;
    add(goodput, {.started = 10, .began = 12, .repeated = 0, .last = 22, .ended = 23.5, .failed = true}, true);
    add(goodput, {.started = 24, .began = 0, .ended = 25, .failed = true}, false);
    add(goodput, {.started = 26, .began = 28, .repeated = 31, .last = 41, .ended = 42}, false);
    goodput.waiting = 1.5;
    CHECK(goodput.starts == 2);
    CHECK(goodput.restore == 3);
    CHECK(goodput.repeated == 3);
    CHECK(goodput.detection == 1.5);
    CHECK(goodput.steps == 21);
    CHECK(goodput.all() == 32);  // all of it is told
    CHECK(goodput.text(2) ==
          "goodput 65.6 %: 21.0 s of 32.0 s in new steps; start 2.0 s, detection 1.5 s, restore 3.0 s, repeated steps "
          "3.0 s, waiting 1.5 s; 2 restarts");
}

TEST_CASE("events are appended, one a line", "[supervise]") {
    const auto folder = std::filesystem::temp_directory_path() / ("orrery-events-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    EventLog(folder.string()).tell(1, "start", {{"ranks", 4}});
    EventLog(folder.string()).tell(2, "ended", {{"how", "bytes \xff"}});
    std::ifstream file(folder / "events.jsonl");
    std::string first, second, none;
    std::getline(file, first);
    std::getline(file, second);
    CHECK_FALSE(std::getline(file, none));
    CHECK(Json::parse(first)["event"] == "start");
    CHECK(Json::parse(first)["ranks"] == 4);
    CHECK(Json::parse(second)["generation"] == 2);
    EventLog("").tell(1, "start", Json::object());
    std::filesystem::remove_all(folder);
    CHECK_THROWS_WITH(EventLog(folder.string()), Catch::Contains("events.jsonl"));
}

TEST_CASE("an event is no part of a line that a writer has left cut, nor is one cut itself", "[supervise]") {
    const auto folder = std::filesystem::temp_directory_path() / ("orrery-torn-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const std::string path = (folder / "events.jsonl").string();
    const auto lines = [&] {
        std::ifstream file(path);
        std::vector<std::string> all;
        for (std::string line; std::getline(file, line);) all.push_back(line);
        return all;
    };
    const std::string whole = R"({"event":"start"})";
    for (const auto& [there, kept] : std::vector<std::pair<std::string, size_t>>{{whole + "\n" + R"({"event":"tra)", 1},
                                                                                 {R"({"ev)", 0},
                                                                                 {whole + "\n" + whole, 2},
                                                                                 {whole + "\n", 1},
                                                                                 {"", 0}}) {
        INFO(there);
        std::ofstream(path) << there;
        EventLog(folder.string()).tell(2, "ended", Json::object());
        const std::vector<std::string> all = lines();
        REQUIRE(all.size() == kept + 1);
        for (size_t i = 0; i < kept; ++i) CHECK(all[i] == whole);
        CHECK(Json::parse(all.back())["event"] == "ended");
    }

    // A disk that takes a part of a line: a file's largest size stands for it.
    std::ofstream(path) << whole << "\n";
    struct rlimit before {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto old = ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small { whole.size() + 11, before.rlim_max };
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    EventLog(folder.string()).tell(3, "ended", Json::object());
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    ::signal(SIGXFSZ, old);
    CHECK(lines() == std::vector<std::string>{whole});
    EventLog(folder.string()).tell(4, "end", Json::object());
    REQUIRE(lines().size() == 2);
    CHECK(Json::parse(lines().back())["generation"] == 4);
    std::filesystem::remove_all(folder);
}

TEST_CASE("a notice that can never appear, or is there, is told", "[supervise]") {
    const auto folder = std::filesystem::temp_directory_path() / ("orrery-notice-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    CHECK(notice_problem((folder / "going").string()).empty());
    CHECK_THAT(notice_problem(folder.string()), Catch::Contains("is a folder"));
    CHECK_THAT(notice_problem((folder / "none" / "going").string()), Catch::Contains("is not a folder"));
    std::ofstream(folder / "going") << "x";
    CHECK_THAT(notice_problem((folder / "going").string()), Catch::Contains("already exists"));
    CHECK_THAT(notice_problem((folder / "going" / "x").string()), Catch::Contains("cannot be checked"));
    std::filesystem::remove_all(folder);
}

TEST_CASE("a step and a save that do not fit are left out", "[supervise]") {
    TimeLeft unknown(0);
    unknown.step_took(1000);
    CHECK(unknown.fits(1e6));
    TimeLeft left(10);
    CHECK(left.fits(0));  // nothing is known of it
    left.step_took(2);
    left.save_took(4);
    CHECK(left.needed_s() == 7.5);
    CHECK(left.fits(2.5));
    CHECK_FALSE(left.fits(2.6));
    left.step_took(1);
    CHECK(left.needed_s() == Approx(1.25 * (1.8 + 4)));
    CHECK(left.needed_s(1) == Approx(1.25 * (1.8 + 3 + 4)));  // one is under way: it is ended first
    CHECK(left.needed_s(5) == Approx(1.25 * (1.8 + 4)));
    TimeLeft saves(10);
    saves.save_took(3);
    CHECK(saves.fits(4));
    CHECK_FALSE(saves.fits(4, 1));
    CHECK(saves.fits(4, 3));
}
