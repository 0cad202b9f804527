// Which kind of products a run has: by an injected measurer, so that nothing depends on time or on the processor.
#include "run/products/products.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "cli/products/child.h"
#include "cli/signals.h"
#include "folders.h"
#include "run/products/measure.h"
#include "run/products/product_cache.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

/// Has three kinds, and multiplies in the slowest way there is, each kind with a mistake of its own.
class ThreeKinds : public Device {
public:
    DeviceLimits limits() override { return {}; }
    Memory allocate(int64_t bytes, MemoryKind kind) override {
        return {memory_.emplace_back(static_cast<size_t>(bytes)).data(), bytes, kind, ""};
    }
    void release(Memory& memory) override { memory = {}; }
    std::string why_not(const KernelSpec&) override { return ""; }
    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override {
        attributes_ = spec.attributes;
        return std::make_unique<Kernel>();
    }
    void launch(int, Kernel&, std::span<const Tensor> x, void*) override {
        const bool ta = attributes_.flag("trans_a"), tb = attributes_.flag("trans_b");
        const int64_t m = x[2].shape[0], n = x[2].shape[1], k = x[0].shape[ta ? 0 : 1];
        const auto* a = static_cast<const float*>(x[0].data);
        const auto* b = static_cast<const float*>(x[1].data);
        auto* c = static_cast<float*>(x[2].data);
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
                float sum = 0;
                for (int64_t l = 0; l < k; ++l) sum += a[ta ? l * m + i : i * k + l] * b[tb ? j * k + l : l * n + j];
                c[i * n + j] = sum;
            }
        if (kinds.in_use == "own" && m > 100) c[m * n - 1] += 1;  // in the last of the odd edge
    }
    void copy(int, void* to, const void* from, int64_t bytes) override {
        std::copy_n(static_cast<const char*>(from), bytes, static_cast<char*>(to));
    }
    Event record(int) override { return {}; }
    void wait(int, const Event&) override {}
    void synchronize(int) override {}
    void* native(int) override { return nullptr; }
    ProductKinds products() override { return kinds; }
    void use_products(std::string_view name) override { kinds.in_use = name; }

    ProductKinds kinds{{"usual", "wide", "own"}, "usual", "", "processor=abacus\nthreads=2\n"};

private:
    Attributes attributes_;
    std::vector<std::vector<char>> memory_;
};

/// A folder of its own below the build.
std::string fresh_folder(const std::string& name) {
    const std::string folder = in_build("tests/products_" + name);
    fs::remove_all(folder);
    return folder;
}

/// Rates by kind, in FLOP/s; a kind without one is no candidate.
using Rates = std::map<std::string, double>;

ProductTrial trial_of(const Rates& rates, int* calls = nullptr) {
    return [rates, calls](const std::string& name, DType dtype, bool timed) -> TriedProducts {
        if (calls) ++*calls;
        const auto at = rates.find(name);
        if (at == rates.end()) return {name, "it has none"};
        const double rate = dtype == DType::f32 ? 7 : at->second;  // f32 is of interest for its best rate alone
        return timed ? TriedProducts{name, "", rate, rate + 1} : TriedProducts{name};
    };
}

ProductRank alone() {
    return {0, "here", [](const std::string&, const std::string& mine) { return std::vector{mine}; }};
}

ProductChoice choose(const Rates& rates, std::string folder = "") {
    ThreeKinds device;
    const ProductSearch search{trial_of(rates), std::move(folder)};
    const ProductChoice choice = choose_products(device, DType::bf16, &search, alone());
    CHECK(device.kinds.in_use == choice.name);
    return choice;
}

/// Ranks as threads, which exchange texts in rounds.
class Rounds {
public:
    explicit Rounds(size_t ranks) : texts_(ranks) {}

