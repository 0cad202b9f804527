// Every op of the table by every CPU table of this machine, between guard pages: inputs that cannot be written, outputs
// and scratch of exactly the bytes that were asked for. `scripts/test --address` runs it with the kernels instrumented.
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "../plugins/device/cpu/resolve.h"
#include "guarded.h"
#include "ir/op.h"
#include "kernels_specs.h"

using namespace orrery;
using namespace orrery::kernels;
using namespace orrery::kernels::testing;
using orrery::testing::Guarded;
using Edge = Guarded::Edge;

namespace {

constexpr cpu::Isa isas[] = {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512};

/// How an op is launched.
struct Way {
    int threads;
    Edge edge;
    bool in_place;
    Products products = Products::onednn;
};
constexpr Way ways[] = {{1, Edge::end, false},
                        {1, Edge::begin, false},
                        {3, Edge::end, false},
                        {1, Edge::end, true},
                        {1, Edge::end, false, Products::native},
                        {1, Edge::begin, false, Products::blocks},
                        {3, Edge::end, false, Products::blocks}};

/// For each output the input whose memory it takes; -1: its own. Empty: this op has no such pair.
std::vector<int> shared_memory(const Spec& spec) {
    const OpDef* def = find_op_def(spec.op);
    std::vector<int> from(spec.outputs.size(), -1);
    std::set<int> taken;
    for (const auto& [out, in] : def ? def->in_place : std::vector<std::pair<int, int>>()) {
        const auto o = static_cast<size_t>(out), i = static_cast<size_t>(in);
        if (o >= spec.outputs.size() || i >= spec.inputs.size() || from[o] >= 0 || taken.count(in) > 0) continue;
        if (spec.inputs[i].type != spec.outputs[o].type || spec.inputs[i].shape != spec.outputs[o].shape) continue;
        from[o] = in;
        taken.insert(in);
    }
    return taken.empty() ? std::vector<int>() : from;
}

size_t bytes_of(const Buffer& b) { return static_cast<size_t>(b.count() * size_of(b.type())); }

/// Memory of one launch.
struct Operands {
    std::vector<Guarded> memory;        ///< inputs, then outputs
    std::vector<orrery::Tensor> given;  ///< the same order, with what is shared

