// What a run tells of its steps: metrics.jsonl, TensorBoard's event files, Prometheus' file.
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/env.h"
#include "base/json.h"
#include "event_reader.h"
#include "folders.h"
#include "orrery/error.h"
#include "run/metrics/breakdown.h"
#include "run/metrics/metrics.h"

using namespace orrery;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Folder {
    std::string path;
    explicit Folder(const std::string& name) : path(in_build("tests/run_metrics_" + name)) {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
    MetricsPlaces places() const {
        return {path + "/metrics.jsonl", path + "/tensorboard", path + "/a.prom", "runs/a"};
    }
};

struct Nothing {
    std::FILE* file = std::fopen("/dev/null", "w");
    ~Nothing() { std::fclose(file); }
};

std::vector<Json> lines_of(const std::string& folder) {
    std::istringstream in(system_env()->read_file(folder + "/metrics.jsonl"));
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
}

/// Numbers that no two steps share; `shift` for a step that is run again.
StepMetrics metrics_of(int64_t step, std::span<const StepResult> results, double shift = 0) {
    StepMetrics m;
    m.step = step;
    m.steps = 20;
    m.loss = 5.0 / static_cast<double>(step) + shift;
    m.grad_norm = 0.1 * static_cast<double>(step);
    m.lr = 1e-3;
    m.time = 1795617079.744324 + static_cast<double>(step);
    m.seconds = 0.25;
    m.tokens = 128;
    m.flops = 1e9;
    m.full_flops = 1.25e9;
    m.peak_flops = 1e11;
    m.memory_bytes = 31129600;
    m.all_tokens = 128 * step;
    m.all_samples = 8 * step;
    m.data_s = 0.025;
    m.communication_s = 0.05;
    m.waiting_s = 0.0125;
    m.checkpoint_s = step == 11 ? 1.5 : 0;
    m.results = results;
    return m;
}

/// The tag of a key of metrics.jsonl.
std::string tag_of(const std::string& key) {
    for (const StepColumn& column : step_columns())
        if (key == column.key) return column.tag;
    if (key == "eval_loss") return "validation_metrics/loss";
    return "results/" + key;
}

bool same(float found, const Json& expected) {
    return expected.is_null() ? !std::isfinite(found) : found == static_cast<float>(expected.get<double>());
}

/// Every number of every line is in the event files once, and nothing else is.
void check_equal(const std::string& folder) {
    const auto scalars = test::EventReader::folder(folder + "/tensorboard");
    std::map<std::string, std::set<int64_t>> seen;
    for (const Json& line : lines_of(folder)) {
        const auto step = line["step"].get<int64_t>();
        const bool evaluated = line.contains("eval_loss");
        for (const auto& [key, value] : line.items()) {
            if (key == "step" || (evaluated && key == "time")) continue;
            const bool further = evaluated && key != "eval_loss";
            const size_t parts = value.is_array() ? value.size() : 1;
            for (size_t i = 0; i < parts; ++i) {
                std::string tag = further ? "evaluations/" + key : tag_of(key);
                if (value.is_array()) tag += "/" + std::to_string(i);
                INFO(tag << " of step " << step);
                REQUIRE(scalars.contains(tag));
                REQUIRE(scalars.at(tag).contains(step));
                const std::vector<float>& found = scalars.at(tag).at(step);
                REQUIRE(found.size() == 1);
                CHECK(same(found[0], value.is_array() ? value[i] : value));
                CHECK(seen[tag].insert(step).second);
            }
        }
    }
    for (const auto& [tag, steps] : scalars)
        for (const auto& [step, values] : steps) {
            INFO(tag << " of step " << step << " is in no line");
            CHECK(seen[tag].contains(step));
        }
}

/// The newest event file.
std::string newest(const std::string& folder) {
    const auto names = system_env()->list(folder + "/tensorboard");
    return folder + "/tensorboard/" + names.back();
}

}  // namespace