    std::vector<std::string> all(size_t rank, const std::string& mine) {
        std::unique_lock lock(mutex_);
        texts_[rank] = mine;
        const int64_t round = round_;
        if (++come_ == texts_.size()) {
            said_ = texts_;
            come_ = 0;
            ++round_;
            changed_.notify_all();
        }
        changed_.wait(lock, [&] { return round_ != round; });
        return said_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> texts_, said_;
    size_t come_ = 0;
    int64_t round_ = 0;
};

struct RankCase {
    std::string host;
    Rates rates;
    std::string fixed = {};
};

struct RankResult {
    ProductChoice choice;
    std::string problem, in_use;
    int calls = 0;
};

std::vector<RankResult> choose_on(const std::vector<RankCase>& ranks) {
    std::vector<RankResult> results(ranks.size());
    Rounds rounds(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i)
        threads.emplace_back([&, i] {
            ThreeKinds device;
            if (!ranks[i].fixed.empty())
                device.kinds.in_use = ranks[i].fixed, device.kinds.fixed_by = "device.x.products";
            const ProductSearch search{trial_of(ranks[i].rates, &results[i].calls), ""};
            const ProductRank rank{static_cast<int64_t>(i), ranks[i].host,
                                   [&](const std::string&, const std::string& mine) { return rounds.all(i, mine); }};
            try {
                results[i].choice = choose_products(device, DType::bf16, &search, rank);
            } catch (const Error& error) {
                results[i].problem = error.what();
            }
            results[i].in_use = device.kinds.in_use;
        });
    for (std::thread& thread : threads) thread.join();
    return results;
}

const ProductTrial never = [](const std::string&, DType, bool) -> TriedProducts { throw Error("it was measured"); };

}  // namespace

TEST_CASE("another kind of products is taken where it is 5 % faster than the default", "[products]") {
    CHECK(choose({{"usual", 100}, {"wide", 104.9}, {"own", 90}}).name == "usual");
    CHECK(choose({{"usual", 100}, {"wide", 105}, {"own", 90}}).name == "wide");
    CHECK(choose({{"usual", 100}, {"wide", 110}, {"own", 120}}).name == "own");
    const ProductChoice choice = choose({{"usual", 100e9}, {"wide", 90e9}, {"own", 120e9}});
    CHECK(choice.best_flops == 120e9 + 1);
    CHECK(choice.common == std::vector<std::string>{"usual", "wide", "own"});
    CHECK(choice.said.at(0) == "products: own, 120.0 GFLOP/s of bf16 on a rank (usual 100.0; wide 90.0)");
    CHECK(choice.said.at(1) == "products: what was measured is not kept: there is neither XDG_CACHE_HOME nor HOME");
}

TEST_CASE("the best rate is that of f32 where 16-bit operands are slower", "[products]") {
    CHECK(choose({{"usual", 2}, {"wide", 1}}).best_flops == 8);
    CHECK(choose({{"usual", 20}, {"wide", 1}}).best_flops == 21);
}

TEST_CASE("a kind that is no candidate is not taken, the default neither", "[products]") {
    const ProductChoice choice = choose({{"wide", 10e9}, {"own", 9e9}});
    CHECK(choice.name == "wide");
    CHECK(choice.common == std::vector<std::string>{"wide", "own"});
    CHECK(choice.said.at(0) ==
          "products: wide, 10.0 GFLOP/s of bf16 on a rank (usual is no candidate: it has none; own 9.0)");
    CHECK_THAT(
        [] {
            try {
                choose({});
            } catch (const Error& error) {
                return std::string(error.what());
            }
            return std::string();
        }(),
        Contains("no kind of matrix products runs here") && Contains("usual is no candidate: it has none"));
}

TEST_CASE("nothing is measured where nobody asks for it, or where a kind is fixed", "[products]") {
    ThreeKinds device;
    const ProductChoice usual = choose_products(device, DType::f32, nullptr, alone());
    CHECK(usual.name == "usual");
    CHECK(usual.said == std::vector<std::string>{"products: usual (the default)"});
    CHECK(usual.best_flops == 0);
    device.kinds.in_use = "own";
    device.kinds.fixed_by = "device.x.products";
    const ProductSearch search{never, fresh_folder("fixed")};
    const ProductChoice fixed = choose_products(device, DType::f32, &search, alone());
    CHECK(fixed.name == "own");
    CHECK(fixed.said == std::vector<std::string>{"products: own (device.x.products)"});
    CHECK(!fs::exists(search.folder));
    device.kinds = {};
    const ProductChoice none = choose_products(device, DType::f32, &search, alone());
    CHECK(none.name.empty());
    CHECK(none.said.empty());
}

