// Predicts published training runs from their configuration alone, and judges the predictions where results were
// published: published FILE.csv ... [--fit] [--unfitted] [--halves] [--leave-out] [--folds] [--transfer]
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "base/files/result_file.h"
#include "orrery/error.h"
#include "published/accelerators.h"
#include "published/fit.h"
#include "published/prices.h"
#include "published/score.h"

using namespace orrery;
using namespace orrery::published;

namespace {

struct Options {
    std::vector<std::string> files;
    std::string out, keep, explain, errors, script = PUBLISHED_FOLDER "/model.lua";
    bool fit = false, unfitted = false, halves = false, leave_out = false, folds = false, transfer = false;
    bool quick = false;
    bool experts = false;  ///< also rows with experts that are not to be judged
    size_t every = 1;
    /// Of plans, to be priced again and again.
    bool fits() const { return fit || halves || leave_out || folds || transfer; }
    bool graphs() const { return fits() || quick || !explain.empty(); }
};

size_t every_of(const std::string& text) {
    size_t every = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), every);
    if (problem != std::errc() || end != text.data() + text.size() || every == 0)
        throw Error(fmt::format("--every {}: expected a whole number of at least 1", text), Fault::usage);
    return every;
}

Options read_options(int argc, char** argv) {
    Options options;
    std::set<std::string> valued;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto next = [&] {
            if (!valued.insert(word).second) throw Error(word + " is there twice", Fault::usage);
            if (i + 1 == argc) throw Error(word + " takes a value", Fault::usage);
            return std::string(argv[++i]);
        };
        if (word == "--fit")
            options.fit = true;
        else if (word == "--unfitted")
            options.unfitted = true;
        else if (word == "--halves")
            options.halves = true;
        else if (word == "--leave-out")
            options.leave_out = true;
        else if (word == "--folds")
            options.folds = true;
        else if (word == "--transfer")
            options.transfer = true;
        else if (word == "--quick")
            options.quick = true;
        else if (word == "--experts")
            options.experts = true;
        else if (word == "--out")
            require_writable(word, options.out = next());
        else if (word == "--explain")
            options.explain = next();
        else if (word == "--errors")
            require_writable(word, options.errors = next());
        else if (word == "--keep")
            options.keep = next();
        else if (word == "--every")
            options.every = every_of(next());
        else if (word.starts_with("-"))
            throw Error(
                fmt::format(
                    "what is {}?\n  published FILE.csv ... [--fit] [--unfitted] [--halves] [--leave-out] [--folds] "
                    "[--errors FILE.toml] [--transfer] [--quick] [--experts] [--every N] [--keep FOLDER] [--explain "
                    "ROW] "
                    "[--out FILE.csv]",
                    word),
                Fault::usage);
        else
            options.files.push_back(word);
    }
    if (options.files.empty()) options.files = {PUBLISHED_FOLDER "/../../../shared/data/published_rows.csv"};
    if (!options.errors.empty() && !options.folds)
        throw Error("--errors writes what --folds finds: give both", Fault::usage);
    if (options.transfer && options.files.size() < 2)
        throw Error("--transfer fits to the first file and judges the others: name two", Fault::usage);
    return options;
}

/// A row that is to be predicted.
struct Asked {
    Row row;
    Label label;
    std::vector<Prepared> jobs;  ///< where graphs are asked for
    std::optional<Prediction> prediction;
    std::string why_not;
    size_t file = 0;  ///< of those that were named

    Job job() const { return jobs_of(row)[static_cast<size_t>(prediction->chosen)]; }
};

void read_rows(const Options& options, size_t file, std::vector<Asked>& all) {
    const Table with = read_table(options.files[file]);
    const Table table = without_measured(with);
    size_t seen = 0;
    for (size_t i = 0; i < table.rows.size(); ++i) {
        Asked asked;
        asked.file = file;
        asked.label = read_label(with, i);
        const std::string& ep = table.cell(i, "ep");
        bool wanted = asked.label.asked || (options.experts && !ep.empty() && ep != "1");
        if (!options.explain.empty()) wanted = table.cell(i, "id") == options.explain;
        if (!wanted || seen++ % options.every != 0) continue;
        asked.why_not = missing_in(table, i);
        try {
            if (asked.why_not.empty()) asked.row = read_row(table, i);
        } catch (const Error& error) {
            asked.why_not = error.what();
        }
        asked.row.id = table.cell(i, "id");
        all.push_back(std::move(asked));
    }
}

