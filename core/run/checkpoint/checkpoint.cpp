#include "run/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/text.h"
#include "run/checkpoint/checkpoint_messages.h"
#include "run/checkpoint/manifest.h"
#include "run/checkpoint/safetensors.h"

namespace orrery {

namespace {

/// Runs `work`; the text of what it throws, "" when it ends well.
template <class Work>
std::string problem_of(Work&& work) {
    try {
        work();
    } catch (const std::bad_alloc&) {
        return "out of memory";
    } catch (const std::exception& problem) {
        return problem.what();
    }
    return "";
}

/// A store's own words name a path or a key; which step it is of is said in any case.
std::string of_step(int64_t step, const std::string& problem) {
    const std::string name = fmt::format("step {}", step);
    return problem.empty() || problem.starts_with(name) ? problem : name + ": " + problem;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
    return {static_cast<const std::byte*>(tensor.data), static_cast<size_t>(tensor.bytes())};
}

/// One CRC-32C per piece of the parts, laid end to end.
std::vector<uint32_t> crcs_of(std::span<const std::span<const std::byte>> parts, int64_t piece_bytes) {
    std::vector<uint32_t> crcs;
    size_t left = 0;  // of the piece at hand
    for (std::span<const std::byte> part : parts)
        while (!part.empty()) {
            if (left == 0) {
                crcs.push_back(0);
                left = static_cast<size_t>(piece_bytes);
            }
            const size_t count = std::min(left, part.size());
            crcs.back() = crc32c(part.first(count), crcs.back());
            part = part.subspan(count);
            left -= count;
        }
    return crcs;
}

/// Writes the shards that this rank owns, in objects of bounded size, and describes them.
class Writer {
public:
    Writer(CheckpointStore& store, int64_t step, int64_t rank, const CheckpointOptions& options)
        : store_(store), step_(step), rank_(rank), options_(options) {}

    void add(const StateValue& value) {
        open_.push_back({value.name, value.local});
        bytes_ += value.local.bytes();
        if (bytes_ >= options_.object_bytes) close();
    }

    void close() {
        if (open_.empty()) return;
        const std::pair<std::string, std::string> step{step_key, std::to_string(step_)};
        const std::vector<std::byte> start = safetensors_start(open_, {&step, 1});
        std::vector<std::span<const std::byte>> parts{start};  // tensors are written from where they lie
        for (const NamedTensor& item : open_) parts.push_back(bytes_of(item.tensor));
        const int64_t bytes = static_cast<int64_t>(start.size()) + bytes_;
        const std::string key = fmt::format("rank-{:05}-{:03}.safetensors", rank_, objects_.size());
        const SafetensorsHeader header = parse_safetensors(start, bytes, key);
        for (const StoredTensor& tensor : header.tensors)
            shards_.push_back({tensor.name, objects_.size(), tensor.begin});
        Sha256 digest;
        for (const auto& part : parts) digest.update(part);
        objects_.push_back({{"key", key},
                            {"bytes", bytes},
                            {"sha256", digest.hex()},
                            {"crc32c", crcs_of(parts, options_.piece_bytes)}});
        store_.put_parts(step_, key, parts);
        open_.clear();
        bytes_ = 0;
    }

