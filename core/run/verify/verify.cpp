#include "run/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <tuple>

#include "ir/describe.h"
#include "ir/op.h"
#include "layout/shards.h"
#include "run/control/rendezvous.h"
#include "run/rank_context.h"
#include "run/verify/verify_rank.h"

namespace orrery {
namespace {

/// One rank: a device with three executors: of the rank, and of the twin and the echo that repeat its instructions.
class Rank {
public:
    Rank(const VerifyCase& verified, int64_t rank, Rendezvous& rendezvous) : device_(verified.device()) {
        RankSetting setting{rank, *device_, "cpu", verified.persistent, {&verified.plan}};
        setting.transport = [shared = std::shared_ptr(verified.transport())](const Axis&) { return shared; };
        setting.rendezvous = &rendezvous;
        setting.timeout = verified.timeout;
        setting.collectives = verified.collectives;
        for (const char* prefix : {"", "twin ", "echo "}) {
            setting.prefix = prefix;
            RankContext& context = contexts_.emplace_back(setting);
            // Fills memory with NaN, which shows if an op reads what no op has written.
            for (const Memory& arena : context.arenas()) std::memset(arena.data, 0xff, arena.bytes);
            executors_.push_back(context.executor(verified.plan));
        }
    }

    Executor& actual() { return *executors_[0]; }
    Executor& twin() { return *executors_[1]; }
    Executor& echo() { return *executors_[2]; }

private:
    std::unique_ptr<Device> device_;
    std::list<RankContext> contexts_;
    std::vector<std::unique_ptr<Executor>> executors_;
};

/// Whether all values of the forward and backward pass are f32, but for codes, which ranks decode at once.
bool all_f32(const Program& program, const Oracle& oracle) {
    const auto short_value = [&](ValueId id) {
        return size_of(program.value(id).type.dtype) == 2 && !oracle.is_code(id);
    };
    return std::ranges::none_of(program.ops, [&](const Op& op) {
        return op.phase != Phase::update &&
               (std::ranges::any_of(op.inputs, short_value) || std::ranges::any_of(op.outputs, short_value));
    });
}

/// Verifies one program. Its ranks are threads that wait between its runs.
class Verification {
public:
    /// `options` without the injections that are of another program.
    Verification(VerifyCase verified, VerifyOptions options)
        : verified_(std::move(verified)),
          options_(std::move(options)),
          plan_(verified_.plan),
          device_(verified_.device()),
          reordered_{reordered_values(plan_, 1), reordered_values(plan_, 2)},
          gradients_(plan_, verified_.annotated.values.size()),
          twins_(plan_.mesh.ranks()),
          turn_(plan_.mesh.ranks() + 1, AtTurn{*this}) {
        const int64_t count = std::max<int64_t>(std::ssize(verified_.islands), 1);
        for (int64_t island = 0; island < count; ++island)
            oracles_.push_back(std::make_unique<Oracle>(
                verified_.annotated, plan_.program, plan_.mesh, *device_,
                [this, island](const Value& value, int64_t step) { return contents(value, step, island); },
                options_.draws));
        for (int64_t rank = 0; rank < plan_.mesh.ranks(); ++rank) threads_.emplace_back([this, rank] { follow(rank); });
    }
    Verification(const Verification&) = delete;
    ~Verification() {
        over_ = true;
        turn_.arrive_and_wait();
        for (std::thread& thread : threads_) thread.join();
    }

    /// Runs a step on one device and on the mesh and judges it. `first`: arrays are those of VerifyCase::contents, not
    /// those that the ranks have. Returns false if a value is wrong.
    bool step(int64_t step, bool first) {
        step_ = step;
        first_ = first;
        for (const auto& oracle : oracles_) oracle->step(step);
        turn_.arrive_and_wait();
        if (!over_) turn_.arrive_and_wait();
        if (error_) std::rethrow_exception(error_);
        ++done_;
        judge_gradients();
        judge_choices();
        settle_findings();
        encodings_.clear();
        return std::ranges::all_of(twins_, [](const auto& twin) { return twin->report().findings.empty(); });
    }

