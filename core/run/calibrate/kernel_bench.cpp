#include "run/calibrate/kernel_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/seconds.h"
#include "base/text.h"
#include "ir/op.h"
#include "plan/lower/buffers.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int rounds = 3;
constexpr size_t least_samples = 3;
constexpr int64_t most_places = 1024;
constexpr int64_t most_launches = 1000;  // max launches per timed sample
constexpr int64_t most_visits = 8;       // max launches on one set of operands before they are refilled: repeated
                                         // updates in place, such as 0.5 times 0.1, would become denormal
constexpr size_t chunk_bytes = size_t{4} << 20;

uint32_t mixed(uint64_t i) {
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    return static_cast<uint32_t>((i ^ (i >> 29)) >> 16);
}

/// Returns bytes that are normal numbers of ordinary size in every float type: 0.5 to 1 as f32 and bf16, 1.75 to 1.9 as
/// f16, 3e-5 to 5e-4 as f64.
std::vector<char> pattern() {
    std::vector<char> bytes(chunk_bytes);
    for (size_t i = 0; i < chunk_bytes / 2; ++i) {
        const auto half = static_cast<uint16_t>(0x3f00 | (mixed(i) & 0x7f));
        std::memcpy(&bytes[2 * i], &half, 2);
    }
    return bytes;
}

/// The lookup by the ids of an operand; nullptr: it holds other integers.
const Lookup* lookup_of(const KernelSpec& spec, int operand) {
    const std::optional<Lookup>& lookup = op_def(spec.op).looks_up;
    return lookup && lookup->ids == operand ? &*lookup : nullptr;
}

/// How many rows the ids of a lookup choose from.
int64_t rows_of(const KernelSpec& spec, const Lookup& lookup) {
    const auto& of = lookup.rows.output ? spec.outputs : spec.inputs;
    const Shape& rows = of.at(static_cast<size_t>(lookup.rows.index)).shape;
    return std::max<int64_t>(1, ids_looked_up(lookup, rows, spec.attributes));
}

/// Returns a tensor's bytes: random integers below the bound; 1 for a scalar that is a switch or a seed.
std::vector<char> whole_numbers(const TensorType& type, int64_t bound) {
    std::vector<char> bytes(static_cast<size_t>(type.bytes()), 0);
    const auto size = static_cast<size_t>(size_of(type.dtype));
    for (int64_t i = 0; i < type.count(); ++i) {
        const int64_t value =
            type.count() == 1 && bound == 2 ? 1 : static_cast<int64_t>(mixed(static_cast<uint64_t>(i))) % bound;
        std::memcpy(&bytes[static_cast<size_t>(i) * size], &value, size);
    }
    return bytes;
}

/// Returns the bytes of ids of type [..., T, k]: the T k ids of a group are distinct, below `rows` and in mixed order.
/// If T k is larger than `rows`, the rest are -1.
std::vector<char> distinct_ids(const TensorType& type, int64_t rows) {
    const int64_t each = type.shape.back() * type.shape.at(type.shape.size() - 2), all = std::max(each, rows);
    int64_t step = all * 618 / 1000 + 1;
    while (std::gcd(step, all) > 1) ++step;
    std::vector<char> bytes(static_cast<size_t>(type.bytes()));
    for (int64_t i = 0; i < type.count(); ++i) {
        const int64_t mixed = i % each * step % all;
        const auto id = static_cast<int32_t>(mixed < rows ? mixed : -1);
        std::memcpy(&bytes[static_cast<size_t>(i) * sizeof id], &id, sizeof id);
    }
    return bytes;
}

/// Returns the bytes of the counts of a grouped GEMM: the same number of rows for each matrix, as many as fit.
std::vector<char> even_counts(const TensorType& type, const TensorType& rows) {
    const std::vector<int32_t> counts(static_cast<size_t>(type.count()),
                                      static_cast<int32_t>(rows.count() / rows.shape.back() / type.count()));
    std::vector<char> bytes(static_cast<size_t>(type.bytes()));
    std::memcpy(bytes.data(), counts.data(), bytes.size());
    return bytes;
}

/// Returns the bytes of an integer operand: counts of rows of a matrix product, ids of rows, or other small integers.
std::vector<char> integers_of(const KernelSpec& spec, int operand) {
    const TensorType& type = spec.inputs.at(static_cast<size_t>(operand));
    const Work work = op_def(spec.op).work;
    if (work == Work::product || work == Work::weight_product) return even_counts(type, spec.inputs[0]);
    const Lookup* const lookup = lookup_of(spec, operand);
    if (lookup == nullptr) return whole_numbers(type, 2);
    return lookup->dims > 1 ? distinct_ids(type, rows_of(spec, *lookup)) : whole_numbers(type, rows_of(spec, *lookup));
}