TEST_CASE("a program that was started ends on the signals of who started it", "[products]") {
    const auto begin = std::chrono::steady_clock::now();
    {
        HeldSignals held;
        const auto run = [&](const std::string& script) {
            return run_child({"/bin/sh", "-c", script}, std::chrono::seconds(100), &held);
        };
        CHECK(run("echo out").output == "out\n");
        ::raise(SIGTERM);  // waits for its owner
        const ChildEnd asked = run("trap 'kill $!; exit' TERM; sleep 50 & wait");
        CHECK(asked.stopped == SIGTERM);
        CHECK(asked.why_not() == "was stopped by signal 15 (Terminated)");
        CHECK(held.take() == 0);
        ::raise(SIGINT);
        ::raise(SIGTERM);
        const ChildEnd deaf = run("trap '' TERM; exec sleep 50");
        CHECK(deaf.stopped == SIGINT);
        ::raise(SIGUSR1);
        CHECK(held.take() == SIGUSR1);
        CHECK(held.take() == 0);
    }
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(50));
}

TEST_CASE("a trial that faults, hangs or fails is no candidate", "[products][slow]") {
    const auto run = [](const std::string& script, int64_t limit_ms = 20'000) {
        return run_child({"/bin/sh", "-c", script}, std::chrono::milliseconds(limit_ms));
    };
    CHECK(run("kill -ILL $$").why_not() == "was ended by signal 4 (Illegal instruction)");
    CHECK(run("kill -SEGV $$").why_not() == "was ended by signal 11 (Segmentation fault)");
    CHECK(run("sleep 60", 100).why_not() == "did not end within 0.1 s");
    CHECK(run("exec > /dev/null 2>&1; sleep 60", 100).why_not() == "did not end within 0.1 s");
    CHECK(run("echo first >&2; echo the reason >&2; exit 3").why_not() == "ended with exit code 3: the reason");
    CHECK(run("exit 3").why_not() == "ended with exit code 3");
    CHECK(run_child({"/no/such/program"}, std::chrono::seconds(20)).why_not() ==
          "could not be run: /no/such/program cannot be executed");
    for (const char* signal : {"ILL", "SEGV", "BUS", "FPE", "TRAP"})
        CHECK(run("kill -" + std::string(signal) + " $$").faulted());
    for (const char* signal : {"INT", "TERM", "HUP", "KILL", "ABRT"})
        CHECK(!run("kill -" + std::string(signal) + " $$").faulted());
    CHECK(!run("exit 3").faulted());
    const auto before = ::signal(SIGCHLD, SIG_IGN);
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THAT(run("exit 0").why_not(), Contains("could not be run: No child"));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
    ::signal(SIGCHLD, before);
    CHECK(run("ulimit -c").output == "0\n");
    const ChildEnd good = run("cat; echo out; echo err >&2");  // there is no input
    CHECK(good.why_not().empty());
    CHECK(good.output == "out\n");
    CHECK(good.errors == "err\n");
    CHECK(run("head -c 1000000 /dev/zero").output.size() == 1 << 16);

    ThreeKinds device;
    const ProductSearch search{[&](const std::string& name, DType, bool) -> TriedProducts {
                                   if (name == "usual") return {name, "", 1e9, 1e9};
                                   return {name, "its trial " + run("kill -ILL $$").why_not(), 0, 0};
                               },
                               ""};
    const ProductChoice choice = choose_products(device, DType::f32, &search, alone());
    CHECK(choice.name == "usual");
    CHECK_THAT(choice.said.at(0),
               Contains("wide is no candidate: its trial was ended by signal 4 (Illegal instruction)"));
}