    int64_t runs() const { return done_; }
    /// Writes the params and states that the ranks have to `arrays`, by name: those of all islands.
    void read_arrays(std::map<std::string, std::vector<std::byte>>& arrays) const {
        for (ValueId id = 0; id < std::ssize(verified_.annotated.values); ++id)
            if (const Value& value = plan_.program.value(id); is_array(value) && held(id, 0)) {
                std::vector<std::byte>& all = arrays[value.name];
                all.clear();
                for (int64_t island = 0; island < std::ssize(oracles_); ++island) {
                    const std::vector<std::byte> slice = held(id, island).value();
                    all.insert(all.end(), slice.begin(), slice.end());
                }
            }
    }

    VerifyReport report() {
        report_.ranks = plan_.mesh.ranks();
        report_.steps = done_;
        for (const auto& [axis, tables] : verified_.collectives)
            for (const ChunkTable& table : tables)
                report_.collectives.push_back(
                    fmt::format("{} over {} by {}", name_of(table.collective), axis, table.name));
        report_.judges_gradients = all_f32(plan_.program, *oracles_.front());
        std::vector<char> seen(plan_.program.values.size(), 0);
        for (const auto& twin : twins_) gather(twin->report(), seen);
        for (size_t i = 0; i < seen.size(); ++i) {
            if (seen[i] == 0) {
                const Value& value = plan_.program.values[i];
                // A value that no op makes any more was fused away, or dropped when messages were joined. It does not
                // count as unseen.
                const bool dropped = value.op == none && i >= verified_.annotated.values.size();
                report_.unseen += value.role == Role::temporary && !dropped;
                continue;
            }
            ++report_.values;
            const ValueId sum = reordered_[0][i];
            (sum == none ? report_.exact : report_.reordered) += 1;
            if (sum != none && std::find(report_.sums.begin(), report_.sums.end(), sum) == report_.sums.end())
                report_.sums.push_back(sum);
        }
        find_roots();
        return std::move(report_);
    }

private:
    /// Ends all threads once a rank has failed. Runs when all threads have reached the barrier.
    struct AtTurn {
        Verification& of;
        void operator()() noexcept { of.over_ |= of.error_ != nullptr; }
    };

    void follow(int64_t rank) {
        try {
            Rank runs(verified_, rank, rendezvous_);
            auto& twin = twins_[rank];
            twin = std::make_unique<TwinRank>(TwinRank::Setting{plan_, rank, runs.actual(), runs.twin(), runs.echo(),
                                                                oracle_of(rank), options_, reordered_, gradients_,
                                                                encodings_, verified_.islands_axis});
            for (;;) {
                turn_.arrive_and_wait();
                if (over_) return turn_.arrive_and_drop();
                twin->step(step_, first_, given(island_of(rank)));
                turn_.arrive_and_wait();
            }
        } catch (const std::exception& error) {
            fail(std::current_exception());
            rendezvous_.fail(rank, error.what());
            turn_.arrive_and_drop();
        }
    }

    void fail(std::exception_ptr error) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = error;
    }

    int64_t island_of(int64_t rank) const {
        return verified_.islands_axis == none ? 0 : plan_.mesh.member(rank, verified_.islands_axis);
    }
    Oracle& oracle_of(int64_t rank) { return *oracles_[island_of(rank)]; }
    const WholeContents& given(int64_t island) const {
        return verified_.islands.empty() ? verified_.contents : verified_.islands[island];
    }
    void draw_surely() {
        for (const auto& oracle : oracles_) oracle->draw(std::max(options_.draws, options_.sure));
    }

    /// Contents for an oracle of a value of the plan's program: each step starts from the ranks' params and states, so
    /// that noise does not add up.
    std::vector<std::byte> contents(const Value& value, int64_t step, int64_t island) {
        if (value.role != Role::input && !first_)
            if (auto whole = held(static_cast<ValueId>(&value - plan_.program.values.data()), island))
                return *std::move(whole);
        return given(island)(value, step);
    }

    /// The whole of an island's param or state, from the blocks of its ranks; nullopt: no rank holds it.
    std::optional<std::vector<std::byte>> held(ValueId id, int64_t island) const {
        std::optional<std::vector<std::byte>> whole;
        const Value& value = plan_.program.value(id);
        Layout layout = value.layout;
        if (const auto micro = plan_.mesh.sequential_axis()) layout.set(*micro, Placement::replicated());
        for (int64_t rank = plan_.mesh.ranks(); rank-- > 0;) {  // counts down: the first rank's copy is used
            const Executor& actual = twins_[rank]->actual();
            if (island_of(rank) != island || !actual.holds(id)) continue;
            if (!whole) whole.emplace(value.type.bytes());
            place(whole->data(), value.type.shape, block_of(layout, value.type.shape, plan_.mesh, rank),
                  size_of(value.type.dtype), actual.tensor(id).data);
        }
        return whole;
    }