    Operands(const KernelSpec& spec, const Buffers& in, const Buffers& out, Edge edge, const std::vector<int>& from) {
        const auto place = [&](const Buffer& b) {
            memory.emplace_back(static_cast<i64>(bytes_of(b)), size_of(b.type()), edge);
            std::memcpy(memory.back().data(), b.in().data, bytes_of(b));
        };
        for (const Buffer& b : in) place(b);
        for (const Buffer& b : out) place(b);
        for (size_t i = 0; i < memory.size(); ++i) {
            const TensorType& type = i < in.size() ? spec.inputs[i] : spec.outputs[i - in.size()];
            given.push_back({memory[i].data(), type.dtype, type.shape});
        }
        std::set<int> written;
        for (size_t o = 0; o < from.size(); ++o) {
            if (from[o] < 0) continue;
            given[in.size() + o].data = given[static_cast<size_t>(from[o])].data;
            written.insert(from[o]);
        }
        for (size_t i = 0; i < in.size(); ++i)
            if (written.count(static_cast<int>(i)) == 0) memory[i].read_only();
    }
};

/// Runs a spec of this table and writes the outputs.
void run(const Spec& spec, const Kernels& table, const Way& way, const Buffers& in, Buffers& out) {
    const KernelSpec same = kernel_spec(spec);
    const cpu_device::Launch launch = cpu_device::resolve(same, table, false);
    const std::vector<int> from = way.in_place ? shared_memory(spec) : std::vector<int>();
    const i64 bytes = cpu_device::scratch_of(same, launch, way.threads, way.products);
    // As contexts promise it; filled with NaN, so that what is read before it is written shows.
    Guarded scratch(bytes, 64, way.edge);
    std::memset(scratch.data(), 0xff, static_cast<size_t>(bytes));
    Operands operands(same, in, out, way.edge, from);
    Context context(way.threads);
    context.use(way.products);
    context.lend(scratch.data(), bytes);
    launch(context, operands.given);
    for (size_t o = 0; o < out.size(); ++o)
        std::memcpy(out[o].out().data, operands.given[in.size() + o].data, bytes_of(out[o]));
    CHECK(scratch.whole());
    for (const Guarded& operand : operands.memory) CHECK(operand.whole());
}

/// Whether it has a product: kinds of them take other scratch.
bool multiplies(const Spec& spec) {
    const KernelSpec same = kernel_spec(spec);
    const cpu_device::Launch launch = cpu_device::resolve(same, cpu::table(), false);
    return cpu_device::scratch_of(same, launch, 1, Products::blocks) !=
           cpu_device::scratch_of(same, launch, 1, Products::onednn);
}

/// How many launches each table did.
using Counts = std::map<std::string, i64>;

/// In ways, and each time as the reference. Of one number, or where all `cancels`, only the same table elsewhere in
/// memory gives the same within the tolerance: a difference that is nothing by chance has no relative error.
void check_guarded(const std::vector<OpCase>& cases, unsigned seed, Counts& counts, bool cancels = false) {
    for (const OpCase& one : cases) {
        const auto alone = [&](const Buffer& b) { return cancels || b.count() == 1; };
        const bool kinds = multiplies(one.spec);
        const bool elsewhere = std::any_of(one.out.begin(), one.out.end(), alone);
        Buffers expected = one.out, same = one.out;
        run_reference(one.spec, one.in, expected);
        for (const cpu::Isa isa : isas) {
            for (const Way& way : ways) {
                if (!cpu::available(isa) || (way.in_place && shared_memory(one.spec).empty())) continue;
                if (way.products != Products::onednn && !kinds) continue;
                INFO(one.name() << ", isa " << name_of(isa) << ", threads " << way.threads
                                << (way.edge == Edge::end ? ", guarded behind" : ", guarded before")
                                << (way.in_place ? ", in place" : "") << ", products " << static_cast<int>(way.products)
                                << ", seed " << seed);
                Buffers got = one.out;
                run(one.spec, cpu::table(isa), way, one.in, got);
                if (elsewhere)
                    run(one.spec, cpu::table(isa), {way.threads, Edge::begin, false, way.products}, one.in,
                        same = one.out);
                for (size_t i = 0; i < got.size(); ++i) {
                    INFO("output " << i << ", type " << static_cast<int>(got[i].type()));
                    check_close(got[i], alone(got[i]) ? same[i] : expected[i], one.compared_as(i));
                }
                ++counts[name_of(isa)];
            }
        }
    }
}

constexpr i64 odd_sizes[] = {1, 7, 15, 17, 31, 33, 63, 65, 127};

void check_size(i64 n, Counts& counts) {
    Source source;
    check_guarded(size_cases(source, n), source.seed, counts, n == 1);
}

void check_product(i64 m, i64 n, i64 k, Counts& counts) {
    Source source;
    check_guarded(product_cases(source, m, n, k), source.seed, counts);
}

/// The long form's table.
void write_table(const char* file, const Counts& counts, i64 sizes, i64 products) {
    std::ofstream table(file);
#ifdef __SANITIZE_ADDRESS__
    table << "kernels instrumented by AddressSanitizer and UndefinedBehaviorSanitizer, between guard pages\n";
#else
    table << "kernels as they are shipped, between guard pages\n";
#endif
    table << sizes << " sizes of every op, " << products << " sizes of products\n";
    for (const cpu::Isa isa : isas) {
        if (cpu::available(isa))
            table << name_of(isa) << ": " << counts.at(name_of(isa)) << " launches\n";
        else
            table << name_of(isa) << ": not on this processor\n";
    }
}

/// The signal that a child dies of when it touches this address; 0: none.
int signal_of(const volatile unsigned char* at, bool write) {
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (write) *const_cast<volatile unsigned char*>(at) = 1;
        _exit(*at == 7 ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("cpu: memory between guard pages has nothing beside it") {
    for (const i64 bytes : {1, 4096, 5001}) {
        Guarded behind(bytes, 1, Edge::end), before(bytes, 1, Edge::begin), input(bytes, 1, Edge::end);
        const auto* last = static_cast<unsigned char*>(behind.data()) + bytes;
        const auto* first = static_cast<unsigned char*>(before.data());
        CHECK(signal_of(last, false) == SIGSEGV);
        CHECK(signal_of(last - 1, true) == 0);
        CHECK(signal_of(first - 1, false) == SIGSEGV);
        CHECK(signal_of(first, true) == 0);
        input.read_only();
        CHECK(signal_of(static_cast<unsigned char*>(input.data()), false) == 0);
        CHECK(signal_of(static_cast<unsigned char*>(input.data()), true) == SIGSEGV);
    }
    // What the alignment leaves over is the sanitizer's, and is looked at.
    Guarded aligned(100, 64, Edge::end);
    auto* const over = static_cast<unsigned char*>(aligned.data()) + 100;
#ifdef __SANITIZE_ADDRESS__
    CHECK(__asan_address_is_poisoned(over) == 1);
    CHECK(__asan_address_is_poisoned(over - 1) == 0);
#endif
    CHECK(aligned.whole());
    *over = 0;
    CHECK_FALSE(aligned.whole());
}

TEST_CASE("cpu: every op between guard pages, at odd sizes", "[slow]") {
    for (const cpu::Isa isa : isas)
        if (!cpu::available(isa)) WARN("this processor has no " << name_of(isa) << ": its kernels are not tried");
    const char* const file = std::getenv("ORRERY_LONG");
    Counts counts;
    for (const i64 n : file ? std::span<const i64>(odd_sizes) : std::span<const i64>(odd_sizes).first(4))
        check_size(n, counts);
    check_product(65, 127, 33, counts);
    check_product(17, 33, 4099, counts);  // on threads: parts of the sum
    Source source;
    check_guarded(sample_cases(source), source.seed, counts);
    check_guarded(block_cases(source), source.seed, counts);
    if (file == nullptr) return;
    for (const i64 m : odd_sizes)
        for (const i64 n : odd_sizes)
            for (const i64 k : odd_sizes) check_product(m, n, k, counts);
    check_guarded(op_cases(source), source.seed, counts);
    write_table(file, counts, std::size(odd_sizes), std::size(odd_sizes) * 81 + 2);
}

TEST_CASE("cpu: the odd sizes hold every op") {
    Source source;
    std::set<std::string> tried;
    for (const OpCase& one : size_cases(source, 7)) tried.insert(one.spec.op);
    for (const OpCase& one : sample_cases(source)) tried.insert(one.spec.op);
    for (const std::string& op : rules::rule_ops()) {
        INFO(op);
        CHECK(tried.count(op) == 1);
    }
}
