#include "jobs.h"

#include <fmt/format.h>

namespace orrery::plans {
namespace {

const char* const models[] = {"gpt", "llama", "qwen2"};
const char* const schedules[] = {"gpipe", "1f1b", "interleaved", "zb_h1", "zbv"};
const char* const transports[] = {"threads", "shm", "gloo", "ucx", "grouped"};

/// What a configuration of tests/equivalence/models.lua says.
struct Settings {
    std::string model = "gpt", mesh, script, precision = "f32", transport = "threads";
    int micro = 1, batch = 8;
};

std::string one_line(std::string text) {
    for (char& c : text)
        if (c == '\n') c = ' ';
    while (!text.empty() && text.back() == ' ') text.pop_back();
    std::erase(text, '"');
    return text;
}

Job job(const Settings& s) {
    Job made;
    made.name = fmt::format("{} {} {} mesh {} micro {} {}", s.model, s.precision, s.transport, one_line(s.mesh),
                            s.micro, one_line(s.script));
    made.script = "tests/equivalence/models.lua";
    made.toml = fmt::format(
        "[mesh]\n{}\n[train]\nsteps = 2\nsequences_per_step = {}\nmicrobatches = {}\nprecision = \"{}\"\n[data]\npath "
        "= "
        "\"none\"\ntokens_per_sequence = 8\n[script]\nmodel = \"{}\"\n{}",
        s.mesh, s.batch, s.micro, s.precision, s.model, s.script);
    made.transport = s.transport;
    return made;
}

std::string pipeline(const std::string& schedule) {
    const bool chunks = schedule == "interleaved" || schedule == "zbv";
    return fmt::format("layers = 4\nschedule = \"{}\"\n{}", schedule, chunks ? "chunks = 2\n" : "");
}

void strategies(std::vector<Job>& all) {
    for (const char* model : models) {
        all.push_back(job({model, "", ""}));
        for (const char* precision : {"bf16", "f16"}) all.push_back(job({model, "dp = 2", "", precision}));
        all.push_back(job({model, "dp = 2", ""}));
        all.push_back(job({model, "tp = 2", ""}));
        all.push_back(job({model, "tp = 2", "sequence = true\n"}));
        for (int zero : {1, 2, 3})
            all.push_back(job({model, "dp = 4", fmt::format("zero = {}\n", zero), "f32", "threads", 2}));
    }
    all.push_back(job({"mlp", "dp = 2\ntp = 2", ""}));
    all.push_back(job({"gpt", "dp = 2", "strategy = \"twin\"\n"}));
    all.push_back(job({"gpt", "dp = 2", "bucket_mib = 0\n"}));
    all.push_back(job({"gpt", "dp = 2", "dropout = 0.1\n"}));
    all.push_back(job({"llama", "rep = 2\ndp = 2", "zero = 3\nreplicate = \"rep\"\n"}));
    for (const char* how : {"full", "selective"})
        for (const char* mesh : {"dp = 2", "dp = 2\ntp = 2"})
            all.push_back(job({"gpt", mesh, fmt::format("recompute = \"{}\"\n", how), "f32", "threads", 2}));
}

void pipelines(std::vector<Job>& all) {
    for (const char* schedule : schedules) {
        all.push_back(job({"gpt", "pp = 2", pipeline(schedule), "f32", "threads", 4}));
        all.push_back(job({"gpt", "pp = 2\ndp = 2", pipeline(schedule), "bf16", "threads", 2}));
        all.push_back(job({"llama", "pp = 2\ndp = 2\ntp = 2", pipeline(schedule) + "zero = 2\n", "f32", "threads", 4}));
        for (const char* transport : {"shm", "gloo", "ucx", "grouped"})
            all.push_back(job({"qwen2", "pp = 2", pipeline(schedule), "f32", transport, 4}));
    }
    for (const char* transport : transports)
        all.push_back(job({"llama", "dp = 2\ntp = 2", "zero = 3\nsequence = true\n", "bf16", transport, 2}));
}

/// Rows over the ranks of one axis, by each method, and of two.
void rows(std::vector<Job>& all) {
    for (const char* method : {"heads", "gather", "ring"}) {
        const std::string by = fmt::format("cp = \"{}\"\n", method);
        all.push_back(job({"llama", "cp = 2", by, "bf16", "threads", 2}));
        all.push_back(job({"gpt", "pp = 2\ncp = 2", pipeline("zb_h1") + by, "f32", "gloo", 4}));
    }
    all.push_back(
        job({"llama", "co = 2\ncp = 2", "co = \"ring\"\ncp = \"heads\"\nrecompute = \"full\"\n", "f32", "grouped", 2}));
    const std::string over_ep = "experts_over = \"ep\"\n";
    all.push_back(job({"mixtral", "dp = 2\nep = 2", over_ep + "zero = 1\n", "bf16", "threads", 2}));
    all.push_back(job({"mixtral", "pp = 2\nep = 2", pipeline("zb_h1") + over_ep, "f32", "ucx", 4}));
    all.push_back(job({"mixtral", "dp = 2\ncp = 2\ntp = 2",
                       "experts_over = \"dp cp\"\nparts = 2\ncp = \"ring\"\nsequence = true\n", "f32", "shm", 2}));
}

/// scripts/gpt.lua, as its users set it.
void shipped(std::vector<Job>& all) {
    const std::string small =
        "[data]\ntokens_per_sequence = 16\nvocab = 96\n[script]\nlayers = 2\nembed = 32\nheads = 4\n";
    const auto add = [&](const std::string& name, const std::string& mesh, const std::string& train) {
        all.push_back({"gpt.lua " + name, "scripts/gpt.lua",
                       fmt::format("[mesh]\n{}\n[train]\nsteps = 9\n{}{}", mesh, train, small), "", "shm"});
    };
    add("one rank", "", "sequences_per_step = 4\n");
    add("ramp", "dp = 2",
        "sequences_per_step = 16\nramp_start = 4\nramp_increment = 4\nramp_samples = 40\nevaluate_batches = 1\n");
    add("ramp of micro-batches", "dp = 2",
        "sequences_per_step = 12\nmicrobatches = 3\nramp_start = 4\nramp_increment = 4\nramp_samples = 40\n");
    all.push_back({"quickstart", "scripts/gpt.lua", "", "quickstart.toml", "shm"});
    all.push_back({"two_nodes", "scripts/gpt.lua", "", "two_nodes.toml", "gloo"});
    all.push_back({"four_ranks", "scripts/gpt.lua", "", "four_ranks.toml", "shm"});
    all.push_back({"eight_gpus", "scripts/gpt.lua", "", "eight_gpus.toml", "grouped"});
    all.push_back({"llama70b", "scripts/gpt.lua", "", "llama70b.toml", "gloo"});
    all.push_back({"llama405b", "scripts/gpt.lua", "", "llama405b.toml", "gloo"});
}

/// The same numbers with every library (Knuth, MMIX).
struct Draws {
    uint64_t state = 20261122;
    int64_t below(int64_t n) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(n));
    }
};

