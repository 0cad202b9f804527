// Plans whose steady state is stored once: against the same plans written out, by the checkers and by what they
// compute.
#include "plan/repeat.h"
#include "drawn.h"
#include "plan/timeline.h"
#include "plan_stepper.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;

namespace {

/// Megatron's interleaved schedule (arXiv 2104.04473): `chunks` stages a rank, micro-batches in groups of p.
Schedule interleaved(int p, int chunks, int64_t micros) {
    Schedule schedule{"interleaved", {}, {}, {}};
    const int64_t total = micros * chunks;
    const auto forward = [&](int64_t k) {
        return Fragment{Kind::forward, k / (p * chunks) * p + k % p, static_cast<int>(k % (p * chunks) / p)};
    };
    const auto backward = [&](int64_t k) {
        Fragment f = forward(k);
        return Fragment{Kind::backward, f.micro, chunks - 1 - f.chunk};
    };
    for (int r = 0; r < p; ++r) {
        auto& order = schedule.ranks.emplace_back().order;
        const int64_t warm = std::min<int64_t>(total, (p - 1 - r) * 2 + (chunks - 1) * p);
        for (int64_t k = 0; k < warm; ++k) order.push_back(forward(k));
        for (int64_t k = warm; k < total; ++k) {
            order.push_back(forward(k));
            order.push_back(backward(k - warm));
        }
        for (int64_t k = total - warm; k < total; ++k) order.push_back(backward(k));
    }
    return schedule;
}

/// F0 F1 B1 B0 F2 F3 B3 B2 ...: the younger first.
Schedule pairs(int64_t micros) {
    Schedule schedule{"pairs", {RankSchedule{}}, {}, {}};
    for (int64_t m = 0; m < micros; m += 2)
        for (const auto& [kind, micro] :
             {std::pair{Kind::forward, m}, {Kind::forward, m + 1}, {Kind::backward, m + 1}, {Kind::backward, m}})
            schedule.ranks[0].order.push_back({kind, micro, 0});
    return schedule;
}

/// 1F1B whose weight gradients come a fragment later.
Schedule late_weights(int64_t p, int64_t micros) {
    Schedule schedule = hand_1f1b(p, micros);
    schedule.name = "late weights";
    for (RankSchedule& rank : schedule.ranks) {
        std::vector<Fragment> order;
        for (size_t i = 0; i < rank.order.size(); ++i) {
            order.push_back(rank.order[i]);
            if (i > 0 && rank.order[i - 1].kind == Kind::backward)
                order.push_back({Kind::weight, rank.order[i - 1].micro, 0});
        }
        order.push_back({Kind::weight, rank.order.back().micro, 0});
        rank.order = order;
    }
    return schedule;
}

struct Piped {
    std::string name;
    Drawn drawn;
    int64_t left_out;  ///< micro-batches that are not written out, at least
    bool collectives = false;
    bool grouped = true;  ///< also where messages go in groups; else it is written out there
};

std::vector<Piped> jobs() {
    std::vector<Piped> all;
    const auto add = [&](const std::string& name, Schedule schedule, int chunks, int64_t micros, int64_t left_out) {
        Drawn drawn{std::move(schedule), chunks, micros, false};
        drawn.weights = splits_weights(drawn.schedule);
        all.push_back({name, drawn, left_out});
        if (micros < 48) all.push_back({name + ", dp and tp", drawn, left_out, true});
    };
    add("1f1b on two", hand_1f1b(2, 24), 1, 24, 10);
    add("1f1b on four", hand_1f1b(4, 40), 1, 40, 20);
    add("late weights on two", late_weights(2, 32), 1, 32, 12);
    add("interleaved on two", interleaved(2, 2, 40), 2, 40, 16);
    add("interleaved on four", interleaved(4, 2, 64), 2, 64, 16);
    all.back().grouped = false;
    add("interleaved on sixteen", interleaved(16, 2, 160), 2, 160, 32);
    add("all forward, then all backward", hand_gpipe(2, 24), 1, 24, 0);
    return all;
}

struct Made {
    Lowered lowered;
    Network contracts;
};

Made made(const Piped& job, const C& contract, int64_t written, int64_t rows = 2) {
    Model m = model(job.drawn, false, rows);
    const Mesh all = job.collectives ? with_collectives(m, job.drawn) : mesh(job.drawn);
    Made result;
    CompileOptions options;
    options.schedule = &job.drawn.schedule;
    options.written_micros = written;
    for (const Axis& axis : all.axes()) options.contracts[axis.name] = contract;
    result.contracts = options.contracts;
    result.lowered.plan = plan_of(distribute(m.program, all), all, result.lowered.persistent, options);
    return result;
}

bool all_repeat(const Plan& plan) { return std::all_of(plan.classes.begin(), plan.classes.end(), repeats); }

std::string refused(const Plan& plan, const Network& contracts) {
    try {
        check(plan, contracts);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a steady state that is stored once is proved, and so is what it stands for",
          "[contract][schedules][repeat]") {
    for (const Piped& job : jobs())
        for (const auto& [name, contract] : shipped()) {
            INFO(job.name << " on " << name);
            const Made short_form = made(job, contract, 1, 512), whole = made(job, contract, 1 << 20, 512);
            const bool left_out = job.left_out > 0 && (job.grouped || !contract.groups_messages());
            const Plan& plan = short_form.lowered.plan;
            REQUIRE_FALSE(std::any_of(whole.lowered.plan.classes.begin(), whole.lowered.plan.classes.end(), repeats));
            CHECK(refused(whole.lowered.plan, whole.contracts) == "");
            CHECK(all_repeat(plan) == left_out);
            CHECK(refused(plan, short_form.contracts) == "");
            const Plan all = unrolled(plan);
            CHECK(refused(all, short_form.contracts) == "");
            if (!job.collectives) CHECK(Stepper(all, contract, 7).run() == "");
            for (size_t k = 0; k < plan.classes.size(); ++k) {
                const RankClass &mine = plan.classes[k], &theirs = whole.lowered.plan.classes[k];
                if (left_out) CHECK(last_run(mine) * mine.repeat.micros >= job.left_out);
                CHECK(issues(mine) == static_cast<int64_t>(theirs.stream.size()));
                CHECK(static_cast<double>(mine.scratch_bytes) <= 1.02 * static_cast<double>(theirs.scratch_bytes));
                const int part = static_cast<int>(k);
                CHECK(short_form.lowered.persistent.bytes(part) == whole.lowered.persistent.bytes(part));
                for (size_t i = 0; i < theirs.stream.size(); ++i) {
                    const Instruction &a = all.classes[k].stream[i], &b = theirs.stream[i];
                    const bool same = a.opcode == b.opcode && a.op == b.op && a.fragment == b.fragment &&
                                      a.tag == b.tag && a.queue == b.queue;
                    if (!same) FAIL_CHECK("class " << k << " instruction " << i);
                    if (!same) break;
                }
            }
        }
}

TEST_CASE("a stored steady state computes what its plan computes when it is written out", "[schedules][repeat]") {
    std::vector<Piped> all = jobs();
    Piped alone{"one rank", {sequential_schedule(24), 1, 24, false}, 10};
    all.push_back(alone);
    alone = {"one rank, the younger first", {pairs(32), 1, 32, false}, 8};
    all.push_back(alone);
    for (const Piped& job : all) {
        if (job.collectives && job.drawn.schedule.ranks.size() > 2) continue;
        INFO(job.name);
        const C contract = threads_transport()->contract();
        Made short_form = made(job, contract, 1), whole = made(job, contract, 1 << 20);
        CHECK(refused(short_form.lowered.plan, short_form.contracts) == "");
        CHECK(all_repeat(short_form.lowered.plan) == (job.left_out > 0));
        Running how;
        how.steps = 3;
        how.every_step = true;
        const Ran mine = run_steps(short_form.lowered, how), theirs = run_steps(whole.lowered, how);
        CHECK(mine.steps == theirs.steps);
        for (size_t rank = 0; rank < mine.traffic.size(); ++rank)
            for (size_t axis = 0; axis < mine.traffic[rank].size(); ++axis) {
                CHECK(mine.traffic[rank][axis].bytes_sent == theirs.traffic[rank][axis].bytes_sent);
                CHECK(mine.traffic[rank][axis].collectives == theirs.traffic[rank][axis].collectives);
            }
        Lowered plain = short_form.lowered;
        plain.plan = unrolled(plain.plan);
        CHECK(run_steps(plain, how).steps == theirs.steps);
    }
}

TEST_CASE("what is broken in a stored steady state is refused, or would not be in the plan written out",
          "[contract][schedules][repeat]") {
    Random random(5);
    int refusals = 0, harmless = 0;
    std::vector<std::pair<Made, std::string>> sound;
    for (const Piped& job : jobs())
        if (job.left_out > 0) sound.emplace_back(made(job, shipped().begin()->second, 1), job.name);
    for (int at = 0; at < 500; ++at) {
        const auto& [good, name] = sound[below(random, sound.size())];
        Plan plan = good.lowered.plan;
        RankClass& c = plan.classes[below(random, plan.classes.size())];
        const auto any = [&] { return below(random, c.stream.size()); };
        const auto inside = [&] {
            return static_cast<size_t>(c.repeat.begin) + below(random, static_cast<size_t>(c.repeat.length()));
        };
        const size_t what = below(random, 9), one = below(random, 2) ? inside() : any();
        Instruction& i = c.stream[one];
        switch (what) {
            case 0: i.waits.clear(); break;
            case 1: {
                if (c.frames.empty()) break;
                auto& slots = c.frames[below(random, c.frames.size())].slot_of;
                std::swap(slots[below(random, slots.size())], slots[below(random, slots.size())]);
                break;
            }
            case 2: i.tag += 1; break;
            case 3: i.fragment.micro += 1; break;
            case 4: c.repeat.times += 1; break;
            case 5: i.operands[below(random, i.operands.size())].step += 64; break;
            case 6: c.repeat.begin += 1 - 2 * static_cast<int>(below(random, 2)); break;
            case 7: {
                Buffer& b = c.buffers[static_cast<size_t>(i.operands[0].buffer)];
                if (b.frames != none) b.micro += 1;
                break;
            }
            case 8: {
                Instruction& other = c.stream[std::min(c.stream.size() - 1, one + 1)];
                std::swap(i.operands, other.operands);
                break;
            }
        }
        INFO(at << ": " << name << ", change " << what << " at " << one);
        const bool refuses = refused(plan, good.contracts) != "";
        ++(refuses ? refusals : harmless);
        if (!refuses) CHECK(refused(unrolled(plan), good.contracts) == "");
    }
    INFO(refusals << " refused, " << harmless << " harmless");
    CHECK(refusals > 200);
}
