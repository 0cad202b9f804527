#include "published/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/load.h"
#include "ir/op.h"
#include "lua/script.h"
#include "orrery/p2p.h"
#include "plugin/loader.h"
#include "sim/software/held.h"
#include "sim/software/passes.h"

namespace orrery::published {
namespace {

/// Ranks of a node, or of one domain of fast links: where zero within a node splits.
constexpr int64_t node_ranks = 8;

/// Settings of a mixture of experts. Each part of a sequence, over tp where that splits it, is a group of tokens.
std::string experts_of(const Job& job) {
    const Experts& experts = job.words.experts;
    std::string text;
    if (experts.head_dim > 0) text += fmt::format("head_dim = {}\n", experts.head_dim);
    if (experts.count == 0) return text;
    return text + fmt::format("experts = {}\ntop_k = {}\nexpert_mlp = {}\ncapacity = {}\nparts = {}\n", experts.count,
                              experts.top_k, experts.mlp > 0 ? experts.mlp : job.row.mlp,
                              fmt::format("{:.4f}", experts.capacity),
                              job.row.cp * (job.words.sequence ? job.row.tp : 1));
}

/// Blocks of each stage where stages are of equal cost, in elements of the matrices that multiply: the last block of a
/// stage is the first that brings the sum beyond its part. Empty if a stage would have none.
std::string stage_blocks(const Job& job) {
    const Row& row = job.row;
    const int64_t stages = row.pp * job.chunks;
    if (!job.words.software.stages_by_cost || stages == 1) return "";
    const int64_t block = 4 * row.embed * row.embed + (job.words.activation == "swiglu" ? 3 : 2) * row.embed * row.mlp;
    const int64_t all = row.layers * block + row.vocab * row.embed;
    std::vector<int64_t> counts(1, 0);
    for (int64_t blocks = 1; blocks <= row.layers; ++blocks) {
        ++counts.back();
        const auto ended = static_cast<int64_t>(counts.size());
        if (blocks * block * stages > all * ended && ended < stages) counts.push_back(0);
    }
    if (static_cast<int64_t>(counts.size()) < stages || counts.back() == 0) return "";
    return fmt::format("stage_blocks = \"{}\"\n", fmt::join(counts, ","));
}

std::string toml_of(const Job& job) {
    const Row& row = job.row;
    const Words& words = job.words;
    std::string mesh = fmt::format("pp = {}\n", row.pp);
    const bool hybrid = words.replicates && row.dp > node_ranks && row.dp % node_ranks == 0;
    if (hybrid) mesh += fmt::format("rep = {}\n", row.dp / node_ranks);
    mesh += fmt::format("dp = {}\n", (hybrid ? node_ranks : row.dp) / row.ep);
    if (row.ep > 1) mesh += fmt::format("ep = {}\n", row.ep);  // of the ranks of dp: each ep of them share the experts
    if (row.cp > 1) mesh += fmt::format("cp = {}\n", row.cp);
    mesh += fmt::format("tp = {}\n", row.tp);
    return fmt::format(
        "[mesh]\n{}[train]\nsteps = 1\nsequences_per_step = {}\nmicrobatches = {}\nprecision = \"{}\"\n[data]\npath = "
        "\"none\"\ntokens_per_sequence = {}\n[lua]\ninstructions_million = 100000\nmemory_mib = 4096\n[script]\n"
        "layers = {}\nembed = {}\nheads = {}\nkv_heads = {}\nmlp = {}\nvocab = {}\nactivation = \"{}\"\nnorm = "
        "\"{}\"\npositions = \"{}\"\nbias = {}\ntied = {}\nschedule = \"{}\"\nchunks = {}\nstages = {}\nsequence = {}\n"
        "saves_gathered = {}\nzero = {}\nreplicate = \"{}\"\nbucket_mib = {}\nrecompute = \"{}\"\n{}",
        mesh, job.micro_batch * job.micros * row.dp, job.micros, "bf16", row.tokens, row.layers, row.embed, job.heads,
        job.kv_heads, row.mlp, job.vocab, words.activation, words.norm, words.positions, words.bias, words.tied,
        job.chunks > 1 ? "interleaved" : "1f1b", job.chunks,
        row.layers % (row.pp * job.chunks) == 0 ? row.pp * job.chunks : 0, words.sequence,
        !words.software.gathers_again, words.zero, hybrid ? "rep" : "", bucket_mib(words), job.recompute,
        (row.cp > 1 ? "order = \"zigzag\"\n" : "") + stage_blocks(job) + experts_of(job));
}

/// Chunks that the schedule can have: whole layers, of which the embedding and the head may be two, and micro-batches
/// that the ranks divide.
bool can_interleave(const Row& row, int64_t chunks, int64_t micros) {
    const int64_t stages = row.pp * chunks;
    return chunks == 1 || ((row.layers % stages == 0 || (row.layers + 2) % stages == 0) && micros % row.pp == 0);
}

Job job_with(const Row& row, const Words& words, int64_t micro_batch, int64_t chunks, const std::string& recompute) {
    Job job;
    job.row = row, job.words = words, job.micro_batch = micro_batch, job.chunks = chunks, job.recompute = recompute;
    const double micros = static_cast<double>(row.batch) / static_cast<double>(row.dp * micro_batch);
    job.micros = std::max<int64_t>(1, std::llround(micros));
    job.batches = micros / static_cast<double>(job.micros);
    if (!can_interleave(row, chunks, job.micros)) job.chunks = 1;
    job.vocab = row.tp > 1 ? (row.vocab + 128 * row.tp - 1) / (128 * row.tp) * (128 * row.tp) : row.vocab;
    job.heads = row.heads;
    job.kv_heads = std::max(row.kv_heads, row.tp);  // ranks beyond kv_heads hold copies
    if (job.heads % job.kv_heads != 0) job.kv_heads = job.heads;
    job.words.chunks = job.chunks;
    job.words.logits = job.vocab / row.tp;
    job.words.recomputes_blocks = recompute == "full" || recompute.find(':') != std::string::npos;
    job.toml = toml_of(job);
    return job;
}

Mesh mesh_in(Config& config) {
    std::vector<Axis> axes;
    Config& mesh = config.table("mesh");
    for (const std::string& axis : mesh.keys()) axes.push_back({axis, mesh.integer(axis, 1), false});
    return Mesh(axes);
}

/// What a script of a row may ask for: nothing is started, and its program is kept.
class PlanHost : public Host {
public:
    PlanHost(const std::string& toml, const std::string& name, const Loader& loader, Registry& registry)
        : Host(parse_config(toml, name)), loader_(loader), registry_(registry), mesh_(mesh_in(config_)) {}