/// On all processors. What a row throws is why it is not predicted; what was predicted before is gone.
void for_each_row(std::vector<Asked>& all, const std::function<void(Asked&)>& use) {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
        for (size_t i = next++; i < all.size(); i = next++) {
            if (!all[i].why_not.empty()) continue;
            try {
                use(all[i]);
            } catch (const std::exception& error) {
                all[i].why_not = error.what();
                all[i].prediction.reset();
            }
        }
    };
    std::vector<std::thread> threads;
    for (unsigned t = 1; t < std::max(1u, std::thread::hardware_concurrency()); ++t) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
}

/// By the simulator; `quick`: by the graphs, which say the same.
void predict_all(std::vector<Asked>& all, const Options& options, const Constants& constants) {
    for_each_row(all, [&](Asked& asked) {
        if (options.quick) {
            asked.prediction = predict(asked.jobs, constants);
            return;
        }
        asked.prediction = predict(asked.row, options.script, constants);
        if (asked.jobs.empty()) return;
        const double graph = predict(asked.jobs, constants).step_s;
        if (std::abs(graph / asked.prediction->step_s - 1) > 1e-6)
            throw Error(fmt::format("its graph says {} s, the simulator {} s\n  empty the folder of --keep: it holds "
                                    "graphs of another version",
                                    graph, asked.prediction->step_s),
                        Fault::failed);
    });
}

std::string parallelism_of(const Job& job) {
    std::string text = job.words.zero == 3 ? "fsdp" : "dp";
    if (job.row.tp > 1) text += " tp";
    if (job.row.pp > 1) text += " pp";
    if (job.row.cp > 1) text += " cp";
    if (job.row.ep > 1) text += " ep";
    return text;
}

/// Rows that have a plan and a measured time, and are to be judged, or not.
std::vector<const Asked*> measured(const std::vector<Asked>& all, bool judged = true) {
    std::vector<const Asked*> some;
    for (const Asked& asked : all)
        if (asked.why_not.empty() && asked.label.measured.step_s > 0 && asked.label.asked == judged)
            some.push_back(&asked);
    return some;
}

std::vector<const Asked*> fitted_to(std::vector<const Asked*> rows) {
    std::erase_if(rows, [](const Asked* asked) { return !fitted_to(asked->row); });
    return rows;
}

std::vector<Scored> scored(const std::vector<const Asked*>& all) {
    std::vector<Scored> some;
    for (const Asked* asked : all) {
        const Job job = asked->job();
        some.push_back({asked->row, asked->label, *asked->prediction, parallelism_of(job), job.guessed});
    }
    return some;
}

/// With constants of another fit, by the graphs.
std::vector<Scored> scored(const std::vector<const Asked*>& all, const Constants& constants) {
    std::vector<Scored> some;
    for (const Asked* asked : all) {
        const Prediction prediction = predict(asked->jobs, constants);
        const Job& job = asked->jobs[static_cast<size_t>(prediction.chosen)].job;
        some.push_back({asked->row, asked->label, prediction, parallelism_of(job), job.guessed});
    }
    return some;
}

/// Wires stay as collectives have settled them.
Constants unfitted_kernels() {
    Constants constants;
    for (size_t c = 0; c < constants.all().size(); ++c)
        if (!is_of_wires(constants.all()[c])) constants.set(c, constants.all()[c].unfitted);
    return constants;
}

void must_have_rows(const std::vector<const Asked*>& all) {
    if (all.empty())
        throw Error(
            "there is no row to fit on: none has both a prediction and its iter_time_s\n  name a file with "
            "measured rows; --leave-out takes two families");
}