/// Times launches that use different places in memory in turn; a place fits all operands. The memory has two
/// regions: one is only read and filled once for all cases, the other one is written or has integers.
class Bench {
public:
    Bench(Device& device, const KernelBench& how) : device_(device), how_(how), pattern_(pattern()) {}
    ~Bench() {
        for (Memory* memory : {&read_, &written_, &scratch_})
            if (memory->data) device_.release(*memory);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    struct Case {
        const KernelCase* asked = nullptr;
        std::unique_ptr<Kernel> kernel;
        struct At {
            bool read = false;
            int64_t offset = 0;
        };
        std::vector<At> operands;       ///< by operand: its memory region, and its offset there
        int64_t read = 0, written = 0;  ///< bytes of the operands in the read-only region; in the other one
        std::vector<int> refilled;      ///< inputs to refill between launches: overwritten ones and integers
        std::vector<double> samples = {};
        int64_t launches = 0;  ///< launches per sample; 0: unknown
    };

    Case prepare(const KernelCase& asked) {
        Case made{&asked, device_.prepare(asked.run), {}, 0, 0, {}};
        const KernelSpec& spec = asked.run;
        const auto add = [](int64_t& region, const TensorType& type) {
            const int64_t at = region;
            region += aligned(std::max<int64_t>(type.bytes(), 1), scratch_alignment);
            return at;
        };
        for (size_t i = 0; i < spec.inputs.size(); ++i) {
            const auto own = static_cast<int>(i);
            const bool overwritten =
                std::ranges::any_of(asked.in_place, [&](const auto& p) { return p.second == own; });
            const bool read = !overwritten && is_float(spec.inputs[i].dtype);
            made.operands.push_back({read, add(read ? made.read : made.written, spec.inputs[i])});
            if (!read) made.refilled.push_back(own);
        }
        for (size_t o = 0; o < spec.outputs.size(); ++o) {
            const auto same =
                std::ranges::find_if(asked.in_place, [&](const auto& p) { return p.first == static_cast<int>(o); });
            if (same != asked.in_place.end())
                made.operands.push_back(made.operands.at(static_cast<size_t>(same->second)));
            else
                made.operands.push_back({false, add(made.written, spec.outputs[o])});
        }
        if (made.read + made.written > how_.most_bytes)
            throw Error(fmt::format("its operands need {}, more than the limit of {}",
                                    bytes_text(made.read + made.written), bytes_text(how_.most_bytes)));
        return made;
    }

    void sample(Case& c, double seconds) {
        lay_out(c);
        next_ = 0;
        run(c, 1);
        if (c.launches == 0) c.launches = launches_of(run(c, 1));
        const auto begin = Clock::now();
        for (size_t i = 0; i < least_samples || seconds_since(begin) < seconds; ++i) {
            const bool worn = used_ + c.launches > most_visits * static_cast<int64_t>(places_.size());
            if (worn && !c.asked->in_place.empty()) fill(c);
            c.samples.push_back(run(c, c.launches));
        }
    }

private:
    /// Grows a memory region and loses its contents. `numbers`: fills it with normal numbers.
    void reserve(Memory& memory, int64_t bytes, bool numbers) {
        if (memory.bytes >= bytes) return;
        if (memory.data) device_.release(memory);
        memory = {};
        memory = device_.allocate(bytes, MemoryKind::device);
        if (numbers) put_numbers(static_cast<char*>(memory.data), memory.bytes);
    }

    void put_numbers(char* to, int64_t bytes) {
        constexpr auto chunk = static_cast<int64_t>(chunk_bytes);
        for (int64_t at = 0; at < bytes; at += chunk)
            device_.copy(0, to + at, pattern_.data(), std::min(chunk, bytes - at));
        device_.synchronize(0);
    }

    void lay_out(const Case& c) {
        const int64_t count = std::clamp<int64_t>(how_.pool_bytes / (c.read + c.written), 1, most_places);
        reserve(read_, std::max(how_.pool_bytes, count * c.read), true);
        reserve(written_, std::max(how_.pool_bytes, count * c.written), true);
        reserve(scratch_, std::max<int64_t>(c.kernel->scratch_bytes(), scratch_alignment), false);
        const KernelSpec& spec = c.asked->run;
        places_.assign(static_cast<size_t>(count), {});
        for (int64_t place = 0; place < count; ++place)
            for (size_t i = 0; i < c.operands.size(); ++i) {
                const TensorType& type = i < spec.inputs.size() ? spec.inputs[i] : spec.outputs[i - spec.inputs.size()];
                const Case::At& at = c.operands[i];
                char* const data = at.read ? static_cast<char*>(read_.data) + place * c.read
                                           : static_cast<char*>(written_.data) + place * c.written;
                places_[static_cast<size_t>(place)].push_back({data + at.offset, type.dtype, type.shape});
            }
        fill(c);
    }

    /// Refills, in all places, inputs that launches overwrite, and integer inputs.
    void fill(const Case& c) {
        for (const int i : c.refilled) {
            const TensorType& type = c.asked->run.inputs[static_cast<size_t>(i)];
            std::vector<char> numbers;
            if (!is_float(type.dtype)) numbers = integers_of(c.asked->run, i);
            for (const std::vector<Tensor>& place : places_) {
                auto* const to = static_cast<char*>(place[static_cast<size_t>(i)].data);
                if (numbers.empty())
                    put_numbers(to, type.bytes());
                else
                    device_.copy(0, to, numbers.data(), type.bytes());
            }
            device_.synchronize(0);
        }
        used_ = 0;
    }

    /// Runs `launches` launches. Returns the mean seconds of one.
    double run(const Case& c, int64_t launches) {
        const auto begin = Clock::now();
        for (int64_t i = 0; i < launches; ++i) {
            device_.launch(0, *c.kernel, places_[next_], scratch_.data);
            next_ = (next_ + 1) % places_.size();
        }
        device_.synchronize(0);
        used_ += launches;
        return seconds_since(begin) / static_cast<double>(launches);
    }

    int64_t launches_of(double seconds) const {
        const double sample = device_.native(0) ? 5e-3 : 20e-6;  // seconds of a sample, far above a clock read or wait
        return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(sample / std::max(seconds, 1e-9))), 1, most_launches);
    }

    Device& device_;
    const KernelBench& how_;
    const std::vector<char> pattern_;
    Memory read_, written_, scratch_;
    std::vector<std::vector<Tensor>> places_;
    size_t next_ = 0;
    int64_t used_ = 0;  ///< launches since the operands were filled
};