TEST_CASE("what was measured is kept, and looked up the next time", "[products]") {
    const std::string folder = fresh_folder("kept");
    ThreeKinds device;
    int calls = 0;
    const ProductSearch search{trial_of({{"usual", 100}, {"wide", 90}, {"own", 120}}, &calls), folder};
    const ProductChoice first = choose_products(device, DType::bf16, &search, alone());
    CHECK(calls == 6);  // and f32, to which bf16 can be widened
    CHECK_THAT(first.said.at(0), Contains(", kept in " + folder + "/products/"));
    const ProductChoice second = choose_products(device, DType::bf16, &search, alone());
    CHECK(calls == 9);  // each once more, untimed, and none of f32
    CHECK(second.name == "own");
    CHECK(second.best_flops == first.best_flops);
    CHECK_THAT(second.said.at(0), Contains(", as kept in " + folder + "/products/"));
    CHECK(second.said.size() == 1);

    // On a machine of the same model that lacks it.
    const ProductSearch lacks{trial_of({{"usual", 100}, {"wide", 90}}), folder};
    const ProductChoice third = choose_products(device, DType::bf16, &lacks, alone());
    CHECK(third.name == "usual");
    CHECK_THAT(third.said.at(0), Contains("own is no candidate: it has none"));
    CHECK_THAT(third.said.at(1), Contains("own was a candidate when " + folder));

    // What may not hold the next time is not kept.
    const ProductSearch late{[](const std::string& name, DType, bool) -> TriedProducts {
                                 if (name == "own") return {name, "it was late", 0, 0, true};
                                 return {name, "", 1, 1};
                             },
                             fresh_folder("late")};
    const ProductChoice fourth = choose_products(device, DType::f32, &late, alone());
    CHECK(fourth.said.at(1) == "products: what was measured is not kept: own: it was late");
    CHECK(!fs::exists(late.folder));

    device.kinds.machine = "processor=loom\nthreads=2\n";
    choose_products(device, DType::bf16, &search, alone());
    CHECK(calls == 15);
}

TEST_CASE("what cannot be tried is neither kept nor the end of a run", "[products]") {
    ThreeKinds device;
    const std::string folder = fresh_folder("untried");
    const ProductSearch interrupted{[](const std::string& name, DType, bool) -> TriedProducts {
                                        return {name, "no threads left", 0, 0, true};
                                    },
                                    folder};
    const ProductChoice choice = choose_products(device, DType::bf16, &interrupted, alone());
    CHECK(choice.name == "usual");
    CHECK(choice.best_flops == 0);
    CHECK_THAT(choice.said.at(0), Contains("products: usual, not measured (wide is no candidate: no threads left"));
    CHECK_THAT(choice.said.at(1), Contains("is not kept: usual: no threads left"));
    CHECK(choice.said.at(2) == "products: none could be tried, usual is taken as the default");
    CHECK(!fs::exists(folder));

    const ProductSearch lacking{[](const std::string& name, DType, bool) -> TriedProducts {
                                    return {name, "it is wrong"};
                                },
                                folder};
    CHECK_THROWS_WITH(choose_products(device, DType::bf16, &lacking, alone()), Contains("usual is no candidate"));
    CHECK(!fs::exists(folder));

    const ProductSearch good{trial_of({{"usual", 100}, {"wide", 90}, {"own", 120}}), folder};
    CHECK(choose_products(device, DType::bf16, &good, alone()).name == "own");
    const ProductChoice later = choose_products(device, DType::bf16, &interrupted, alone());
    CHECK(later.name == "usual");
    CHECK_THAT(later.said.at(1), Contains("usual could not be tried again: no threads left"));
}