TEST_CASE("a line of metrics.jsonl has every number of a step") {
    const Folder folder("line");
    const Nothing nothing;
    std::vector<StepResult> results{{"a \"b\"", 1}, {"rows", 3}};
    results[0].values = {0.5};
    results[1].values = {1, std::nan(""), 1e30};
    MetricsWriter writer(folder.places(), nothing.file);
    writer.resume(0);
    writer.step(metrics_of(1, results), false);
    StepMetrics skipped = metrics_of(2, results);
    skipped.has.scale = skipped.skips = true;
    skipped.grad_norm = std::nan("");
    skipped.loss_scale = 1024;
    skipped.skipped = 1;
    skipped.has.nominal = true;
    skipped.nominal_flops = 2e11;
    writer.step(skipped, true);
    writer.evaluation(2, {{"eval", 30, 10}, {"eval_a", 1, 4}});
    const auto lines = lines_of(folder.path);
    REQUIRE(lines.size() == 3);
    CHECK(system_env()->read_file(folder.path + "/metrics.jsonl").substr(0, 600) ==
          lines[0].dump() + "\n" + lines[1].dump().substr(0, 599 - lines[0].dump().size()));
    CHECK(lines[0].dump() ==
          R"({"step":1,"loss":5.0,"grad_norm":0.1,"lr":0.001,"tok/s":512.0,"TFLOP/s":0.004,"MFU":0.04,)"
          R"("memory":31129600,"time":1795617080.744324,"seconds":0.25,"tokens":128,"samples":8,"data_share":0.1,)"
          R"("communication_share":0.2,"waiting_share":0.05,"checkpoint_seconds":0.0,"MFU_full":0.05,"a \"b\"":0.5,)"
          R"("rows":[1.0,null,1e+30]})");
    CHECK(lines[1]["grad_norm"].is_null());
    CHECK(lines[1]["loss_scale"] == 1024);
    CHECK(lines[1]["skipped"] == 1);
    CHECK(lines[1]["MFU_nominal"] == 0.02);
    CHECK(lines[2]["eval_loss"] == 3);
    CHECK(lines[2]["eval_tokens"] == 10);
    CHECK(lines[2]["eval_a"] == 0.25);
    CHECK(lines[2]["time"].get<double>() > 1.7e9);
    check_equal(folder.path);
}

TEST_CASE("event files hold each step of metrics.jsonl once, wherever runs were killed") {
    const Folder folder("resumed");
    const Nothing nothing;
    const std::vector<StepResult> results{{"rows", 2}};
    // Steps from..to of a start; what goes on from an older checkpoint has other numbers, so that none is mistaken.
    const auto start = [&](int64_t resumed, int64_t last, double shift) {
        MetricsWriter writer(folder.places(), nothing.file);
        writer.resume(resumed);
        for (int64_t step = resumed + 1; step <= last; ++step) {
            writer.step(metrics_of(step, results, shift), false);
            if (step % 5 == 0) writer.evaluation(step, {{"eval", 3 * shift + 1, 2}});
        }
    };
    start(0, 12, 0);
    check_equal(folder.path);
    // Killed inside of a record, and inside of a line: at every length of the last one.
    const std::string lines = system_env()->read_file(folder.path + "/metrics.jsonl");
    const std::string cut = newest(folder.path), events = system_env()->read_file(cut);
    const auto last = test::EventReader::file(cut);
    REQUIRE(last.back().step == 12);
    for (size_t less = 1; less < 40; ++less) {
        system_env()->replace_file(cut, events.substr(0, events.size() - less));
        REQUIRE(test::EventReader::file(cut).size() == last.size() - 1);
    }
    system_env()->replace_file(folder.path + "/metrics.jsonl", lines.substr(0, lines.size() - 20));
    start(10, 13, 1);
    check_equal(folder.path);
    CHECK(lines_of(folder.path).size() == 13 + 2);
    start(5, 7, 2);  // from an older checkpoint
    check_equal(folder.path);
    CHECK(lines_of(folder.path).size() == 7 + 1);
    start(0, 3, 3);  // anew, as where no checkpoint was
    check_equal(folder.path);
    CHECK(lines_of(folder.path).size() == 3);
    start(3, 20, 4);
    start(20, 20, 5);
    check_equal(folder.path);
    CHECK(lines_of(folder.path).size() == 20 + 4);
    CHECK(system_env()->list(folder.path + "/tensorboard").size() == 6);
    const auto first = test::EventReader::file(newest(folder.path));
    REQUIRE(first.size() == 4);  // the step that it goes on from, and its evaluation, are told again
    CHECK(first[0].version == "brain.Event:2");
    CHECK(first[1].starts);
    for (size_t i = 1; i < 4; ++i) CHECK(first[i].step == 20);
}

