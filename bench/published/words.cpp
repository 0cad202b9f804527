#include "published/words.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "cli/simulate/software.h"
#include "published/accelerators.h"

namespace orrery::published {
namespace {

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

bool contains(const std::string& text, std::string_view word) { return text.find(word) != std::string::npos; }

bool any(const std::string& text, std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return contains(text, word); });
}

/// What the prose says of `sets`: the first word of the list that sets it, "" when there is none.
std::string_view said(const std::string& prose, std::string_view sets) {
    for (const Word& word : word_list())
        if (word.sets.substr(0, word.sets.find('=')) == sets && contains(prose, word.text))
            return word.sets.substr(word.sets.find('=') + 1);
    return "";
}

bool gated(const Row& row) { return any(lower(row.model), {"llama", "qwen", "internlm", "mistral"}); }

/// The number that the prose gives for `sets`; `otherwise` where it gives none.
double number(const std::string& prose, std::string_view sets, double otherwise) {
    for (const Word& word : number_list()) {
        if (word.sets != sets) continue;
        const size_t place = word.text.find('#');
        const std::string_view before = word.text.substr(0, place), after = word.text.substr(place + 1);
        for (size_t at = 0; at < prose.size(); ++at) {
            if (at > 0 && (std::isalnum(static_cast<unsigned char>(prose[at - 1])) || prose[at - 1] == '.')) continue;
            if (prose.compare(at, before.size(), before) != 0) continue;
            const char* const begin = prose.data() + at + before.size();
            double value = 0;
            const auto [end, problem] = std::from_chars(begin, prose.data() + prose.size(), value);
            if (problem == std::errc() && std::string_view(end, prose.data() + prose.size()).starts_with(after))
                return value;
        }
    }
    return otherwise;
}

void read_experts(const std::string& prose, Experts& experts) {
    const auto whole = [&](std::string_view sets) {
        const double value = number(prose, sets, 0);
        return value >= 1 && value <= 1 << 20 ? static_cast<int64_t>(value) : 0;
    };
    experts.count = whole("experts"), experts.top_k = whole("top_k");
    experts.mlp = whole("expert_mlp"), experts.head_dim = whole("head_dim");
    experts.capacity = number(prose, "capacity", experts.capacity);
}

std::string text_of(SoftwareDefaults::Selective selective) {
    switch (selective) {
        case SoftwareDefaults::Selective::core: return "attention";
        case SoftwareDefaults::Selective::ops: return "ops";
        case SoftwareDefaults::Selective::every_second: return "every:2";
    }
    return "";
}

/// What a row says of its software, and of its mesh.
SoftwareDefaults software_of(const Row& row, const std::string& prose) {
    std::string text = lower(row.source) + "; " + prose;
    if (row.tp > 1) text += "; tp > 1";
    if (row.pp > 1) text += "; pp > 1";
    static const std::vector<SoftwareDefaults> all = all_software();
    return software_in(all, text);
}

/// What the words say instead of the software's defaults.
void override_software(const std::string& prose, SoftwareDefaults& software) {
    const auto flag = [&](std::string_view sets, std::string_view yes, bool& value) {
        if (const std::string_view found = said(prose, sets); !found.empty()) value = found == yes;
    };
    flag("sequence", "yes", software.splits_sequence);
    flag("tp_overlap", "yes", software.chunks_tp);
    flag("stage_overlap", "yes", software.overlaps_stages);
    flag("attention", "separate", software.separate_attention);
    flag("params", "f32", software.f32_params);
    flag("gradient_overlap", "yes", software.overlaps_gradients);
    flag("param_overlap", "yes", software.overlaps_params);
    flag("gradient_adds", "apart", software.adds_apart);
    if (const std::string_view type = said(prose, "gradients"); !type.empty())
        software.gradients = type == "bf16" ? SoftwareDefaults::Gradients::bits_16 : SoftwareDefaults::Gradients::f32;
    const std::string_view ops = said(prose, "ops");
    if (ops == "compiled") {
        software.separate_elementwise = false;
        software.launches = SoftwareDefaults::Launches::queued;
    }
}

void read_zero(const Row& row, Words& words) {
    const std::string zero = lower(row.zero);
    words.zero = any(zero, {"fsdp", "hsdp", "zero-3", "full shard"}) ? 3
                 : contains(zero, "zero-2")                          ? 2
                 : any(zero, {"zero-1", "distributed optimizer"})    ? 1
                                                                     : 0;
    words.replicates = any(zero, {"hsdp", "within 8-gpu node", "within node"});
}

void read_recompute(const Row& row, Words& words) {
    const std::string text = lower(row.recompute);
    words.recompute_stated = !text.empty() && !text.starts_with("see");
    if (text.starts_with("none") || !words.recompute_stated) return;
    if (contains(text, "attention core"))
        words.recompute = "attention";
    else if (contains(text, "every 2nd"))
        words.recompute = "every:2";
    else if (contains(text, "op"))
        words.recompute = "ops";
    else if (contains(text, "block"))
        words.recompute = "first:" + std::to_string(std::max<int64_t>(1, row.layers / 6));
    else if (contains(text, "full"))
        words.recompute = "full";
    else
        words.recompute = text_of(words.software.selective),
        words.share_stated = words.software.selective != SoftwareDefaults::Selective::every_second;
}

}  // namespace

