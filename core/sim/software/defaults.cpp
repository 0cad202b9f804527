#include "sim/software/defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/suggest.h"

namespace orrery {
namespace {

/// The table [KEY] of a file: its value and where that is documented.
class Cells {
public:
    explicit Cells(Config& file) : file_(file) {}

    template <class T>
    T word(const std::string& key, const std::vector<std::pair<std::string, T>>& words) {
        Config& cell = of(key);
        const std::string found = cell.require_text("value");
        std::vector<std::string> names;
        for (const auto& [name, value] : words) {
            if (name == found) return value;
            names.push_back(name);
        }
        throw Error(cell.where("value"),
                    fmt::format("{}.value is \"{}\"{}", key, found, choices("it can be", found, names)));
    }

    int64_t elements(const std::string& key) {
        Config& cell = of(key);
        const int64_t value = cell.require_integer("value");
        if (value < 0 || value > max_elements)
            throw Error(cell.where("value"), fmt::format("{}.value is {}, expected 0 to {}", key, value, max_elements));
        return value;
    }

private:
    static constexpr int64_t max_elements = 1'000'000'000'000;

    Config& of(const std::string& key) {
        if (!file_.has(key))
            throw Error(file_.origin(), fmt::format("missing [{}] with value and source (configs/software)", key));
        Config& cell = file_.table(key);
        if (cell.require_text("source").empty())
            throw Error(cell.where("source"),
                        fmt::format("{}.source is empty, expected where its value is documented", key));
        return cell;
    }

    Config& file_;
};

/// Whether all parts of `match`, which " + " joins, are in the text.
bool holds(std::string_view text, std::string_view match) {
    constexpr std::string_view joined = " + ";
    for (;;) {
        const size_t end = match.find(joined);
        if (text.find(match.substr(0, end)) == std::string_view::npos) return false;
        if (end == std::string_view::npos) return true;
        match.remove_prefix(end + joined.size());
    }
}

}  // namespace

SoftwareDefaults software_defaults(const std::string& name, Config& file) {
    using Of = SoftwareDefaults;
    Cells cells(file);
    Of made;
    made.name = name;
    file.text("project", "");
    made.matches = file.texts("matches");
    using Flags = std::vector<std::pair<std::string, bool>>;
    const Flags yes_no = {{"no", false}, {"yes", true}};
    made.splits_sequence = cells.word("sequence_parallel", Flags{{"no", false}, {"with_tp", true}});
    made.chunks_tp = cells.word("tp_overlap", Flags{{"none", false}, {"ring", true}});
    made.recomputes_whole = cells.word("block_recompute", Flags{{"needed", false}, {"whole", true}});
    made.stages_by_cost = cells.word("stages", Flags{{"even", false}, {"by_cost", true}});
    made.pipelined_samples = cells.elements("pipelined_samples");
    made.scatters_messages = cells.word("stage_messages", Flags{{"whole", false}, {"scattered", true}});
    const auto overlap = cells.word(
        "stage_overlap", std::vector<std::pair<std::string, int>>{{"never", 0}, {"interleaved", 1}, {"always", 2}});
    made.overlaps_stages = overlap > 0;
    made.overlaps_1f1b = overlap > 1;
    made.selective = cells.word("selective_recompute", std::vector<std::pair<std::string, Of::Selective>>{
                                                           {"attention_core", Of::Selective::core},
                                                           {"ops", Of::Selective::ops},
                                                           {"every_second", Of::Selective::every_second}});
    made.separate_attention = cells.word("attention", Flags{{"flash", false}, {"separate", true}});
    made.older_attention = cells.word("attention_code", Flags{{"current", false}, {"ampere", true}});
    made.loss = cells.word(
        "loss", std::vector<std::pair<std::string, Of::Loss>>{
                    {"fused", Of::Loss::fused}, {"torch", Of::Loss::torch}, {"separate", Of::Loss::separate}});
    made.separate_elementwise = cells.word("elementwise", Flags{{"fused", false}, {"separate", true}});
    made.launches = cells.word("launches", std::vector<std::pair<std::string, Of::Launches>>{
                                               {"eager", Of::Launches::eager}, {"queued", Of::Launches::queued}});
    made.f32_params = cells.word("params", Flags{{"16_bit", false}, {"f32", true}});
    made.gradients = cells.word(
        "gradients", std::vector<std::pair<std::string, Of::Gradients>>{{"f32", Of::Gradients::f32},
                                                                        {"16_bit", Of::Gradients::bits_16},
                                                                        {"f32_of_bf16", Of::Gradients::f32_of_bf16}});
    made.eight_bit_params = cells.word("eight_bit_params", Flags{{"16_bit", false}, {"8_bit", true}});
    made.casts_each_use = cells.word("eight_bit_weights", Flags{{"once", false}, {"each_use", true}});
    made.overlaps_gradients = cells.word("gradient_overlap", yes_no);
    made.overlaps_params = cells.word("param_overlap", yes_no);
    made.all_reduces = cells.word("gradient_sums", Flags{{"scatter", false}, {"all_reduce", true}});
    made.adds_apart = cells.word("gradient_adds", Flags{{"fused", false}, {"apart", true}});
    made.copies_parts = cells.word("data_copies", Flags{{"none", false}, {"each_rank", true}});
    made.flat = cells.word("buffers", Flags{{"units", false}, {"flat", true}});
    made.message_elements = cells.elements("message_elements");
    made.message_elements_a_rank = cells.elements("message_elements_a_rank");
    made.held_gradients = cells.word("held_gradients", std::vector<std::pair<std::string, Of::HeldGradients>>{
                                                           {"as_summed", Of::HeldGradients::as_summed},
                                                           {"16_bit", Of::HeldGradients::bits_16},
                                                           {"f32_and_16_bit", Of::HeldGradients::f32_and_16_bits},
                                                           {"sharded", Of::HeldGradients::sharded}});
    made.gathers_again = cells.word("gathered_inputs", Flags{{"saved", false}, {"gathered_again", true}});
    made.peak =
        cells.word("peak_memory", std::vector<std::pair<std::string, Of::Peak>>{{"allocated", Of::Peak::allocated},
                                                                                {"reserved", Of::Peak::reserved},
                                                                                {"device", Of::Peak::device}});
    made.planned = cells.word("tensors", Flags{{"allocated", false}, {"planned", true}});
    file.reject_unused();
    return made;
}

void check_matches(const std::vector<SoftwareDefaults>& all) {
    std::map<std::string, std::string> taken;  // name by text
    for (const SoftwareDefaults& one : all)
        for (const std::string& match : one.matches)
            if (const auto [other, fresh] = taken.try_emplace(match, one.name); !fresh)
                throw Error(fmt::format("{}.toml: matches has \"{}\", as {}.toml has\n  remove it from one of them",
                                        one.name, match, other->second));
}

const SoftwareDefaults& software_in(const std::vector<SoftwareDefaults>& all, std::string_view text) {
    const SoftwareDefaults* best = nullptr;
    size_t longest = 0;
    for (const SoftwareDefaults& one : all)
        for (const std::string& match : one.matches)
            if ((!best || match.size() > longest) && holds(text, match)) best = &one, longest = match.size();
    if (!best) throw Error("no file of configs/software matches the run\n  add what its description says to `matches`");
    return *best;
}

}  // namespace orrery