TEST_CASE("an evaluation that is there already is told, not written again") {
    const Folder folder("evaluated");
    const Nothing nothing;
    for (int start = 0; start < 3; ++start) {
        MetricsWriter writer(folder.places(), nothing.file);
        writer.resume(start == 0 ? 0 : 4);
        if (start == 0)
            for (int64_t step = 1; step <= 4; ++step) writer.step(metrics_of(step, {}), false);
        writer.evaluation(4, {{"eval", 3, 2}, {"other", 1, 3}});
    }
    CHECK(lines_of(folder.path).size() == 5);
    check_equal(folder.path);
}

TEST_CASE("an event is written before its line, and a start repairs by the lines what a kill left") {
    const Folder folder("between");
    const Nothing nothing;
    const std::string events = folder.path + "/tensorboard", lines = folder.path + "/metrics.jsonl";
    MetricsWriter full({"/dev/full", events}, nothing.file);
    full.resume(0);
    CHECK_THROWS(full.step(metrics_of(1, {}), false));
    CHECK_THROWS(full.evaluation(1, {{"eval", 3, 2}}));
    CHECK(test::EventReader::folder(events).at("loss_metrics/global_avg_loss").contains(1));
    CHECK(test::EventReader::folder(events).at("validation_metrics/loss").contains(1));
    // An evaluation that the event files have alone; then one that they lack, whose mean is the same or another one.
    for (const bool lacking : {false, true})
        for (const double sum : {3.0, 4.0}) {
            const auto start = [&](int64_t resumed, const MetricsPlaces& places) {
                MetricsWriter writer(places, nothing.file);
                writer.resume(resumed);
                if (resumed == 0)
                    for (int64_t step = 1; step <= 4; ++step) writer.step(metrics_of(step, {}), false);
                writer.evaluation(4, {{"eval", resumed == 0 ? 3 : sum, 2}});
            };
            start(0, folder.places());
            const auto all = lines_of(folder.path);
            if (lacking)
                for (const auto& name : system_env()->list(events)) fs::remove(events + "/" + name);
            else
                system_env()->replace_file(
                    lines, all[0].dump() + "\n" + all[1].dump() + "\n" + all[2].dump() + "\n" + all[3].dump() + "\n");
            start(4, folder.places());
            const auto found = test::EventReader::folder(events);
            REQUIRE(found.at("validation_metrics/loss").at(4) == std::vector<float>{static_cast<float>(sum / 2)});
            CHECK(found.at("loss_metrics/global_avg_loss").at(4).size() == 1);
            CHECK(lines_of(folder.path).size() == 5);
            if (!lacking) check_equal(folder.path);
        }
}

TEST_CASE("another evaluation of the step that a run goes on from takes the place of the old one") {
    const Folder folder("evaluated_anew");
    const Nothing nothing;
    std::vector<StepResult> results{{"one", 1}, {"rows", 3}};
    results[1].values = {1, std::nan(""), 1e30};
    for (int start = 0; start < 4; ++start) {
        MetricsWriter writer(folder.places(), nothing.file);
        writer.resume(start == 0 ? 0 : 4);
        StepMetrics last = metrics_of(4, results);
        last.grad_norm = std::nan("");
        if (start == 0)
            for (int64_t step = 1; step <= 4; ++step) writer.step(step < 4 ? metrics_of(step, results) : last, false);
        writer.evaluation(4, {{"eval", 3.0 + start, 2}, {"other", 1, 3}});  // as with other evaluate_batches
        CHECK(lines_of(folder.path).size() == 5);
        CHECK(lines_of(folder.path).back()["eval_loss"] == (3.0 + start) / 2);
        check_equal(folder.path);
        if (start < 3) continue;
        writer.step(metrics_of(5, results), false);
        CHECK(lines_of(folder.path).size() == 6);
        check_equal(folder.path);
    }
    // Two lines that an older program has left.
    const std::string path = folder.path + "/metrics.jsonl", lines = system_env()->read_file(path);
    system_env()->replace_file(path, lines + lines_of(folder.path)[4].dump() + "\n");
    MetricsWriter(folder.places(), nothing.file).resume(5);
    CHECK(lines_of(folder.path).size() == 6);
    check_equal(folder.path);
}