Constants fit_on(const std::vector<const Asked*>& all) {
    std::vector<Sample> samples;
    for (const Asked* asked : all) {
        const Measured& measured = asked->label.measured;
        samples.push_back({&asked->jobs, asked->label.family, measured.step_s, measured.peak_gib});
    }
    must_have_rows(all);
    return fit(samples, fit_memory(samples, unfitted_kernels()));
}

void write_predictions(const std::vector<Asked>& all, const std::string& path) {
    std::string text =
        "id,predicted_step_s,predicted_tok_s_gpu,predicted_peak_gib,guessed,micro_batch,vp,recompute,why_not,"
        "needed_gib\n";
    for (const Asked& asked : all) {
        if (!asked.prediction) {
            std::string why = asked.why_not.substr(0, asked.why_not.find('\n'));
            std::replace(why.begin(), why.end(), '"', '\'');
            text += fmt::format("{},,,,,,,,\"{}\",\n", asked.row.id, why);
            continue;
        }
        const Prediction& p = *asked.prediction;
        const Job job = asked.job();
        text += fmt::format("{},{:.5g},{:.5g},{:.4g},{},{},{},{},,{:.4g}\n", asked.row.id, p.step_s, p.tokens_per_s,
                            p.published_gib, job.guessed ? "guessed" : "", job.micro_batch, job.chunks, job.recompute,
                            p.peak_gib);
    }
    write_result(path, text);
}

void print_constants(const Constants& constants) {
    for (const Constant& one : constants.all())
        fmt::print("    {{\"{}\", \"{}\", {:.4g}, {:g}, {:g}, {:g}}},\n", one.name, one.meaning, one.value, one.least,
                   one.most, one.unfitted);
}

std::string text_of(const Priced& one, const Mesh& mesh) {
    if (one.kind == Question::Kind::kernel) return one.text;
    const double mb = static_cast<double>(one.bytes) / 1e6;
    if (one.kind == Question::Kind::copy) return fmt::format("copy of {:.2f} MB", mb);
    return fmt::format("{} over {} of {:.2f} MB", name_of(one.opcode), mesh.axis(one.axis).name, mb);
}

/// What a price counts as in a row's explanation.
std::string group_of(const Priced& one, const Mesh& mesh) {
    if (one.kind == Question::Kind::copy) return "copies and casts";
    if (one.kind != Question::Kind::kernel) return "exposed over " + mesh.axis(one.axis).name;
    return multiplies(one.work.work) ? "matrix products and attention" : "other kernels";
}

/// Where the time of a row goes: what its critical path is made of; and what its memory holds.
void explain(const std::vector<Asked>& all, const Options& options, const Constants& constants) {
    for (const Asked& asked : all) {
        if (asked.jobs.empty()) continue;
        const Prediction p = predict(asked.jobs, constants);
        const Prepared& job = asked.jobs[static_cast<size_t>(p.chosen)];
        std::vector<double> paid;
        step_seconds(job, constants, &paid);
        const std::vector<double> seconds = price(job, constants);
        std::vector<size_t> order(seconds.size());
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(),
                  [&](size_t a, size_t b) { return seconds[a] * paid[a] > seconds[b] * paid[b]; });
        fmt::print("{}: {:.4g} s, measured {:.4g} s; mesh {}; {} nodes\n", asked.row.id, p.step_s,
                   asked.label.measured.step_s, job.mesh.text(), job.graph.dag.nodes.size());
        std::map<std::string, double> groups;
        for (size_t i = 0; i < order.size(); ++i)
            groups[group_of(job.graph.prices[i], job.mesh)] += seconds[i] * paid[i];
        for (const auto& [group, spent] : groups) fmt::print("  {:7.4f} s {}\n", spent, group);
        for (size_t i = 0; i < std::min<size_t>(order.size(), 40); ++i)
            fmt::print("  {:7.4f} s {:8.0f} x {:9.1f} us  {}\n", seconds[order[i]] * paid[order[i]], paid[order[i]],
                       1e6 * seconds[order[i]], text_of(job.graph.prices[order[i]], job.mesh));
        fmt::print("peak memory {:.2f} GiB, in {}", p.peak_gib,
                   text_of_memory(plan_of(job.job, options.script), job.job));
    }
}