    Json objects() const { return objects_; }
    Json shards() const { return shards_; }

private:
    CheckpointStore& store_;
    int64_t step_, rank_;
    const CheckpointOptions& options_;
    std::vector<NamedTensor> open_;
    int64_t bytes_ = 0;
    Json objects_ = Json::array(), shards_ = Json::array();
};

/// Fills one value from the shards that overlap it. `checked`: objects whose header was compared.
void fill(CheckpointStore& store, const Manifest& manifest, const ManifestTensor& tensor, const StateValue& value,
          const Block& mine, std::set<int64_t>& checked) {
    const int64_t size = size_of(tensor.type.dtype);
    for (const ManifestShard& shard : tensor.shards) {
        const std::optional<Block> part = intersect(mine, shard.box);
        if (!part) continue;
        ObjectReader reader(store, manifest, shard.object);
        if (checked.insert(shard.object).second) reader.check_header(tensor.name);
        for_runs(*part, shard.box, mine, [&](int64_t from, int64_t to, int64_t count) {
            reader.read(shard.begin + from * size,
                        {static_cast<std::byte*>(value.local.data) + to * size, static_cast<size_t>(count * size)},
                        tensor.name);
        });
    }
}

}  // namespace

Checkpoints::Checkpoints(CheckpointStore& store, const Mesh& mesh, int64_t rank, Gather gather,
                         CheckpointOptions options, Gather to_first)
    : store_(store),
      mesh_(mesh.with_microbatches(1)),
      rank_(rank),
      gather_(std::move(gather)),
      to_first_(std::move(to_first)),
      options_(options) {
    if (options_.keep < 2) throw Error(fmt::format("keeps {} checkpoints, expected at least 2", options_.keep));
}

std::vector<std::string> Checkpoints::exchange(const std::string& what, const std::string& mine) {
    std::vector<std::string> all = gather_(fmt::format("checkpoint/{}/{}", exchanges_++, what), mine);
    if (static_cast<int64_t>(all.size()) != mesh_.ranks())
        throw Error(fmt::format("{} ranks answered, the mesh has {}", all.size(), mesh_.ranks()), Fault::peer);
    return all;
}

/// Everyone's text on rank 0; what the others get is not to be used.
std::vector<std::string> Checkpoints::collect(const std::string& what, const std::string& mine) {
    return to_first_ ? to_first_(fmt::format("checkpoint/{}/{}", exchanges_++, what), mine) : exchange(what, mine);
}

/// Tells everyone this rank's problem; throws on every rank when any has one.
void Checkpoints::agree(const std::string& what, const std::string& problem, const std::string& task) {
    const std::vector<std::string> problems = exchange(what, problem);
    for (size_t rank = 0; rank < problems.size(); ++rank) {
        if (!problems[rank].empty())
            throw Error(fmt::format("{} failed on rank {}: {}", task, rank, problems[rank]), Fault::failed);
    }
}

/// Drops a half-written one of the same step; one that was passed over, or is none, is kept elsewhere.
void Checkpoints::make_way(int64_t step) {
    store_.discard(step);
    const std::vector<int64_t> steps = store_.steps();
    const bool there = std::find(steps.begin(), steps.end(), step) != steps.end();
    if (there && passed_over_.count(step) == 0 && store_.mark_of(step).empty() && damage_of(store_, step).empty())
        throw Error("it is there already\n  choose another folder for this run, or remove it");
    const std::string kept = store_.set_aside(step);
    if (!kept.empty()) notes_.push_back(fmt::format("what stood in the place of step {} is kept as {}", step, kept));
}

std::vector<Json> Checkpoints::start(int64_t step, std::span<const StateValue> state, const std::string& task) {
    Json mine = {{"step", step}, {"problem", ""}, {"schema", Json::array()}};
    mine["problem"] = problem_of([&] {
        if (step < 0 || step > Manifest::last_step)
            throw Error(fmt::format("the last step that can be is {}", Manifest::last_step));
        mine["schema"] = schema_of(state, mesh_, rank_);
        if (rank_ == 0) make_way(step);
    });
    std::vector<Json> starts = parse_messages(exchange("start", message_text(mine)));
    for (size_t rank = 0; rank < starts.size(); ++rank) {
        const auto problem = starts[rank].at("problem").get<std::string>();
        if (!problem.empty()) throw Error(fmt::format("{} failed on rank {}: {}", task, rank, problem), Fault::failed);
        if (starts[rank].at("step") != step)
            throw Error(fmt::format("{}: rank {} is at step {}", task, rank, starts[rank].at("step").get<int64_t>()),
                        Fault::peer);
    }
    return starts;
}

/// Puts this rank's shards; ends well when all went well and the replicas agree. Returns every rank's report, on rank
/// 0.
std::vector<Json> Checkpoints::write(int64_t step, std::span<const StateValue> state, const std::vector<Json>& starts,
                                     const std::string& task) {
    const std::vector<bool> owner = owned(starts, rank_);
    Writer writer(store_, step, rank_, options_);
    Json votes = Json::array();
    const std::string problem = problem_of([&] {
        for (size_t i = 0; i < state.size(); ++i) {
            const std::span<const std::byte> local = bytes_of(state[i].local);
            votes.push_back(sha256(fmt::format("{}", fmt::join(crcs_of({&local, 1}, 1 << 20), " "))));
            if (owner[i]) writer.add(state[i]);
        }
        writer.close();
        store_.flush(step);
    });
    const Json report = {
        {"problem", problem}, {"objects", writer.objects()}, {"shards", writer.shards()}, {"votes", votes}};
    const std::vector<std::string> texts = collect("report", message_text(report));
    std::vector<Json> reports;
    std::string failure = problem_of([&] {
        if (rank_ != 0) return;
        reports = parse_messages(texts);
        for (size_t rank = 0; rank < reports.size(); ++rank) {
            const auto said = reports[rank].at("problem").get<std::string>();
            if (!said.empty()) throw Error(fmt::format("on rank {}: {}", rank, said));
        }
        count_votes(starts, reports);
    });
    failure = exchange("written", failure)[0];  // rank 0's word is everyone's
    if (failure.empty()) return reports;
    if (rank_ == 0) problem_of([&] { store_.discard(step); });
    throw Error(task + " failed: " + failure + "\n  earlier checkpoints are as they were", Fault::failed);
}

void Checkpoints::save(int64_t step, std::span<const StateValue> state, std::string_view host) {
    if (step == saved_) return;
    const std::string task = fmt::format("checkpoint of step {} in {}", step, store_.place());
    const std::vector<Json> starts = start(step, state, task);
    const std::vector<Json> reports = write(step, state, starts, task);

    std::string failure;
    if (rank_ == 0) {
        failure = problem_of([&] {
            Manifest manifest{step, mesh_.text(), std::string(host), options_.piece_bytes, {}, {}};
            assemble(manifest, starts, reports);
            store_.commit(step, manifest.text());
        });
        if (!failure.empty()) problem_of([&] { store_.discard(step); });
    }
    agree("commit", failure, task);

    const std::vector<std::string> read = exchange("read", read_back(step));
    const auto bad = std::find_if(read.begin(), read.end(), [](const std::string& said) { return !said.empty(); });
    if (bad != read.end()) {
        if (rank_ == 0) problem_of([&] { store_.remove(step); });
        throw Error(fmt::format("{} could not be read back on rank {}: {}\n  it was removed, earlier ones are as they "
                                "were",
                                task, bad - read.begin(), *bad),
                    Fault::failed);
    }
    saved_ = step;
    verified_.push_back(step);
    agree("retire", rank_ == 0 && options_.retire ? problem_of([&] { retire(); }) : "",
          task + " is good, but removing older ones");
}

/// Reads what this rank wrote from the store again; the text of what is wrong.
std::string Checkpoints::read_back(int64_t step) {
    return problem_of([&] {
        const Manifest manifest = Manifest::of(store_, step);
        for (size_t i = 0; i < manifest.objects.size(); ++i) {
            if (manifest.objects[i].rank != rank_) continue;
            const std::string problem = ObjectReader(store_, manifest, static_cast<int64_t>(i)).verify();
            if (!problem.empty()) throw Error(problem);
        }
    });
}

/// Keeps the newest `keep` that are known to be good. One that is damaged or marked as suspect counts for nothing and
/// stays to be looked at, as does one that others have changed.
void Checkpoints::retire() {
    std::set<int64_t> changed;
    for (const Stray& stray : store_.strays()) changed.insert(stray.step);
    int64_t kept = 0;
    for (const int64_t step : store_.steps()) {
        if (!store_.mark_of(step).empty()) continue;
        if (kept >= options_.keep) {
            if (changed.count(step) == 0) store_.remove(step);
            continue;
        }
        const bool known = std::find(verified_.begin(), verified_.end(), step) != verified_.end();
        if (!known && !orrery::read_back(store_, step).empty()) continue;
        ++kept;
        if (!known) verified_.push_back(step);
    }
}

/// What every rank holds and, from rank 0, what the store does.
std::vector<Json> Checkpoints::look(std::span<const StateValue> state) {
    Json mine = {{"problem", ""}, {"schema", Json::array()}, {"steps", Json::array()}, {"strays", Json::array()}};
    mine["problem"] = problem_of([&] {
        mine["schema"] = schema_of(state, mesh_, rank_);
        if (rank_ != 0) return;
        const std::vector<int64_t> steps = store_.steps();
        for (const int64_t step : steps) mine["steps"].push_back({step, store_.mark_of(step)});
        for (const Stray& stray : store_.strays()) {
            const bool lost = stray.step >= 0 && std::find(steps.begin(), steps.end(), stray.step) == steps.end();
            mine["strays"].push_back({stray.what, lost});
        }
    });
    std::vector<Json> starts = parse_messages(exchange("restore", message_text(mine)));
    for (size_t rank = 0; rank < starts.size(); ++rank) {
        const auto problem = starts[rank].at("problem").get<std::string>();
        if (!problem.empty())
            throw Error(fmt::format("cannot restore from {}: rank {}: {}", store_.place(), rank, problem),
                        Fault::failed);
    }
    owned(starts, rank_);  // throws when ranks disagree on a type
    return starts;
}

/// Fills `state` on every rank; "" or the damage that the first of them found. A rank that cannot read ends the start:
/// it knows nothing of the checkpoint.
std::string Checkpoints::fill_from(int64_t step, std::span<const StateValue> state, const std::vector<Json>& starts,
                                   bool some, std::string& host) {
    std::string foreign, damage, reason;
    const auto read = [&] {
        const Manifest manifest = Manifest::of(store_, step);
        if (const std::string other = mismatch(manifest, starts, some); !other.empty()) {
            // Is it? A manifest that its own objects belie is damaged.
            for (size_t i = 0; i < manifest.objects.size(); ++i)
                ObjectReader(store_, manifest, static_cast<int64_t>(i)).check_header();
            foreign = other;
            return;
        }
        std::set<int64_t> checked;
        for (const StateValue& value : state)
            fill(store_, manifest, *manifest.find(value.name), value, box_of(value, mesh_, rank_), checked);
        host = manifest.host;
    };
    const std::string failure = problem_of([&] {
        try {
            read();
        } catch (const Damaged& found) {
            damage = of_step(step, found.what());
        }
    });
    const std::vector<Json> ends = parse_messages(
        exchange("filled", message_text({{"damage", damage}, {"foreign", foreign}, {"failure", failure}})));
    for (size_t rank = 0; rank < ends.size(); ++rank) {
        const auto text = [&](const char* key) { return ends[rank].at(key).get<std::string>(); };
        const std::string hindered = text("failure"), other = text("foreign"), said = text("damage");
        if (!hindered.empty())
            throw Error(fmt::format("cannot restore step {} from {}: rank {}: {}\n  this says nothing of the "
                                    "checkpoint: mend what hinders that rank, and start again",
                                    step, store_.place(), rank, hindered),
                        Fault::failed);
        if (!other.empty())
            throw Error(
                fmt::format("the checkpoint of step {} in {} is of another program: {}\n  choose another folder "
                            "for this run, or restore the script that made it",
                            step, store_.place(), other));
        if (reason.empty()) reason = said;
    }
    return reason;
}

std::optional<Restored> Checkpoints::restore(std::span<const StateValue> state, bool some) {
    const std::vector<Json> starts = look(state);
    Restored restored;
    std::vector<std::string> unusable;
    bool suspect = false;
    const auto pass_over = [&](int64_t step, const std::string& how, const std::string& why) {
        passed_over_.insert(step);
        restored.passed_over.push_back(how + ", an older checkpoint is used: " + why);
        unusable.push_back(why);
    };
    for (const Json& stray : starts[0].at("strays")) {
        const auto what = stray[0].get<std::string>();
        const bool lost = stray[1].get<bool>();  // a checkpoint, for all that is known
        if (lost) unusable.push_back(what);
        notes_.push_back((lost ? "passed over: " : "") + what);
    }
    for (const Json& entry : starts[0].at("steps")) {
        const auto step = entry[0].get<int64_t>();
        if (const auto mark = entry[1].get<std::string>(); !mark.empty()) {
            pass_over(step, "suspect", fmt::format("step {} is marked: {}", step, quote(trim(mark))));
            suspect = true;
            continue;
        }
        const std::string damage = fill_from(step, state, starts, some, restored.host);
        if (!damage.empty()) {
            pass_over(step, "damaged", damage);
            continue;
        }
        restored.step = step;
        if (!some) verified_.push_back(step);
        return restored;
    }
    if (unusable.empty()) return std::nullopt;
    throw Error((suspect ? "no checkpoint in " + store_.place() + " can be used"
                         : "every checkpoint in " + store_.place() + " is damaged") +
                    "\n  " + join(unusable, "\n  ") + "\n  put a good one back, or start over with --fresh" +
                    (suspect ? "; who takes a mark off, as the store's manual says, goes on from that step" : ""),
                Fault::failed);
}

std::string read_back(CheckpointStore& store, int64_t step) {
    std::string damage;
    const std::string failure = problem_of([&] { damage = damage_of(store, step); });
    return of_step(step, failure.empty() ? damage : failure);
}

}  // namespace orrery