    std::unique_ptr<Strategy> make_strategy(std::string_view name, Config& options, const Origin& asked) override {
        loader_.load("strategy", name, registry_, asked);
        return registry_.strategy(name, asked)(options, asked);
    }
    std::unique_ptr<DataSource> make_data(std::string_view name, Config& options, const Origin& asked) override {
        loader_.load("data", name, registry_, asked);
        return registry_.data(name, asked)(options, asked);
    }
    const OpDef& use_op(std::string_view name, const Origin& asked) override { return op_def(name, asked); }
    const Mesh& mesh() override { return mesh_; }
    void compile(Experiment experiment) override {
        const MarkedProgram& train = experiment.programs.front();
        CompileOptions options;
        options.contracts = contracts_of(train.mesh);
        for (const auto& [axis, contract] : options.contracts) options.transports[axis] = "nccl";
        options.redistribution = experiment.recipe->redistribution;
        if (experiment.schedule) options.schedule = &*experiment.schedule;
        Persistent places;
        plan = orrery::plan_of(distribute(train.program, train.mesh, options), train.mesh, places, options);
        persistent = places.bytes();
    }

    Plan plan;
    int64_t persistent = 0;

private:
    const Loader& loader_;
    Registry& registry_;
    Mesh mesh_;
};

/// Throws Error for experts that the row does not describe, or that its ranks cannot share.
void check_experts(const Row& row, const Experts& experts) {
    const auto refuse = [&](const std::string& problem) { throw Error(fmt::format("row {}: {}", row.id, problem)); };
    if (experts.count == 0 && row.ep > 1)
        refuse(fmt::format("ep = {}, but its notes do not say how many experts there are: \"8 experts top2\"", row.ep));
    if (experts.count == 0) return;
    if (experts.top_k < 1 || experts.top_k > experts.count)
        refuse(fmt::format("its notes say {} experts and top{}, expected top1 to top{}", experts.count, experts.top_k,
                           experts.count));
    if (!(experts.capacity > 0 && experts.capacity <= static_cast<double>(experts.count)))
        refuse(fmt::format("its notes say capacity factor {}, expected more than 0 and at most {}", experts.capacity,
                           experts.count));
    if (experts.count % row.ep != 0 || row.dp % row.ep != 0)
        refuse(fmt::format("ep = {} does not divide {} experts and dp = {}", row.ep, experts.count, row.dp));
}

}  // namespace

std::vector<Job> jobs_of(const Row& row) {
    if (row.tp * row.pp * row.cp * row.dp != row.gpus)
        throw Error(fmt::format("row {}: tp {} x pp {} x cp {} x dp {} are not its {} accelerators", row.id, row.tp,
                                row.pp, row.cp, row.dp, row.gpus));
    const Words words = words_of(row);
    check_experts(row, words.experts);
    const bool open = !row.micro_batch || !words.recompute_stated || !words.share_stated;
    std::vector<int64_t> micro_batches = {row.micro_batch.value_or(1)};
    if (!row.micro_batch) micro_batches = {4, 2, 1};
    if (const int64_t recipes = words.software.pipelined_samples; !row.micro_batch && row.pp > 1 && recipes > 0)
        micro_batches = {recipes};
    std::vector<int64_t> chunks = {row.chunks.value_or(1)};
    if (!row.chunks && !row.micro_batch && words.interleaves && row.pp > 1) {
        int64_t most = 1;  // one layer a chunk costs more messages than it saves in bubble
        for (int64_t v = 2; v <= row.layers / row.pp / 2; ++v)
            if (row.layers % (row.pp * v) == 0) most = v;
        chunks = {most, 1};
    }
    std::vector<std::string> recomputes = {words.recompute};
    if (!words.recompute_stated) recomputes = {"none", "full"};
    if (!words.share_stated) recomputes.push_back("full");
    std::vector<Job> jobs;
    for (const int64_t micro_batch : micro_batches) {
        if (!row.micro_batch && row.batch % (row.dp * micro_batch) != 0) continue;
        for (const int64_t v : chunks)
            for (const std::string& recompute : recomputes) {
                jobs.push_back(job_with(row, words, micro_batch, v, recompute));
                jobs.back().guessed = open;
            }
    }
    if (jobs.empty())
        throw Error(fmt::format("row {}: global_batch {} is no multiple of dp {}\n  state its micro_batch", row.id,
                                row.batch, row.dp));
    return jobs;
}

Mesh mesh_of(const Job& job) {
    Config config = parse_config(job.toml, job.row.id);
    return mesh_in(config).with_microbatches(job.micros);
}

Network contracts_of(const Mesh& mesh) {
    Network contracts;
    for (const Axis& axis : mesh.axes())
        if (!axis.sequential && axis.size > 1) contracts[axis.name] = accelerator_contract();
    return contracts;
}

Plan plan_of(const Job& job, const std::string& script) {
    static const Loader loader(and_plugin_folders({}));
    thread_local Registry registry;  // rows are compiled on several threads
    PlanHost host(job.toml, job.row.id, loader, registry);
    run_script(script, host);
    return std::move(host.plan);
}

std::string text_of_profile(const Job& job) {
    const SoftwareProfile m = profile_of(job.words);
    const std::string more =
        std::string(m.sends_in_pairs ? "\nsends in pairs" : "") +
        (m.recomputes_whole ? job.row.tp > 1 ? "\nrecomputes whole, sums" : "\nrecomputes whole" : "") +
        (m.copies_parts > 0 ? fmt::format("\ncopies parts {}", m.copies_parts) : "") +
        fmt::format("\nheld gradients {} separate {} eight bit {}", static_cast<int>(job.words.software.held_gradients),
                    job.words.software.separate_elementwise, job.words.eight_bit);
    return more + fmt::format(
                      "\nchunks {} late gradients {} params {} blocks {} f32 {} 8 bit {} bf16 {} whole {} cut {} "
                      "apart {} loss {}",
                      job.words.chunks_tp, m.gradients_late, m.params_late, m.blocks_messages, m.gathers_f32,
                      m.gathers_8_bit, m.reduces_bf16, m.all_reduces, m.cuts_all_params, m.adds_apart,
                      static_cast<int>(job.words.software.loss));
}

int64_t peak_bytes(const Plan& plan, const Job& job) {
    int64_t peak = 0;
    for (const RankClass& c : plan.classes) peak = std::max(peak, held_bytes(plan, c, job.words));
    return peak;
}

std::string text_of_memory(const Plan& plan, const Job& job) {
    std::string text;
    int64_t peak = 0;
    for (const RankClass& c : plan.classes) {
        std::string kinds;
        const int64_t bytes = held_bytes(plan, c, job.words, &kinds);
        if (bytes <= peak) continue;
        peak = bytes;
        text = fmt::format("stage {}:\n{}", c.stage, kinds);
    }
    return text;
}

}  // namespace orrery::published