/// Fitted on a random half of the rows and scored on the other, five times.
void halves(const std::vector<const Asked*>& all) {
    for (unsigned turn = 1; turn <= 5; ++turn) {
        std::mt19937 random(turn);
        std::vector<const Asked*> order = all;
        for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
        const auto half = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
        const Constants constants = fit_on({order.begin(), half});
        const Summary s = summary_of(scored({half, order.end()}, constants));
        fmt::print("other half {}: {} rows, mean over families {:.1f} %, median {:.1f} %, {:.1f} % within 15 %\n", turn,
                   s.rows, 100 * s.families, 100 * s.median, 100 * s.within);
    }
}

/// Each family scored with constants fitted without it.
void leave_out(const std::vector<const Asked*>& all) {
    std::map<std::string, std::vector<const Asked*>> families;
    for (const Asked* asked : all) families[asked->label.family].push_back(asked);
    double sum = 0;
    int counted = 0;
    for (const auto& [family, members] : families) {
        std::vector<const Asked*> others;
        bool known = false;
        for (const Asked* asked : all) {
            if (asked->label.family == family) continue;
            others.push_back(asked);
            known |= asked->label.accelerator == members[0]->label.accelerator;
        }
        double mean = 0;
        for (const Scored& one : scored(members, fit_on(others)))
            mean += one.error() / static_cast<double>(members.size());
        fmt::print("without {:28} {:4} rows: {:5.1f} %{}\n", family, members.size(), 100 * mean,
                   known ? "" : "  (its accelerator is in no other family)");
        if (known) sum += mean, ++counted;
    }
    fmt::print("leave one family out: mean over {} families {:.1f} %\n", counted, 100 * sum / std::max(1, counted));
}

/// Those of `all` that `out` picks, scored with constants fitted to the others, and prints how they did; none if either
/// are missing.
std::vector<Scored> fold(const std::string& name, const std::vector<const Asked*>& all,
                         const std::function<bool(const Asked&)>& out) {
    std::vector<const Asked*> left_out, others;
    for (const Asked* asked : all) (out(*asked) ? left_out : others).push_back(asked);
    if (left_out.empty() || others.empty()) return {};
    std::vector<Scored> rows = scored(left_out, fit_on(others));
    const Summary s = summary_of(rows);
    fmt::print("fold {:32} {:4} rows: mean over families {:5.1f} %, median {:5.1f} %, {:5.1f} % within 15 %\n", name,
               s.rows, 100 * s.families, 100 * s.median, 100 * s.within);
    return rows;
}

/// A table of configs/software_errors.toml.
std::string error_table(const std::string& name, std::vector<double> ratios) {
    return fmt::format("\n[{}]\nrows = {}\np10 = {:.3f}\np90 = {:.3f}\n", name, ratios.size(), percentile(ratios, 0.1),
                       percentile(ratios, 0.9));
}