TEST_CASE("a damaged or foreign file of products is named, and they are measured anew", "[products]") {
    const std::string folder = fresh_folder("damaged");
    ThreeKinds device;
    const std::unique_ptr<Env> env = system_env();
    const ProductCache cache(*env, folder);
    const std::vector<TriedProducts> tried = {{"usual", "", 3, 4}, {"wide", "it is late"}, {"own", "", 5, 6}};
    const std::string path = cache.path(device.kinds, DType::f32);
    const auto write = [&](const std::string& text) { std::ofstream(path, std::ios::trunc) << text; };
    std::vector<std::string> notes;
    CHECK(!cache.find(device.kinds, DType::f32, notes));
    cache.keep(device.kinds, DType::f32, tried, notes);
    CHECK(notes.empty());
    CHECK(cache.find(device.kinds, DType::f32, notes) == tried);
    CHECK(!cache.find(device.kinds, DType::bf16, notes));
    CHECK(notes.empty());
    const std::string whole = env->read_file(path);

    const auto said = [&] {
        notes.clear();
        CHECK(!cache.find(device.kinds, DType::f32, notes));
        return notes.size() == 1 ? notes[0] : "";
    };
    for (size_t i = 0; i < whole.size(); ++i) {  // each byte; spaces and line ends between tokens mean nothing
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ 1);
        write(damaged);
        notes.clear();
        const auto found = cache.find(device.kinds, DType::f32, notes);
        if (found ? *found != tried : notes.size() != 1) FAIL("byte " << i);
    }
    write(whole.substr(0, whole.size() / 2));
    CHECK_THAT(said(), Contains(path) && Contains("measured anew") && Contains("not valid json"));
    write("");
    CHECK_THAT(said(), Contains(path));
    write("{\"format\": \"something else\"}");
    CHECK_THAT(said(), Contains("it is no file of measured products"));
    ProductKinds other = device.kinds;
    other.machine = "processor=loom\n";
    cache.keep(other, DType::f32, tried, notes);
    fs::copy_file(cache.path(other, DType::f32), path, fs::copy_options::overwrite_existing);
    CHECK_THAT(said(), Contains("it is of another machine"));
    write(whole);
    std::swap(device.kinds.names[1], device.kinds.names[2]);
    CHECK_THAT(said(), Contains("it has other kinds: usual, wide, own"));
    std::swap(device.kinds.names[1], device.kinds.names[2]);
    fs::remove(path);
    REQUIRE(std::system(("mkfifo " + path).c_str()) == 0);
    CHECK_THAT(said(), Contains("it is a named pipe"));
    fs::remove(path);
    write("no json");
    const ProductSearch search{trial_of({{"usual", 100}, {"wide", 90}, {"own", 120}}), folder};
    const ProductChoice choice = choose_products(device, DType::f32, &search, alone());
    CHECK_THAT(choice.said.at(1), Contains(path) && Contains("measured anew"));
    CHECK(env->read_file(path) != "no json");
    notes.clear();
    CHECK(cache.find(device.kinds, DType::f32, notes));
}

TEST_CASE("a folder of products that cannot be written is said, and no error", "[products]") {
    const std::string folder = fresh_folder("unwritable");
    std::ofstream(folder) << "a file";
    const ProductChoice choice = choose({{"usual", 100}, {"own", 120}}, folder);
    CHECK(choice.name == "own");
    CHECK_THAT(choice.said.at(1), Contains("not kept") && Contains(folder));
}

TEST_CASE("processes that write and read one file of products find it whole", "[products]") {
    const std::string folder = fresh_folder("concurrent");
    constexpr int writers = 3, rounds = 60;
    const ThreeKinds device;
    const auto tried_by = [](int writer) {
        const double rate = 1 + writer;
        std::vector<TriedProducts> tried = {{"usual", "", rate, rate}, {"wide", "", rate, rate}};
        tried.push_back({"own", std::string(static_cast<size_t>(1 + 3000 * writer), 'x')});
        return tried;
    };
    const std::unique_ptr<Env> env = system_env();
    const ProductCache cache(*env, folder);
    std::vector<std::string> notes;
    cache.keep(device.kinds, DType::f32, tried_by(0), notes);
    std::vector<pid_t> children;
    for (int writer = 0; writer < writers; ++writer) {
        children.push_back(::fork());
        if (children.back() != 0) continue;
        for (int i = 0; i < rounds; ++i) cache.keep(device.kinds, DType::f32, tried_by(writer), notes);
        ::_exit(notes.empty() ? 0 : 1);
    }
    std::set<double> seen;
    int running = writers;
    bool good = true;
    while (running > 0) {
        const auto found = cache.find(device.kinds, DType::f32, notes);
        if (!found || !notes.empty() || *found != tried_by(static_cast<int>(found->front().rate) - 1)) good = false;
        if (found) seen.insert(found->front().rate);
        int status = 0;
        if (::waitpid(-1, &status, WNOHANG) > 0) --running, good = good && status == 0;
    }
    CHECK(good);
    CHECK(!seen.empty());
    for (const auto& entry : fs::directory_iterator(folder + "/products"))  // nothing half written is left
        CHECK(entry.path().extension() == ".json");
}