TEST_CASE("the files of a run that cannot be written say so") {
    const Folder folder("refused");
    const Nothing nothing;
    const auto begin = [&](MetricsPlaces places) { MetricsWriter(std::move(places), nothing.file).resume(0); };
    CHECK_THROWS_WITH(begin({folder.path + "/none/m"}), Contains("cannot write " + folder.path + "/none/m: No such"));
    CHECK_THROWS_WITH(begin({"", "", folder.path + "/none/a.prom", "a"}),
                      Contains("metrics.prometheus " + folder.path + "/none/a.prom: there is no folder"));
    CHECK_THROWS_WITH(begin({"", "", folder.path, "a"}), Contains("is a folder"));
    REQUIRE(::mkfifo((folder.path + "/pipe").c_str(), 0600) == 0);
    CHECK_THROWS_WITH(begin({folder.path + "/pipe"}), Contains("is a named pipe"));
    MetricsWriter writer({"/dev/full"}, nothing.file);
    writer.resume(0);
    CHECK_THROWS_WITH(writer.step(metrics_of(1, {}), false), Contains("cannot write /dev/full: No space left"));
}

TEST_CASE("side files that cannot be written any more do not end a run, and removed ones are created again", "[slow]") {
    const Folder folder("removed");
    fs::create_directory(folder.path + "/prom");
    std::FILE* const said = std::tmpfile();
    MetricsPlaces places = folder.places();
    places.prometheus = folder.path + "/prom/a.prom";
    MetricsWriter writer(places, said);
    writer.resume(0);
    writer.step(metrics_of(1, {}), false);
    fs::remove_all(folder.path + "/tensorboard");
    fs::remove(folder.path + "/metrics.jsonl");
    fs::remove_all(folder.path + "/prom");
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    writer.step(metrics_of(2, {}), false);
    fs::remove(folder.path + "/metrics.jsonl");
    writer.evaluation(2, {{"eval", 3, 2}});
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    writer.step(metrics_of(3, {}), false);
    fs::remove_all(folder.path + "/tensorboard");
    std::ofstream(folder.path + "/tensorboard") << "a file instead of the folder";
    writer.step(metrics_of(4, {}), false);
    writer.step(metrics_of(5, {}), false);
    fs::remove(folder.path + "/tensorboard");
    fs::create_directory(folder.path + "/prom");
    writer.step(metrics_of(6, {}), false);
    writer.finish();
    std::vector<int64_t> steps;
    for (const Json& line : lines_of(folder.path)) steps.push_back(line["step"].get<int64_t>());
    CHECK(steps == std::vector<int64_t>{2, 3, 4, 5, 6});
    const auto scalars = test::EventReader::folder(folder.path + "/tensorboard");
    CHECK_FALSE(scalars.empty());
    CHECK_THAT(system_env()->read_file(places.prometheus), Contains("orrery_step{") && Contains("} 6\n"));
    std::string text(4096, '\0');
    std::rewind(said);
    text.resize(std::fread(text.data(), 1, text.size(), said));
    std::fclose(said);
    CHECK_THAT(text, Contains("metrics.jsonl was removed: a new one begins with step 2\n") &&
                         Contains("metrics.prometheus: cannot write ") && Contains("; the run goes on\n") &&
                         Contains("written again: "));
    const auto times = [&](const std::string& words) {
        size_t count = 0;
        for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
        return count;
    };
    CHECK(times("was removed") == 2);
    CHECK(times("the run goes on") == 2);  // once for each of the two files
    CHECK(times("written again: ") == 2);
}

namespace {

/// Name and labels of each sample, with its value. Checks what a parser and promtool ask for: each family has one HELP
/// and one TYPE before its first sample, its samples lie together, counters and only they end in _total.
std::map<std::string, std::string> parsed(const std::string& text) {
    std::map<std::string, std::string> samples;
    std::set<std::string> helped, typed, done;
    std::string family;
    std::istringstream in(text);
    CHECK(text.ends_with("\n"));
    for (std::string line; std::getline(in, line);) {
        INFO(line);
        const bool help = line.starts_with("# HELP "), type = line.starts_with("# TYPE ");
        const std::string rest = help || type ? line.substr(7) : line;
        const std::string name = rest.substr(0, rest.find_first_of(" {"));
        if (name != family) CHECK(done.insert(name).second);
        family = name;
        if (help) CHECK(helped.insert(name).second);
        if (type) {
            CHECK(typed.insert(name).second);
            CHECK(line.ends_with(name.ends_with("_total") ? " counter" : " gauge"));
        }
        if (help || type) continue;
        CHECK(helped.contains(name));
        CHECK(typed.contains(name));
        const size_t end = line.rfind("} ");
        REQUIRE(end != std::string::npos);
        CHECK(samples.emplace(line.substr(0, end + 1), line.substr(end + 2)).second);
    }
    return samples;
}

}  // namespace