void at_random(std::vector<Job>& all, int count) {
    Draws draws;
    const char* const precisions[] = {"f32", "bf16", "f16"};
    for (int k = 0; k < count; ++k) {
        Settings s;
        s.model = models[draws.below(3)];
        s.precision = precisions[draws.below(3)];
        s.transport = transports[draws.below(5)];
        s.micro = 1 << draws.below(3);
        s.batch = 16;
        std::string chosen = "1f1b";
        const bool pp = draws.below(2) == 0, tp = draws.below(2) == 0, dp = draws.below(3) > 0;
        if (pp) {
            s.mesh += "pp = 2\n";
            chosen = schedules[draws.below(5)];
            if (chosen == "interleaved") s.micro = std::max(s.micro, 2);
            s.script += pipeline(chosen);
        }
        if (dp) s.mesh += draws.below(2) == 0 ? "dp = 2\n" : "dp = 4\n";
        if (tp) s.mesh += "tp = 2\n";
        if (tp && draws.below(2) == 0) s.script += "sequence = true\n";
        if (const int64_t zero = draws.below(4); dp && zero > 0) s.script += fmt::format("zero = {}\n", zero);
        if (const int64_t how = draws.below(4); how < 2)
            s.script += fmt::format("recompute = \"{}\"\n", how == 0 ? "full" : "selective");
        Job made = job(s);
        made.name = fmt::format("random {}: {}", k, made.name);
        all.push_back(made);
    }
}

}  // namespace

std::vector<Job> jobs() {
    std::vector<Job> all;
    strategies(all);
    pipelines(all);
    rows(all);
    shipped(all);
    at_random(all, 60);
    return all;
}

}  // namespace orrery::plans