    /// Whether a rank makes the same block of the finding's value as the finding's rank.
    bool same_block(const Finding& f, int64_t rank) const {
        const Mesh& mesh = plan_.mesh;
        const auto stage = [&](int64_t r) {
            return plan_.stage_axis == none ? 0 : mesh.coordinates(r)[plan_.stage_axis];
        };
        const Value& value = plan_.program.value(f.value);
        const auto block = [&](int64_t r) {
            return block_of(value.layout, value.type.shape, mesh, r, std::max<int64_t>(f.micro, 0));
        };
        return island_of(rank) == island_of(f.rank) && stage(rank) == stage(f.rank) && block(rank) == block(f.rank);
    }

    /// Judges each choice in which a rank differs from the oracle. It is a tie if rounding explains either order of the
    /// two compared values, and every rank that computes the same block differs there, too. Otherwise it is a finding.
    void judge_choices() {
        bool tied = true;
        const auto judge = [&](OtherChoice& other) {
            Finding& f = other.finding;
            const Oracle& oracle = oracle_of(f.rank);
            std::array<double, 2> number{};
            f.tolerance = 0;
            for (size_t k = 0; k < 2; ++k) {
                const DType dtype = plan_.program.value(other.values[k]).type.dtype;
                number[k] = number_at(dtype, oracle.whole(other.values[k]), other.elements[k]);
                f.tolerance +=
                    margin * oracle.moved(other.values[k], other.elements[k]) + epsilon_of(dtype) * std::abs(number[k]);
            }
            f.far.distance = number[0] == number[1] ? 0 : std::abs(number[0] - number[1]);
            return f.far.distance <= f.tolerance;
        };
        std::set<std::tuple<int64_t, ValueId, int64_t, int64_t>> made;  // rank, value, micro-batch, element
        for (const auto& twin : twins_)
            for (OtherChoice& other : twin->report().choices) {
                tied &= judge(other);
                made.emplace(other.finding.rank, other.finding.value, other.finding.micro, other.element);
            }
        const auto agreed = [&](const OtherChoice& other) {
            const Finding& f = other.finding;
            for (int64_t rank = 0; rank < plan_.mesh.ranks(); ++rank)
                if (same_block(f, rank) && made.count({rank, f.value, f.micro, other.element}) == 0) return false;
            return true;
        };
        if (!tied) draw_surely();
        for (const auto& twin : twins_)
            for (OtherChoice& other : twin->report().choices) {
                const Finding& f = other.finding;
                if ((!tied && !judge(other)) || !agreed(other)) {
                    twin->report().findings.push_back(f);
                    continue;
                }
                const Op& op = plan_.program.op(f.op);
                Ties& ties = report_.ties[fmt::format("{} of {}, {}", op.kind, op.scope, op.origin.text())];
                const int64_t elements = plan_.program.value(f.value).type.count();
                ties.choices.emplace(f.step, island_of(f.rank) * elements + other.element);
                ties.smallest = std::min(ties.smallest, f.far.distance);
                ties.largest = std::max(ties.largest, f.far.distance);
                if (f.far.distance > 0) ties.worst = std::max(ties.worst, f.far.distance / f.tolerance);
            }
    }

    /// Judges uncertain findings again with more runs (draws): a few may all miss the direction of rounding.
    void settle_findings() {
        const auto doubtful = [](const Finding& f) { return !f.own && !f.exact && !f.chosen; };
        bool any = false;
        for (const auto& twin : twins_) {
            const auto& findings = twin->report().findings;
            any |= std::any_of(findings.begin(), findings.end(), doubtful);
        }
        if (!any) return;
        draw_surely();
        for (const auto& twin : twins_) {
            RankReport& report = twin->report();
            for (Finding& f : report.findings)
                if (doubtful(f))
                    f.tolerance = tolerance_of(oracle_of(f.rank), f.value, f.type.dtype, f.far.largest, f.rounded);
            std::erase_if(report.findings, [&](const Finding& f) {
                if (!doubtful(f) || !(f.far.distance <= f.tolerance)) return false;
                Compared& line = report.compared[kind_of(plan_.program, f.value, f.gradient)];
                const double part = f.far.distance / f.tolerance;
                if (part > line.worst) line.worst = part, line.value = f.value, line.rank = f.rank;
                return true;
            });
        }
    }