/// Whole kinds of rows out: by software, accelerator, schedule and precision. Returns the text of
/// configs/software_errors.toml.
std::string folds(const std::vector<const Asked*>& all) {
    const auto words = [](const Asked& asked) -> const Words& { return asked.jobs.front().job.words; };
    const auto is_fsdp = [&](const Asked& asked) { return words(asked).zero == 3; };
    fold("Megatron-like software", all, [&](const Asked& asked) {
        const std::string& name = words(asked).software.name;
        return name == "nemo" || name == "deepspeed" || name.find("megatron") != std::string::npos;
    });
    fold("FSDP", all, is_fsdp);
    fold("vp > 1", all, [](const Asked& asked) { return asked.row.chunks.value_or(1) > 1; });
    fold("8-bit products", all, [&](const Asked& asked) { return words(asked).eight_bit; });
    for (const char* chip : {"A100", "H100", "B200", "GB"})
        fold(chip, all, [&](const Asked& asked) { return asked.row.gpu.starts_with(chip); });
    std::set<std::string> names;
    for (const Asked* asked : all) names.insert(words(*asked).software.name);
    std::string tables;
    std::vector<double> whole;
    for (const std::string& name : names) {
        std::vector<double> ratios;
        for (const Scored& one : fold(name, all, [&](const Asked& a) { return words(a).software.name == name; }))
            ratios.push_back(one.label.measured.step_s / one.prediction.step_s);
        if (ratios.empty()) continue;
        whole.insert(whole.end(), ratios.begin(), ratios.end());
        tables += error_table(name, std::move(ratios));
    }
    if (whole.empty()) throw Error("--folds needs rows of at least two kinds of software\n  name more files");
    return "# Measured over predicted step time of published runs: the 10th and the 90th percentile, by the software "
           "that ran them.\n# No constant of the predictions is fitted to rows of that software. Written by "
           "bench/published --folds --errors.\n" +
           error_table("all", std::move(whole)) + tables;
}

/// Constants fitted to the first file's rows, and the other files' rows judged.
void transfer(const std::vector<const Asked*>& all) {
    const auto later = fold("files after the first", all, [](const Asked& asked) { return asked.file > 0; });
    if (!later.empty()) fmt::print("{}", report(later));
}

int run(const Options& options) {
    if (!options.explain.empty() && options.fits())
        throw Error("--explain predicts one row, and nothing can be fitted to it\n  leave the other flag out",
                    Fault::usage);
    const auto begin = std::chrono::steady_clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    std::vector<Asked> all;
    for (size_t file = 0; file < options.files.size(); ++file) read_rows(options, file, all);
    if (!options.explain.empty() && all.empty())
        throw Error(fmt::format("--explain {}: no file has this row", options.explain), Fault::usage);
    if (options.graphs())
        for_each_row(all, [&](Asked& asked) { asked.jobs = prepare(asked.row, options.script, options.keep); });
    if (options.fits()) must_have_rows(fitted_to(measured(all)));
    Constants constants;
    if (options.unfitted) {
        constants.forget_fit();
        for (Asked& asked : all)
            for (Prepared& job : asked.jobs) wire(job, constants);
    }
    if (options.fit) {
        constants = fit_on(fitted_to(measured(all)));
        print_constants(constants);
        fmt::print("fitted, {:.1f} s\n", passed());
    }
    predict_all(all, options, constants);
    size_t ready = 0;
    for (const Asked& asked : all) {
        ready += asked.why_not.empty();
        if (!asked.why_not.empty()) fmt::print(stderr, "not predicted: {}: {}\n", asked.row.id, asked.why_not);
    }
    fmt::print("{} of {} rows are predicted, {:.1f} s\n", ready, all.size(), passed());
    const std::vector<const Asked*> known = measured(all);
    if (!known.empty()) fmt::print("{}", report(scored(known)));
    if (const std::vector<const Asked*> others = measured(all, false); !others.empty())
        fmt::print("\n  rows with experts that lack fields, not judged\n{}", each_text(scored(others)));
    if (!options.explain.empty()) explain(all, options, constants);
    if (!options.out.empty()) write_predictions(all, options.out);
    if (options.halves) halves(fitted_to(known));
    if (options.leave_out) leave_out(fitted_to(known));
    const std::string errors = options.folds ? folds(fitted_to(known)) : "";
    if (options.errors.empty())
        fmt::print("{}", errors);
    else
        write_result(options.errors, errors);
    if (options.transfer) transfer(fitted_to(known));
    fmt::print("{:.1f} s\n", passed());
    return ready > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try { return run(read_options(argc, argv)); } catch (const Error& error) {
    fmt::print(stderr, "published: {}\n", error.what());
    return error.fault() == Fault::usage ? 2 : 1;
} catch (const std::exception& error) {
    fmt::print(stderr, "published: {}\n", error.what());
    return 1;
}
