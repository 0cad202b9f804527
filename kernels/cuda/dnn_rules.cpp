// The rules are those of NVIDIA's cudnn-frontend for its attention nodes, versions included.
#include "kernels/cuda/dnn_rules.h"

#include <algorithm>
#include <limits>

namespace orrery::kernels::cuda {

namespace {

using i64 = std::int64_t;

constexpr i64 least_scratch = i64{128} << 20;

i64 up(i64 n, i64 to) { return (n + to - 1) / to * to; }

i64 scratch_of(const Attention& s, const DnnAttempt& a) {
    const i64 each = a.batch * a.heads;
    const i64 of_heads = a.heads == a.groups ? 0 : 2 * each * s.keys * s.head_dim * 2;  // dk and dv before their sum
    return dnn_slope_bytes(a.batch, a.heads, s.queries, s.keys) + each * s.queries * 4 + of_heads;
}

DnnAttempt whole(const Attention& s, DnnForm form) { return {form, s.batch, s.heads, s.groups, -1, {}}; }

/// Slices of whole batches, then of the heads of one batch, the largest first. Groups are not split, because their
/// heads are added. Rows of every slice begin at a multiple of 16 bytes.
std::vector<DnnAttempt> slices(const Attention& s, DnnAttempt like) {
    std::vector<DnnAttempt> all;
    const i64 each = s.heads / s.groups;
    const auto add = [&](i64 batch, i64 groups) {
        like.batch = batch, like.groups = groups, like.heads = groups * each;
        if (like.slices(s) == 1 || like.batch * like.heads * s.queries % 4 == 0) all.push_back(like);
    };
    for (i64 batch = s.batch; batch > 0; --batch) {
        if (s.batch % batch == 0) add(batch, s.groups);
    }
    for (i64 groups = s.groups - 1; groups > 0; --groups) {
        if (s.groups % groups == 0) add(1, groups);
    }
    return all;
}

/// The largest slices that fit the scratch limit, at most three.
std::vector<DnnAttempt> fitting(const Attention& s, const std::vector<DnnAttempt>& all) {
    std::vector<DnnAttempt> fit;
    for (const DnnAttempt& a : all) {
        if (fit.size() < 3 && scratch_of(s, a) <= dnn_most_scratch(s)) fit.push_back(a);
    }
    return fit;
}

}  // namespace

std::string dnn_version_text(std::size_t version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

std::string dnn_refusal(const Attention& s, Type type, bool backward, bool deterministic, const DnnMachine& machine) {
    if (type == Type::f32) return "cuDNN's attention is of 16-bit types";
    if (s.batch < 1 || s.queries < 1 || s.keys < 1) return "there is nothing to attend to";
    const i64 most_dim = machine.major == 9 || (!backward && machine.version >= 91000) ? 256 : 128;
    if (s.head_dim % 8 != 0 || s.head_dim > most_dim)
        return "cuDNN wants heads of a multiple of 8 elements, at most " + std::to_string(most_dim);
    if (s.causal && (s.shift != 0 || s.queries != s.keys)) return "the mask is not the plain triangle";
    if (s.window > 0) return "the mask has a window";
    if (s.blocks > 1) return "queries and keys come in blocks";
    if (s.indexed) return "the mask is by documents and positions";
    if (s.value_dim > 0) return "values have another head size than keys";
    if (machine.major < 8) return "cuDNN's attention needs compute capability 8.0";
    const std::string version = dnn_version_text(machine.version);
    if (machine.version < 90000) return "cuDNN " + version + " is older than 9.0";
    if (machine.version == 91000 || machine.version == 91001) return "cuDNN " + version + " has known faults";
    if (s.queries == 1 && s.causal && machine.version <= 90900) return "cuDNN " + version + " masks no single query";
    if (!backward) return "";
    // Up to 9.15 the frontend masks the end of the last tile of keys itself; such sizes use our own kernel.
    if (machine.version <= 91500 && s.keys % 128 != 0)
        return "cuDNN " + version + " needs keys in multiples of 128 for the gradient";
    if (s.queries == 1 && s.keys == 1) return "cuDNN has no gradient of a single position";
    if (deterministic && machine.major == 10 && machine.version < 91800)
        return "cuDNN " + version + " has no gradient that repeats its bits for compute capability 10";
    return "";
}

float dnn_unseen(std::size_t version) {
    return version < 91000 ? std::numeric_limits<float>::lowest() : -std::numeric_limits<float>::infinity();
}

std::int64_t dnn_most_scratch(const Attention& s) {
    const i64 rows = s.queries * s.heads + s.keys * s.groups;  // q and o, k and v
    const i64 most = std::max(least_scratch, 4 * (2 * s.batch * rows * s.head_dim * 2));
    return most + most / 16;  // for the rest of the workspace
}

std::int64_t dnn_slope_bytes(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys) {
    return batch * heads * up(queries, 64) * up(keys, 128) * 2;
}

std::vector<DnnAttempt> dnn_attempts(const Attention& s, bool backward, bool deterministic, const DnnMachine& machine) {
    if (!backward) return {whole(s, DnnForm::forward)};
    std::vector<DnnAttempt> all;
    if (!deterministic) all.push_back(whole(s, DnnForm::summed));
    std::vector<DnnAttempt> parts = fitting(s, slices(s, whole(s, DnnForm::stored)));
    if (machine.major == 10) {  // the engine and knobs that repeat their bits; it stores no slope (9.19)
        if (parts.empty() || parts[0].slices(s) > 1) parts.insert(parts.begin(), whole(s, DnnForm::stored));
        for (DnnAttempt& part : parts) {
            part.engine = 5;
            if (machine.version >= 92300) {
                part.knobs = {{"tile_m", 3},   {"tile_n", 2}, {"kernel", 2},
                              {"stream_k", 0}, {"cga_m", 0},  {"stages", 2}};
            } else {
                part.knobs = {{"kernel", 31}, {"stages", 2}};
            }
        }
    }
    if (machine.major == 9 && machine.version >= 92500) {  // adds the gradient of q in a fixed order, linear in time
        DnnAttempt ordered = whole(s, DnnForm::summed);
        ordered.engine = 6;
        ordered.knobs = {{"tile_m", 2}, {"tile_n", 1}, {"kernel", 2}, {"stream_k", 0}, {"cga_m", 0}, {"stages", 4}};
        all.push_back(ordered);
    }
    all.insert(all.end(), parts.begin(), parts.end());
    return all;
}

}  // namespace orrery::kernels::cuda