    void judge_gradients() {
        report_.unjudged.clear();
        report_.noisy.clear();
        for (int64_t island = 0; island < std::ssize(oracles_); ++island) judge_gradients(island);
        for (std::vector<ValueId>* params : {&report_.unjudged, &report_.noisy}) {
            std::ranges::sort(*params);
            params->erase(std::unique(params->begin(), params->end()), params->end());
        }
    }

    /// Computes ||g - ref|| of an island's whole gradients, or of multiples of them, from the distances of their
    /// blocks.
    void judge_gradients(int64_t island) {
        const Oracle& oracle = *oracles_[island];
        std::map<ValueId, double> squares;
        for (size_t rank = 0; rank < twins_.size(); ++rank)
            if (island_of(static_cast<int64_t>(rank)) == island)
                for (const auto& [id, square] : twins_[rank]->report().gradient) squares[id] += square;
        struct Norm {
            ValueId value;
            double own, gradients;
        };
        std::vector<Norm> norms;
        double all = 0, all_own = 0;
        for (const auto& [param, gradient] : plan_.program.grads()) {
            const auto& standing = gradients_.of(gradient);
            const auto judged = [&](const auto& s) {
                return !oracle.uncertain(s.value) && (s.multiple ? squares.count(s.value) != 0 : compared(s.value));
            };
            if (standing.empty() || !std::all_of(standing.begin(), standing.end(), judged)) {
                if (!gradients_.matters(gradient)) continue;
                report_.unjudged.push_back(param);
                const auto noisy = [&](const auto& s) { return oracle.uncertain(s.value); };
                if (std::any_of(standing.begin(), standing.end(), noisy)) report_.noisy.push_back(param);
                continue;
            }
            for (const auto& s : standing) {
                if (!s.multiple) continue;
                norms.push_back({s.value, norm_of(oracle, s.value), norm_of(oracle, gradient)});
                all += norms.back().gradients * norms.back().gradients;
                all_own += norms.back().own * norms.back().own;
            }
        }
        for (const Norm& norm : norms) {
            if (squares[norm.value] == 0) continue;
            // The factor by which the optimizer has scaled the gradient.
            const double by = norm.gradients > 0 ? norm.own / norm.gradients : all > 0 ? std::sqrt(all_own / all) : 0;
            const double part = std::sqrt(squares[norm.value]) / (1e-5 * norm.own + 1e-6 * by * std::sqrt(all));
            if (part <= report_.gradients) continue;
            report_.gradients = part;
            report_.worst_gradient = norm.value;
        }
        if (!norms.empty()) report_.gradients = std::max(report_.gradients, 0.0);
    }

    double norm_of(const Oracle& oracle, ValueId value) const {
        const std::byte* whole = oracle.whole(value);
        const TensorType& type = plan_.program.value(value).type;
        return difference(type.dtype, whole, whole, type.count()).norm;
    }

    bool compared(ValueId value) const {
        return std::any_of(twins_.begin(), twins_.end(),
                           [&](const auto& twin) { return twin->report().seen[value] == 2; });
    }

    void gather(const RankReport& rank, std::vector<char>& seen) {
        for (size_t i = 0; i < seen.size(); ++i) seen[i] = std::max(seen[i], rank.seen[i]);
        for (size_t kind = 0; kind < kinds_of_values; ++kind) {
            const Compared& from = rank.compared[kind];
            Compared& to = report_.compared[kind];
            to.comparisons += from.comparisons;
            to.replays += from.replays;
            to.elements += from.elements;
            to.left_out += from.left_out;
            if (from.worst <= to.worst) continue;
            to.worst = from.worst;
            to.value = from.value;
            to.rank = from.rank;
        }
        report_.further += rank.further;
    }

