#include "published/words.h"

#include <algorithm>
#include <cctype>
#include <charconv>

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

/// The rule of software, first line that holds.
Software software_of(const Row& row, const std::string& prose) {
    if (contains(lower(row.precision), "fp8")) return Software::eight_bit;
    if (said(prose, "attention") == "separate" || contains(lower(row.precision), "fp16")) return Software::unfused;
    if (said(prose, "ops") == "compiled") return Software::compiled;
    if (row.tp > 1 || row.pp > 1 || contains(prose, "distributed optimizer")) return Software::megatron;
    return Software::eager;
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
        words.recompute = "every:2";
}

}  // namespace

std::string_view name_of(Software software) {
    switch (software) {
        case Software::eager: return "eager";
        case Software::compiled: return "compiled";
        case Software::megatron: return "megatron";
        case Software::unfused: return "unfused";
        case Software::eight_bit: return "eight_bit";
    }
    return "";
}

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
        {"tp-comm-overlap", "tp_overlap=yes"},
        {"tp overlap", "tp_overlap=yes"},
        {"unfused attention", "attention=separate"},
        {"attention core", "attention=separate"},
        {"flash", "attention=flash"},
        {"eager", "ops=eager"},
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
        {"fp32 grad", "gradients=f32"},
        {"overlap-grad", "data_overlap=yes"},
        {"overlap grad", "data_overlap=yes"},
        {"overlapped grad", "data_overlap=yes"},
        {"grad sync overlapped", "data_overlap=yes"},
        {"deepspeed", "gradients_by=all_reduce"},
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
        {"attention", "flash; separate where the precision is fp16", "words_of"},
        {"sequence parallelism", "no; with experts where tp > 1, which Megatron-LM demands", "words_of"},
        {"capacity of experts", "1: the even share", "words_of"},
        {"tp overlap", "no", "words_of"},
        {"gradients beside kernels", "with FSDP, and where the software is eager, compiled or 8-bit", "words_of"},
        {"params as gathered", "bf16", "words_of"},
        {"gradients as reduced", "f32", "words_of"},
        {"selective recompute, of unnamed parts", "every second block", "read_recompute"},
        {"full recompute of some blocks", "the first sixth of them", "read_recompute"},
        {"vp", "1; guessed where micro_batch and recompute are left out, too", "jobs_of"},
        {"micro_batch, recompute", "guessed: the fastest that fits", "jobs_of"},
        {"vocabulary", "rounded up to 128 tp where tp > 1", "jobs_of"},
        {"context parallelism", "a ring in zigzag order (Transformer Engine)", "jobs_of"},
        {"message of flat gradients and params", "40 million elements, or a million a rank of dp (Megatron-LM)",
         "predict"},
    };
    return list;
}

Words words_of(const Row& row) {
    const std::string prose = lower(row.notes + "; " + row.zero + "; " + row.recompute + "; " + row.precision);
    Words words;
    words.software = software_of(row, prose);
    const std::string_view activation = said(prose, "activation");
    words.activation = activation.empty() ? (gated(row) ? "swiglu" : "gelu") : std::string(activation);
    const bool is_gelu = words.activation == "gelu";
    words.norm = words.activation == "swiglu" ? "rmsnorm" : "layernorm";
    words.positions = is_gelu ? "learned" : "rope";
    words.bias = is_gelu && said(prose, "bias") != "no";
    const std::string_view tied = said(prose, "tied");
    words.tied = tied.empty() ? is_gelu : tied == "yes";
    read_experts(prose, words.experts);
    const std::string_view sequence = said(prose, "sequence");
    words.sequence = row.tp > 1 && (sequence.empty() ? words.experts.count > 0 : sequence == "yes");
    words.chunks_tp = words.sequence && said(prose, "tp_overlap") == "yes";
    const std::string_view attention = said(prose, "attention");
    words.separate = attention == "separate" || (attention.empty() && words.software == Software::unfused);
    words.interleaves = said(prose, "pipeline") != "1f1b";
    words.gather_f32 = said(prose, "params") == "f32";
    words.reduce_bf16 = said(prose, "gradients") == "bf16";
    words.ethernet = said(lower(row.gpu) + prose, "nics") == "ethernet";
    read_zero(row, words);
    words.all_reduces = words.adds_apart = said(prose, "gradients_by") == "all_reduce";
    const bool beside = words.software == Software::eager || words.software == Software::compiled ||
                        words.software == Software::eight_bit;
    words.overlaps_data = beside || words.zero == 3 || said(prose, "data_overlap") == "yes";
    read_recompute(row, words);
    return words;
}

}  // namespace orrery::published