TEST_CASE("the line of a step shows the largest element of a value of the whole step") {
    const Folder folder("shown");
    std::FILE* const said = std::tmpfile();
    std::vector<StepResult> results;
    results.emplace_back("expert_load", 3);
    results.back().values = {1.25, 3.5, 2};
    results.back().shown = true;
    results.emplace_back("hidden", 1);
    {
        MetricsWriter writer(folder.places(), said);
        writer.resume(0);
        StepMetrics m = metrics_of(1, results);
        writer.header(m.has, results);
        writer.step(m, true);
    }
    const auto lines = lines_of(folder.path);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0]["expert_load"] == Json({1.25, 3.5, 2}));
    std::string text(4096, '\0');
    std::rewind(said);
    text.resize(std::fread(text.data(), 1, text.size(), said));
    std::fclose(said);
    CHECK_THAT(text, Contains("memory expert_load\n") && Contains("MiB         3.5\n") && !Contains("hidden"));
}

TEST_CASE("a training without tokens, norm or learning rate tells samples and leaves out what it lacks") {
    const Folder folder("samples");
    const Nothing nothing;
    std::FILE* const said = std::tmpfile();
    StepMetrics m = metrics_of(1, {});
    m.has = {.tokens = false, .nats = false, .norm = false, .rate = false};
    m.samples = 8;
    m.steps = 14401;
    std::vector<std::string> progress;
    m.tokens = m.all_tokens = 0;
    {
        MetricsWriter writer(folder.places(), said, [&](const std::string& line) { progress.push_back(line); });
        writer.resume(0);
        writer.header(m.has);
        writer.step(m, true);
        writer.evaluation(1, {{"eval", 3, 1.5}}, false);
    }
    CHECK(progress == std::vector<std::string>{"step 1 of 14401, 1:00:00 left, 32 samples/s, loss 5.0000", ""});
    const auto lines = lines_of(folder.path);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].dump().starts_with(R"({"step":1,"loss":5.0,"samples/s":32.0,"TFLOP/s":0.004,)"));
    for (const char* key : {"grad_norm", "lr", "tok/s", "tokens"}) CHECK_FALSE(lines[0].contains(key));
    CHECK(lines[0]["samples"] == 8);
    CHECK(lines[1]["eval_loss"] == 2);
    CHECK(lines[1]["eval_count"] == 1.5);
    CHECK_FALSE(lines[1].contains("eval_tokens"));
    check_equal(folder.path);
    std::string text(4096, '\0');
    std::rewind(said);
    text.resize(std::fread(text.data(), 1, text.size(), said));
    std::fclose(said);
    CHECK_THAT(text, Contains("samples/s") && Contains("loss 2.0000, a mean over held-out data of count 1.5") &&
                         !Contains("tok/s") && !Contains("nats") &&
                         Contains("      1    5.0000                            32    0.004"));
    PrometheusFile file(folder.path + "/b.prom", "a", "n1");
    file.step(m);
    const std::string samples = system_env()->read_file(folder.path + "/b.prom");
    CHECK_THAT(samples, Contains("orrery_samples_per_second{") && Contains("orrery_loss{") &&
                            !Contains("orrery_loss_nats") && !Contains("orrery_tokens_total") &&
                            !Contains("orrery_gradient_norm") && !Contains("orrery_learning_rate"));
}

