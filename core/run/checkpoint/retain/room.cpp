#include "run/checkpoint/retain/room.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace orrery {

int64_t checkpoint_bytes(const Program& program) {
    int64_t bytes = 0;
    for (const Value& value : program.values)
        if (value.role == Role::param || value.role == Role::state) bytes += value.type.bytes();
    return bytes;
}

namespace {

/// Whether checkpoint.every is "auto", so that any step may be saved.
bool saves_by_itself(const TrainOptions& options) { return options.checkpoint_mtbf_s > 0; }

int64_t saves_of(const TrainOptions& options) {
    if (saves_by_itself(options)) return options.steps;
    const int64_t every = options.checkpoint_every;
    const int64_t between = every > 0 ? options.steps / every : 0;
    const bool last = options.checkpoint_final && (every <= 0 || options.steps % every != 0);
    return between + last;
}

}  // namespace

void require_room(CheckpointStore& store, int64_t there, const Program& program, const TrainOptions& options,
                  const Origin& where) {
    constexpr int64_t most = RetentionPolicy::least + 1;  // two retained checkpoints, and the one being written
    const int64_t saves = saves_of(options), free = store.free_bytes();
    if (saves == 0 || free < 0) return;
    const int64_t stay = std::min(there, RetentionPolicy::least);
    const int64_t more = std::min(saves, most - stay);
    const int64_t each = checkpoint_bytes(program);
    int64_t needed = 0;
    const bool beyond = __builtin_mul_overflow(more, each, &needed);
    if (!beyond && needed <= free) return;
    throw Error(where,
                fmt::format("not enough disk space: {} has {} free, but this run needs {}: {} of {}{}\n  free space "
                            "there, or choose another run.folder",
                            store.place(), bytes_text(free), beyond ? "more than 2^63 bytes" : bytes_text(needed),
                            plural(more, "checkpoint"), bytes_text(each),
                            more > 1 ? fmt::format(", since {} and the one being written exist at the same time",
                                                   stay + more - 1)
                                     : ""));
}

void require_evaluated(const RetentionPolicy& policy, const TrainOptions& options, const Origin& where) {
    if (policy.best == 0) return;
    if (saves_by_itself(options))
        throw Error(where,
                    fmt::format("checkpoint.keep_best = {}, but with checkpoint.every = \"auto\" no step is sure "
                                "to be both saved and evaluated\n  set checkpoint.every_steps to steps that "
                                "train.evaluate_every divides, or leave keep_best out",
                                policy.best));
    const int64_t every = options.checkpoint_every, evaluated = options.evaluate_every;
    if (every > 0 && evaluated > 0 && options.evaluate_batches > 0 &&
        every <= options.steps / (evaluated / std::gcd(every, evaluated)))
        return;
    throw Error(where, fmt::format("checkpoint.keep_best = {}, but no step before the last is both saved (every {} "
                                   "steps) and evaluated (every {})\n  let train.evaluate_every divide "
                                   "checkpoint.every_steps, or leave keep_best out",
                                   policy.best, every, evaluated));
}

void require_every_kept(const RetentionPolicy& policy, const TrainOptions& options, const Origin& where) {
    const int64_t kept = policy.every_steps, every = options.checkpoint_every;
    if (kept <= 0 || every <= 0 || saves_by_itself(options) || kept % every == 0) return;
    int64_t both = 0;  // least common multiple
    const bool none = __builtin_mul_overflow(kept / std::gcd(kept, every), every, &both);
    throw Error(
        where,
        fmt::format("checkpoint.keep_every_steps = {} is not a multiple of checkpoint.every_steps = {}: {}\n  set "
                    "keep_every_steps to a multiple of every_steps, or every_steps to a divisor of keep_every_steps",
                    kept, every,
                    none ? "no step is both saved and kept"
                         : fmt::format("only steps that {} divides are saved and kept", both)));
}

}  // namespace orrery