TEST_CASE("ranks take a kind of products that all have, the fastest on the slowest rank", "[products]") {
    const auto names = [](const std::vector<RankResult>& results) {
        std::vector<std::string> all;
        for (const RankResult& one : results) {
            INFO(one.problem);
            CHECK(one.in_use == one.choice.name);
            CHECK(one.choice.said == results.front().choice.said);
            all.push_back(one.choice.name);
        }
        return all;
    };
    const auto lacking =
        choose_on({{"a", {{"usual", 100e9}, {"own", 130e9}}}, {"b", {{"usual", 50e9}, {"wide", 90e9}}}});
    CHECK(names(lacking) == std::vector<std::string>{"usual", "usual"});
    CHECK_THAT(lacking[0].choice.said.at(0), Contains("usual, 50.0 GFLOP/s") &&
                                                 Contains("wide is no candidate on a: it has none") &&
                                                 Contains("own is no candidate on b: it has none"));
    // own is the fastest on a, wide on b, which is slower.
    CHECK(names(choose_on({{"a", {{"usual", 100}, {"wide", 110}, {"own", 140}}},
                           {"b", {{"usual", 50}, {"wide", 80}, {"own", 60}}}})) ==
          std::vector<std::string>{"wide", "wide"});
    // One rank of each host and machine measures.
    const auto hosts = choose_on({{"a", {{"usual", 100}, {"own", 130}}},
                                  {"a", {{"usual", 1}, {"own", 1}}},
                                  {"b", {{"usual", 100}, {"own", 130}}}});
    CHECK(names(hosts) == std::vector<std::string>{"own", "own", "own"});
    CHECK(hosts[0].calls == 6);
    CHECK(hosts[1].calls == 0);
    CHECK(hosts[2].calls == 6);
    CHECK(hosts[1].choice.best_flops == 131);
}

TEST_CASE("a rank that has fixed its kind of products decides for all, or all are told", "[products]") {
    const auto fixed = choose_on({{"a", {{"usual", 100}, {"own", 130}}}, {"b", {}, "wide"}});
    for (const RankResult& one : fixed)
        CHECK_THAT(one.problem, Contains("no kind of matrix products that all ranks have") &&
                                    Contains("rank 0 on a: usual, own; wide is no candidate: it has none") &&
                                    Contains("rank 1 on b: wide (device.x.products)"));
    const auto agreed = choose_on({{"a", {{"usual", 100}, {"own", 130}}}, {"b", {}, "usual"}});
    for (const RankResult& one : agreed) {
        CHECK(one.in_use == "usual");
        CHECK(one.choice.said.at(0) == "products: usual (device.x.products)");
    }
    CHECK(agreed[1].calls == 0);
    CHECK_THAT(choose_on({{"a", {}, "own"}, {"b", {}, "usual"}})[0].problem, Contains("rank 1 on b: usual"));
}

TEST_CASE("a run that resumes has the checkpoint's kind of products, or says that bits will differ", "[products]") {
    const ProductChoice measured{"own", "", {"usual", "own"}, 0, {}};
    const auto after = [](ProductChoice choice, const std::string& saved) {
        resume_products(choice, saved, 40);
        return std::pair(choice.name, choice.said.empty() ? "" : choice.said.back());
    };
    using Pair = std::pair<std::string, std::string>;
    CHECK(after(measured, "") == Pair("usual",
                                      "the checkpoint of step 40 does not say which products it had; from here on "
                                      "they are usual (the default)"));
    CHECK(after(measured, "own") == Pair("own", ""));
    CHECK(after(measured, "usual") ==
          Pair("usual", "products: usual after all, as those of the checkpoint of step 40"));
    CHECK(after(measured, "wide") ==
          Pair("own",
               "products were wide until step 40, from here on they are own (wide is no candidate on all "
               "ranks): bits will differ from those of a run that did not stop"));
    const ProductChoice fixed{"own", "device.x.products", {"own"}, 0, {}};
    CHECK(after(fixed, "usual") ==
          Pair("own",
               "products were usual until step 40, from here on they are own (device.x.products): bits will "
               "differ from those of a run that did not stop"));
    CHECK_THAT(after(fixed, "").second, Contains("from here on they are own (device.x.products)"));
    CHECK(after({}, "usual") == Pair("", ""));
    CHECK(after({}, "") == Pair("", ""));
}

TEST_CASE("a trial compares products with exact ones", "[products]") {
    ThreeKinds device;
    const TriedProducts right = measure_products(device, "usual", DType::f32, false);
    CHECK(right.why_not.empty());
    device.use_products("own");
    CHECK_THROWS_WITH(measure_products(device, "own", DType::f32, false),
                      Contains("f32 of [130,200] x [200,97] is wrong: element (129, 96) is"));
}