TEST_CASE("Prometheus' file has the newest step and evaluation, with escaped labels", "[slow]") {
    const Folder folder("prometheus");
    std::vector<StepResult> results{{"a\\b\"c\nd", 1}, {"rows", 2}};
    results[1].values = {INFINITY, std::nan("")};
    PrometheusFile file(folder.path + "/a.prom", "runs/\"x\"\\y", "n1");
    file.step(metrics_of(3, results));
    const auto samples = parsed(system_env()->read_file(folder.path + "/a.prom"));
    const std::string labels = R"({run="runs/\"x\"\\y",host="n1",rank="0")";
    CHECK(samples.at("orrery_step" + labels + "}") == "3");
    CHECK(samples.at("orrery_tokens_total" + labels + "}") == "384");
    CHECK(samples.at("orrery_step_end_timestamp_seconds" + labels + "}") == "1795617082.744324");
    CHECK(samples.at("orrery_result" + labels + R"(,name="a\\b\"c\nd"})") == "0");
    CHECK(samples.at("orrery_result" + labels + R"(,name="rows",index="0"})") == "+Inf");
    CHECK(samples.at("orrery_result" + labels + R"(,name="rows",index="1"})") == "NaN");
    CHECK_FALSE(samples.contains("orrery_loss_scale" + labels + "}"));
    file.step(metrics_of(4, {}));
    file.evaluation(4, {{"eval", 6, 2}, {"eval_a", 1, 2}});
    parsed(system_env()->read_file(folder.path + "/a.prom"));
    file.finish();
    const auto later = parsed(system_env()->read_file(folder.path + "/a.prom"));
    CHECK(later.at("orrery_step" + labels + "}") == "4");
    CHECK(later.at("orrery_evaluation_loss_nats" + labels + "}") == "3");
    CHECK(later.at("orrery_evaluation_result" + labels + ",name=\"eval_a\"}") == "0.5");
    CHECK(system_env()->list(folder.path) == std::vector<std::string>{"a.prom"});
}

TEST_CASE("Prometheus' file leaves no other one, also where it cannot be replaced or a run was killed", "[slow]") {
    const Folder folder("prometheus_left");
    const std::string path = folder.path + "/a.prom";
    system_env()->replace_file(
        path + ".new",
        "what a run has left that was killed, longer than what there is to say: " + std::string(100000, 'x'));
    PrometheusFile file(path, "a", "n1");
    file.step(metrics_of(1, {}));
    CHECK(system_env()->list(folder.path) == std::vector<std::string>{"a.prom"});
    CHECK(parsed(system_env()->read_file(path)).at("orrery_step{run=\"a\",host=\"n1\",rank=\"0\"}") == "1");
    fs::remove(path);
    fs::create_directory(path);
    file.step(metrics_of(2, {}));
    CHECK_THROWS_WITH(file.finish(), Contains("cannot write " + path + ": Is a directory"));
    CHECK(system_env()->list(folder.path) == std::vector<std::string>{"a.prom"});
}

TEST_CASE("Prometheus' file is replaced at most once a second, and never seen half", "[slow]") {
    const Folder folder("replaced");
    const std::string path = folder.path + "/a.prom";
    std::vector<StepResult> results{{"many", 500}};
    PrometheusFile file(path, "a", "n1");
    const auto began = std::chrono::steady_clock::now();  // before the first file: the others come by its time
    file.step(metrics_of(1, results));
    std::atomic<bool> stop{false};
    std::set<ino_t> files;
    int64_t reads = 0, bad = 0;
    std::thread reader([&] {
        while (!stop) {
            struct stat info {};
            if (::stat(path.c_str(), &info) == 0) files.insert(info.st_ino);
            const std::string text = system_env()->read_file(path);
            ++reads;
            bad += !text.ends_with("\n") || text.find("index=\"499\"") == std::string::npos;
        }
    });
    int64_t step = 1;
    while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(1300))
        file.step(metrics_of(++step, results));
    file.finish();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    stop = true;
    reader.join();
    CHECK(bad == 0);
    CHECK(reads > 0);
    CHECK(files.size() <= static_cast<size_t>(seconds) + 1);
    CHECK(parsed(system_env()->read_file(path)).at("orrery_step{run=\"a\",host=\"n1\",rank=\"0\"}") ==
          std::to_string(step));
}

TEST_CASE("the resident set is that of this process") {
    const ResidentSet resident;
    const int64_t before = resident.bytes();
    CHECK(before > 1 << 20);
    constexpr size_t size = 64 << 20;  // of the system, not of a heap that may have it already
    void* const more = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(more != MAP_FAILED);
    std::memset(more, 'x', size);
    CHECK(resident.bytes() - before > 32 << 20);
    ::munmap(more, size);
}