    /// Finds the findings that cause others, the roots. A finding is a root if replaying its op gives another value. If
    /// no replay does, roots are the findings without a wrong input, on this rank or, for a message, on any rank.
    void find_roots() {
        bool replayed = false;
        for (const auto& twin : twins_)
            for (const Finding& f : twin->report().findings) replayed |= f.planned || f.own;
        std::set<std::string> dirty;
        for (const auto& twin : twins_)
            dirty.insert(twin->report().dirty_edges.begin(), twin->report().dirty_edges.end());
        for (const auto& twin : twins_)
            for (const Finding& finding : twin->report().findings) {
                const bool root = finding.planned || finding.own ||
                                  (!replayed && !finding.infected && dirty.count(finding.edge) == 0);
                if (root)
                    report_.roots.push_back(finding);
                else
                    ++report_.further;
            }
        // Orders findings on ranks with the same instructions by instruction, on ranks of different stages by op.
        std::stable_sort(report_.roots.begin(), report_.roots.end(), [&](const Finding& a, const Finding& b) {
            if (a.step != b.step) return a.step < b.step;
            const bool same = &plan_.class_of(a.rank) == &plan_.class_of(b.rank);
            return same ? a.index < b.index : a.op < b.op;
        });
        for (Finding& finding : report_.roots) {
            if (!finding.edge.empty()) blame_members(finding);
            finding.replaces = replaced_by(finding.value);
        }
        report_.roots_in_all = report_.roots.size();
    }

    /// Describes the traced op of this output if an op of its decomposition makes it. Returns "" otherwise, also if a
    /// fused op or an 8-bit variant makes it.
    std::string replaced_by(ValueId value) const {
        const ValueId id = original_of(plan_.program, value);
        if (id < 0 || id >= std::ssize(verified_.annotated.values)) return "";
        const OpId traced = verified_.annotated.value(id).op, made = plan_.program.value(id).op;
        if (traced == none || made == none) return "";
        const Op& before = verified_.annotated.op(traced);
        const OpDef& now = op_def(plan_.program.op(made).kind);
        const bool same = now.name == before.kind || now.name == op_def(before.kind).quantized ||
                          std::ranges::count(now.fused_of, before.kind) > 0;
        return same ? "" : describe(verified_.annotated, before);
    }

    void blame_members(Finding& finding) {
        const Instruction& i = plan_.class_of(finding.rank).stream[finding.index];
        std::vector<int64_t> wrong;
        for (int64_t member : plan_.mesh.group(finding.rank, i.axis))
            if (std::any_of(report_.roots.begin(), report_.roots.end(), [&](const Finding& other) {
                    return other.rank == member && other.edge == finding.edge && other.value == finding.value;
                }))
                wrong.push_back(member);
        if (std::ssize(wrong) == plan_.mesh.size(i.axis)) finding.members = wrong;
    }

    const VerifyCase verified_;
    const VerifyOptions options_;
    const Plan& plan_;
    std::unique_ptr<Device> device_;
    std::vector<std::unique_ptr<Oracle>> oracles_;  ///< one for each island; one without islands
    const ReorderedValues reordered_;
    const Gradients gradients_;
    Encodings encodings_;
    std::vector<std::unique_ptr<TwinRank>> twins_;
    VerifyReport report_;
    int64_t done_ = 0, step_ = 0;
    bool first_ = true;
    LocalRendezvous rendezvous_;
    std::mutex mutex_;
    std::exception_ptr error_;
    bool over_ = false;  ///< read where all threads wait
    std::barrier<AtTurn> turn_;
    std::vector<std::thread> threads_;
};

}  // namespace

namespace {

/// Throws Error if no program has what an injection names, with what the first of them says. Returns by program the
/// injections that it has.
std::map<size_t, std::vector<Injection>> injections_of(const std::map<size_t, VerifyCase>& programs,
                                                       const std::vector<Injection>& all) {
    std::map<size_t, std::vector<Injection>> found;
    for (const Injection& injection : all) {
        std::exception_ptr refused;
        bool any = false;
        for (const auto& [name, program] : programs) {
            try {
                require_injectable(injection, program.plan);
                found[name].push_back(injection);
                any = true;
            } catch (const Error&) {
                if (!refused) refused = std::current_exception();
            }
        }
        if (!any) std::rethrow_exception(refused);
    }
    return found;
}

}  // namespace