const std::vector<Word>& word_list() {
    // Of words that set the same the first one found counts, so denials come first.
    static const std::vector<Word> list = {
        {"no sequence parallel", "sequence=no"},
        {"no sp", "sequence=no"},
        {"sequence parallel", "sequence=yes"},
        {"sp + tp overlap", "sequence=yes"},
        {"(sp)", "sequence=yes"},
        {"tp-comm-overlap", "sequence=yes"},
        {"no tp/pp comm overlap", "tp_overlap=no"},
        {"no tp comm overlap", "tp_overlap=no"},
        {"tp-comm-overlap", "tp_overlap=yes"},
        {"tp overlap", "tp_overlap=yes"},
        {"no tp/pp comm overlap", "stage_overlap=no"},
        {"no p2p overlap", "stage_overlap=no"},
        {"unfused attention", "attention=separate"},
        {"flash", "attention=flash"},
        {"compile", "ops=compiled"},
        {"fused ops", "ops=compiled"},
        {"deepspeed", "pipeline=1f1b"},
        {"1f1b", "pipeline=1f1b"},
        {"squared-relu", "activation=relu2"},
        {"geglu", "activation=swiglu"},  // another gate of the same cost
        {"gelu", "activation=gelu"},
        {"swiglu", "activation=swiglu"},
        {"no tied", "tied=no"},
        {"untied", "tied=no"},
        {"tied embeddings", "tied=yes"},
        {"no bias", "bias=no"},
        {"learned pos", "positions=learned"},
        {"fp32 params", "params=f32"},
        {"mp mode default", "gradients=bf16"},
        {"mp mode pure", "gradients=bf16"},
        {"grad reduce bf16", "gradients=bf16"},
        {"fp32 grad", "gradients=f32"},
        {"overlap-grad", "gradient_overlap=yes"},
        {"overlap grad", "gradient_overlap=yes"},
        {"overlapped grad", "gradient_overlap=yes"},
        {"grad sync overlapped", "gradient_overlap=yes"},
        {"param-gather", "param_overlap=yes"},
        {"param sync", "param_overlap=yes"},
        {"no grad-accum fusion", "gradient_adds=apart"},
        {"roce", "nics=ethernet"},
    };
    return list;
}

const std::vector<Word>& number_list() {
    static const std::vector<Word> list = {
        {"# experts", "experts"},          {"top#", "top_k"}, {"moe_ffn #", "expert_mlp"}, {"head_dim #", "head_dim"},
        {"capacity factor #", "capacity"},
    };
    return list;
}

const std::vector<Default>& default_list() {
    static const std::vector<Default> list = {
        {"activation", "swiglu for llama, qwen, internlm and mistral, else gelu", "words_of"},
        {"norm", "rmsnorm where the activation is gated, else layernorm", "words_of"},
        {"positions", "rope where the activation is gated or relu2, else learned", "words_of"},
        {"bias of products", "where the activation is gelu", "words_of"},
        {"tied head", "where the activation is gelu", "words_of"},
        {"software", "the file of configs/software of which `matches` are in the row, the longest", "software_of"},
        {"sequence parallelism", "that of the software; with experts where tp > 1, which Megatron-LM demands",
         "words_of"},
        {"capacity of experts", "1: the even share", "words_of"},
        {"tp overlap", "that of the software, where the sequence is split and tp in one domain of fast links",
         "words_of"},
        {"full recompute of some blocks", "the first sixth of them", "read_recompute"},
        {"vp", "1; guessed where micro_batch and recompute are left out, too", "jobs_of"},
        {"micro_batch, recompute",
         "guessed: in a pipeline as the software's recipes, else the fastest that fits; recomputed only where nothing "
         "else does",
         "jobs_of"},
        {"share of blocks that are recomputed", "every second block; all where that does not fit", "jobs_of"},
        {"vocabulary", "rounded up to 128 tp where tp > 1", "jobs_of"},
        {"context parallelism", "a ring in zigzag order (Transformer Engine)", "jobs_of"},
    };
    return list;
}

Words words_of(const Row& row) {
    const std::string prose = lower(row.notes + "; " + row.zero + "; " + row.recompute + "; " + row.precision);
    Words words;
    words.software = software_of(row, prose);
    SoftwareDefaults& software = words.software;
    override_software(prose, software);
    words.eight_bit = contains(lower(row.precision), "fp8");
    const std::string_view activation = said(prose, "activation");
    words.activation = activation.empty() ? (gated(row) ? "swiglu" : "gelu") : std::string(activation);
    const bool is_gelu = words.activation == "gelu";
    words.norm = words.activation == "swiglu" ? "rmsnorm" : "layernorm";
    words.positions = is_gelu ? "learned" : "rope";
    words.bias = is_gelu && said(prose, "bias") != "no";
    const std::string_view tied = said(prose, "tied");
    words.tied = tied.empty() ? is_gelu : tied == "yes";
    read_experts(prose, words.experts);
    // Megatron-LM demands a split sequence with experts, and its chunks of tp are not for their layers.
    const bool experts = words.experts.count > 0;
    words.sequence = row.tp > 1 && (software.splits_sequence || (experts && said(prose, "sequence") != "no"));
    const int64_t fast = accelerator_facts(accelerator_of(row.gpu)).domain;
    words.interleaves = said(prose, "pipeline") != "1f1b";
    settle(words, {row.tp, row.tp <= std::max<int64_t>(8, fast), experts, contains(prose, "fp16")});
    words.ethernet = said(lower(row.gpu) + prose, "nics") == "ethernet";
    read_zero(row, words);
    read_recompute(row, words);
    return words;
}

}  // namespace orrery::published