/// Returns all indices below n with neighbours far apart, so that cases left out for lack of time are of all kinds.
std::vector<size_t> scattered(size_t n) {
    std::vector<size_t> order(n);
    size_t step = std::max<size_t>(1, static_cast<size_t>(static_cast<double>(n) * 0.618));
    while (std::gcd(step, n) > 1) ++step;
    for (size_t i = 0; i < n; ++i) order[i] = i * step % n;
    return order;
}

}  // namespace

Measured measured_of(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    const auto at = [&](double part) {
        const double place = part * static_cast<double>(seconds.size() - 1);
        const auto low = static_cast<size_t>(place);
        const size_t high = std::min(low + 1, seconds.size() - 1);
        return seconds[low] + (place - static_cast<double>(low)) * (seconds[high] - seconds[low]);
    };
    const double median = at(0.5);
    return {median, seconds.front(), median > 0 ? (at(0.75) - at(0.25)) / median : 0,
            static_cast<int64_t>(seconds.size())};
}

int64_t pool_bytes_here() {
    const int64_t cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);  // bytes of the L3 cache; 0 or -1: unknown
    return std::clamp<int64_t>(3 * std::max<int64_t>(cache, 0), int64_t{64} << 20, int64_t{256} << 20);
}

std::vector<KernelCost> measure_kernels(Device& device, const std::vector<KernelCase>& cases, const KernelBench& how,
                                        std::vector<std::string>& notes) {
    const auto begin = Clock::now();
    Bench bench(device, how);
    std::vector<Bench::Case> made;
    for (const KernelCase& asked : cases) {
        try {
            made.push_back(bench.prepare(asked));
        } catch (const Error& why) {
            notes.push_back(fmt::format("{} is left out: {}", spec_text(asked.row), why.what()));
        }
    }
    const size_t all = rounds * made.size();
    const std::vector<size_t> order = scattered(made.size());
    for (size_t done = 0; done < all && seconds_since(begin) < how.budget_s; ++done) {
        Bench::Case& c = made[order[done % made.size()]];
        if (how.progress) how.progress(done, all, c.asked->row);
        bench.sample(c, std::max(0.0, how.budget_s - seconds_since(begin)) / static_cast<double>(all - done) / 2);
    }
    std::vector<KernelCost> rows;
    std::vector<std::string> missing;
    for (Bench::Case& c : made) {
        if (!c.samples.empty())
            rows.push_back({c.asked->row, how.threads, measured_of(std::move(c.samples))});
        else
            missing.push_back(spec_text(c.asked->row));
    }
    if (!missing.empty())
        notes.push_back(fmt::format("the time limit was reached before {}: {}",
                                    plural(static_cast<int64_t>(missing.size()), "kernel"), join_few(missing)));
    return rows;
}

}  // namespace orrery