std::map<size_t, VerifyReport> verify(const std::map<size_t, VerifyCase>& programs, const Round& round,
                                      const VerifyOptions& options) {
    constexpr int64_t most = 64;
    const Mesh& mesh = programs.begin()->second.plan.mesh;
    if (mesh.ranks() > most)
        throw Error(
            fmt::format("verify runs ranks as threads, at most {}, but mesh {} has {} ranks\n"
                        "  make the axes smaller with --set mesh.AXIS=N: bugs in layouts already show with 2 ranks",
                        most, mesh.text(), mesh.ranks()));
    if (options.steps < 1 || options.draws < 1)
        throw Error(
            fmt::format("verify: {} steps and {} draws, expected 1 or more of each", options.steps, options.draws));
    const auto injections = injections_of(programs, options.injections);
    const bool alone = programs.size() == 1;
    std::map<std::string, std::vector<std::byte>> arrays;  // params and states after the last program
    std::map<size_t, Verification> runs;
    for (const auto& [name, program] : programs) {
        VerifyCase from = program;
        const auto left = [&arrays](WholeContents given, size_t island, size_t islands) {
            return [&arrays, given, island, islands](const Value& value, int64_t step) {
                const auto all = arrays.find(value.name);
                if (!is_array(value) || all == arrays.end()) return given(value, step);
                const std::byte* bytes = all->second.data();
                const size_t slice = all->second.size() / islands;
                return std::vector<std::byte>(bytes + island * slice, bytes + (island + 1) * slice);
            };
        };
        from.contents = left(program.contents, 0, 1);
        for (size_t island = 0; island < program.islands.size(); ++island)
            from.islands[island] = left(program.islands[island], island, program.islands.size());
        VerifyOptions own = options;
        own.injections = injections.contains(name) ? injections.at(name) : std::vector<Injection>();
        runs.try_emplace(name, std::move(from), std::move(own));
    }
    bool passed = true;
    const auto run = [&](size_t name, int64_t step) {
        const auto program = runs.find(name);
        if (!passed || program == runs.end()) return;
        passed = program->second.step(step, !alone || step == 1);
        if (!alone) program->second.read_arrays(arrays);
    };
    for (int64_t step = 1; passed && step <= options.steps; ++step) {
        run(round.program_of(step), step);
        round.after(step, [&](size_t name) { run(name, step); });
    }
    std::map<size_t, VerifyReport> reports;
    for (auto& [name, program] : runs)
        if (program.runs() > 0) reports.emplace(name, program.report());
    return reports;
}

VerifyReport verify(const VerifyCase& verified, const VerifyOptions& options) {
    return verify({{0, verified}}, Round(), options).at(0);
}

namespace {

std::vector<char> summed_in_place(const Plan& plan) {
    std::vector<char> summed(plan.program.values.size(), 0);
    for (const RankClass& c : plan.classes)
        for (const Instruction& i : c.stream) {
            if (i.opcode != Opcode::kernel) continue;
            const KernelSpec& spec = c.kernels[i.kernel];
            for (size_t k = spec.inputs.size(); k < i.operands.size(); ++k) {
                const bool adds = spec.attributes.flag("accumulate") ||
                                  (!spec.inputs.empty() && i.operands[0].value == i.operands[k].value);
                if (adds && i.operands[k].value != none) summed[i.operands[k].value] = 1;
            }
        }
    return summed;
}

}  // namespace

std::vector<ValueId> reordered_values(const Plan& plan, int64_t step) {
    const Program& program = plan.program;
    std::vector<ValueId> because(program.values.size(), none);
    const std::vector<char> summed = summed_in_place(plan);
    const auto sums = [&](ValueId id) {
        const auto& partials = program.value(id).layout.partials();
        return summed[id] || std::any_of(partials.begin(), partials.end(), [&](const Layout::Partial& p) {
                   return p.op == ReduceOp::sum && plan.mesh.size(p.axis) > 1;
               });
    };
    for (int64_t pass = 1; pass <= std::min<int64_t>(step, 2); ++pass) {
        for (const Op& op : program.ops) {
            ValueId cause = none;
            for (ValueId input : op.inputs)
                if (cause == none) cause = because[input];
            for (ValueId output : op.outputs) {
                ValueId& own = because[output];
                const bool across_stages = is_stage_sum(op_def(op.kind));
                if (own == none) own = cause != none ? cause : across_stages || sums(output) ? output : none;
            }
        }
        for (const Update& update : program.updates)
            if (pass < step) because[update.target] = because[update.value];
    }
    return because;
}

}  // namespace orrery
