// The promises of every Device: memory, queues, events, and each kernel that it says it has.
#include "orrery/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <numeric>

#include "ops/comparison.h"
#include "suites/chosen.h"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

std::unique_ptr<Device> made(const std::string& name, Config config) {
    auto device = suites::loaded("device", name).device(name, {})(config);
    config.reject_unused();
    return device;
}

struct Suite {
    std::string name = GENERATE(from_range(suites::usable("device")));
    std::unique_ptr<Device> device = made(name, suites::settings("device", name));

    Suite() { UNSCOPED_INFO(name); }
};

/// Memory that is given back at the end.
class Held {
public:
    Held(Device& device, int64_t bytes, MemoryKind kind = MemoryKind::device)
        : device_(device), memory_(device.allocate(bytes, kind)) {}
    ~Held() { device_.release(memory_); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    char* data() const { return static_cast<char*>(memory_.data); }
    const Memory& memory() const { return memory_; }

private:
    Device& device_;
    Memory memory_;
};

std::vector<char> numbered(int64_t bytes, int first = 0) {
    std::vector<char> all(static_cast<size_t>(bytes));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(first + static_cast<int>(i * 7 % 251));
    return all;
}

void write(Device& device, void* to, const std::vector<char>& bytes, int queue = 0) {
    device.copy(queue, to, bytes.data(), static_cast<int64_t>(bytes.size()));
    device.synchronize(queue);
}

std::vector<char> read(Device& device, const void* from, int64_t bytes, int queue = 0) {
    std::vector<char> all(static_cast<size_t>(bytes));
    device.copy(queue, all.data(), from, bytes);
    device.synchronize(queue);
    return all;
}

/// Runs a spec on copies of the operands in memory of the device, in one arena with unused bytes between them, which
/// no kernel may write. Operands that are the same memory are the same there.
void run(Device& device, const KernelSpec& spec, std::span<const Tensor> operands) {
    constexpr int64_t gap = scratch_alignment;
    constexpr char unused = 0x5a;
    std::map<void*, int64_t> places;
    int64_t size = gap;
    for (const Tensor& tensor : operands)
        if (places.try_emplace(tensor.data, size).second) size += (tensor.bytes() + 2 * gap - 1) / gap * gap;
    std::vector<char> image(static_cast<size_t>(size), unused);
    for (const Tensor& tensor : operands)
        std::memcpy(image.data() + places[tensor.data], tensor.data, static_cast<size_t>(tensor.bytes()));
    const Held arena(device, size);
    write(device, arena.data(), image);
    const std::unique_ptr<Kernel> kernel = device.prepare(spec);
    const Held scratch(device, std::max<int64_t>(kernel->scratch_bytes(), 1));
    std::vector<Tensor> there(operands.begin(), operands.end());
    for (Tensor& tensor : there) tensor.data = arena.data() + places[tensor.data];
    device.launch(0, *kernel, there, scratch.data());
    device.synchronize(0);
    image = read(device, arena.data(), size);
    for (const Tensor& tensor : operands) {
        char* const at = image.data() + places[tensor.data];
        std::memcpy(tensor.data, at, static_cast<size_t>(tensor.bytes()));
    }
    for (const Tensor& tensor : operands)
        std::fill_n(image.data() + places[tensor.data], static_cast<size_t>(tensor.bytes()), unused);
    if (std::any_of(image.begin(), image.end(), [](char byte) { return byte != unused; }))
        FAIL_CHECK("the kernel of " << spec.op << " wrote memory that is not an operand's");
}

op_tests::Way way(const std::string& name, Device& device) {
    return {name, [&](const KernelSpec& spec) { return device.why_not(spec); },
            [&](const KernelSpec& spec, std::span<const Tensor> operands) { run(device, spec, operands); }};
}

/// The kernels in double that come with Orrery.
Device& reference() {
    static Device& device = [&]() -> Device& {
        Config config("device.cpu");
        config.set("reference", {true});
        return *made("cpu", config).release();
    }();
    return device;
}

/// y = x + x, of f32[64]: what most devices have.
const TensorType row{DType::f32, {64}};
const KernelSpec add{"add", {}, {row, row}, {row}};

Tensor at(const Held& arena, int64_t number) { return {arena.data() + number * row.bytes(), row.dtype, row.shape}; }

std::vector<char> floats(float each) {
    const std::vector<float> all(static_cast<size_t>(row.count()), each);
    std::vector<char> bytes(static_cast<size_t>(row.bytes()));
    std::memcpy(bytes.data(), all.data(), bytes.size());
    return bytes;
}

}  // namespace

namespace orrery::test {

void run_reference(const KernelSpec& spec, std::span<const Tensor> operands) { run(reference(), spec, operands); }

}  // namespace orrery::test

TEST_CASE("a device says what it is") {
    const Suite suite;
    const DeviceLimits limits = suite.device->limits();
    CHECK_FALSE(limits.name.empty());
    CHECK(limits.threads >= 1);
    CHECK(limits.memory_bytes >= 0);
    CHECK(limits.used_bytes >= 0);
    CHECK(std::min({limits.matrix_flops_f32, limits.matrix_flops_bf16, limits.copy_bytes_per_s}) >= 0);
    const DeviceFacts facts = Loader(suites::folders()).facts("device", suite.name, {}).of_device();
    CHECK((!facts.host_memory || limits.host_visible));
    CHECK(suite.device->arithmetic() == suite.device->arithmetic());
}

TEST_CASE("memory is aligned, the caller's alone, and refused by its size where there is too little") {
    const Suite suite;
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::pinned, MemoryKind::shared}) {
        INFO("kind " << static_cast<int>(kind));
        std::vector<std::unique_ptr<Held>> all;
        for (const int64_t bytes : {1, 100, 5000, 4096}) {
            try {
                all.push_back(std::make_unique<Held>(*suite.device, bytes, kind));
            } catch (const Error&) {  // a device need not have all kinds
                CHECK(kind != MemoryKind::device);
                break;
            }
            const Memory& memory = all.back()->memory();
            CHECK(memory.data != nullptr);
            CHECK(memory.bytes == bytes);
            CHECK(memory.kind == kind);
            CHECK(reinterpret_cast<uintptr_t>(memory.data) % scratch_alignment == 0);
            write(*suite.device, memory.data, numbered(bytes, static_cast<int>(all.size())));
        }
        for (size_t i = 0; i < all.size(); ++i)
            CHECK(read(*suite.device, all[i]->data(), all[i]->memory().bytes) ==
                  numbered(all[i]->memory().bytes, static_cast<int>(i) + 1));
    }
    try {
        Memory memory = suite.device->allocate(int64_t{1} << 56, MemoryKind::device);
        suite.device->release(memory);
        FAIL("it allocates 2^56 bytes");
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::failed);
        CHECK_THAT(error.what(), Contains("72057594037927936") || Contains("68719476736 MiB"));
    }
}

TEST_CASE("shared memory can be mapped by its handle") {
    const Suite suite;
    std::unique_ptr<Held> shared;
    try {
        shared = std::make_unique<Held>(*suite.device, 5000, MemoryKind::shared);
    } catch (const Error&) {
        return;
    }
    if (!shared->memory().handle.starts_with("/proc/")) return;  // a name is for transports that know it
    write(*suite.device, shared->data(), numbered(5000));
    const int file = ::open(shared->memory().handle.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(file >= 0);
    void* const mapped = ::mmap(nullptr, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    REQUIRE(mapped != MAP_FAILED);
    CHECK(std::memcmp(mapped, numbered(5000).data(), 5000) == 0);
    ::munmap(mapped, 5000);
}

TEST_CASE("copies are done in the order of their queue") {
    const Suite suite;
    Device& device = *suite.device;
    for (const int queue : {0, Device::copy_queue})
        for (const int64_t bytes : {0, 1, 4097, 300'000}) {
            INFO("queue " << queue << ", " << bytes << " bytes");
            const Held one(device, bytes + 3), other(device, bytes + 3);
            const std::vector<char> first = numbered(bytes), second = numbered(bytes, 3);
            device.copy(queue, one.data() + 3, first.data(), bytes);
            device.copy(queue, other.data(), one.data() + 3, bytes);
            device.copy(queue, one.data() + 3, second.data(), bytes);
            CHECK(read(device, other.data(), bytes, queue) == first);
            CHECK(read(device, one.data() + 3, bytes, queue) == second);
        }
}

TEST_CASE("an event is done when the work before it is, and queues wait for it") {
    const Suite suite;
    Device& device = *suite.device;
    constexpr int64_t bytes = 1'000'000;
    const Held one(device, bytes), other(device, bytes);
    const std::vector<char> sent = numbered(bytes);
    CHECK(Event().done());
    device.copy(0, one.data(), sent.data(), bytes);
    const Event copied = device.record(0);
    device.wait(Device::copy_queue, copied);
    std::vector<char> seen(bytes);
    device.copy(Device::copy_queue, seen.data(), one.data(), bytes);
    const Event back = device.record(Device::copy_queue);
    device.wait(Device::first_free_queue, back);
    const Event both = device.record(Device::first_free_queue);
    both.wait();
    CHECK(seen == sent);
    for (const Event& event : {copied, back, both}) CHECK(event.done());
    for (const Event& event : {copied, back, both}) event.wait();  // and again
    device.synchronize(Device::first_free_queue);
    if (const Event gate = device.gate(0); gate.owner) {
        device.synchronize(0);
        CHECK(gate.done());
    }
}

TEST_CASE("kernels of every op are right in every type, or refused by the op's name") {
    const Suite suite;
    const op_tests::Way right = way("the reference", reference());
    const std::vector<op_tests::Way> ways = {way(suite.name, *suite.device)};
    int64_t kernels = 0;
    for (const OpDef* def : all_ops()) {
        if (def->collective || def->elsewhere) continue;
        for (const op_tests::Call& call : op_tests::calls_of(*def))
            for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
                std::string why;
                const auto program = op_tests::in_type(call, type, ways[0].why_not, why);
                INFO(call.text() << " in " << name_of(type));
                if (program) {
                    ++kernels;
                    op_tests::Comparison(right, ways, call, *program).check();
                } else if (type == DType::f32) {
                    CHECK_THAT(why, Contains(std::string(def->name)));
                    CHECK_THROWS_WITH(suite.device->prepare(op_tests::spec_of(call.program())), Contains(why));
                }
            }
    }
    CHECK(kernels > 0);
    CHECK_THAT(suite.device->why_not({"no_such_op", {}, {row}, {row}}), Contains("no_such_op"));
    CHECK_THROWS_AS(suite.device->prepare({"no_such_op", {}, {row}, {row}}), Error);
}

TEST_CASE("what is queued runs in order, and kernels may be launched again") {
    const Suite suite;
    Device& device = *suite.device;
    if (!device.why_not(add).empty()) return;
    const Held arena(device, 3 * row.bytes()), scratch(device, 4096);
    const std::unique_ptr<Kernel> kernel = device.prepare(add), same = device.prepare(add);
    REQUIRE(std::max(kernel->scratch_bytes(), same->scratch_bytes()) <= 4096);
    const std::vector<char> ones = floats(1), sevens = floats(7);
    const Tensor x = at(arena, 0), y = at(arena, 1), z = at(arena, 2);
    for (int launch = 0; launch < 2; ++launch) {
        device.copy(0, x.data, ones.data(), row.bytes());
        device.launch(0, *kernel, std::vector{x, x, y}, scratch.data());  // 2
        device.launch(0, *same, std::vector{y, y, z}, scratch.data());    // 4
        device.copy(0, x.data, sevens.data(), row.bytes());
        device.launch(0, *kernel, std::vector{x, z, y}, scratch.data());  // 11
        device.synchronize(0);
        CHECK(read(device, z.data, row.bytes()) == floats(4));
        CHECK(read(device, y.data, row.bytes()) == floats(11));
    }
}

TEST_CASE("every kind of matrix products is right, and another one is refused") {
    const Suite suite;
    const ProductKinds kinds = suite.device->products();
    if (kinds.names.empty()) return;
    CHECK(std::count(kinds.names.begin(), kinds.names.end(), kinds.in_use) == 1);
    const auto of_kind = [&](const std::string& kind) {
        Config config = suites::settings("device", suite.name);
        config.set("products", {kind, {"", "--set", 0, 0}, true});
        return made(suite.name, config);
    };
    CHECK_THROWS_AS(of_kind("no_such_kind"), Error);
    const OpDef* const matmul = find_op_def("matmul");
    const op_tests::Way right = way("the reference", reference());
    for (const std::string& name : kinds.names) {
        INFO("products " << name);
        const auto device = of_kind(name);
        CHECK(device->products().in_use == name);
        const std::vector<op_tests::Way> ways = {way(name, *device)};
        for (const op_tests::Call& call : op_tests::calls_of(*matmul)) {
            const Program program = call.program();
            if (!device->why_not(op_tests::spec_of(program)).empty()) continue;
            try {
                op_tests::Comparison(right, ways, call, program).check();
            } catch (const Error& lacks) {  // this machine has no such products
                WARN(lacks.what());
                break;
            }
        }
    }
}

TEST_CASE("a captured step runs when it is launched, and each time") {
    const Suite suite;
    Device& device = *suite.device;
    if (!device.captures() || !device.why_not(add).empty()) return;
    const Held arena(device, 2 * row.bytes()), scratch(device, 4096);
    const std::unique_ptr<Kernel> kernel = device.prepare(add);
    REQUIRE(kernel->scratch_bytes() <= 4096);
    const Tensor x = at(arena, 0), y = at(arena, 1);
    write(device, x.data, floats(1));
    write(device, y.data, floats(0));
    std::string why_not;
    const std::unique_ptr<Kernel> step = device.capture(
        [&] {
            device.launch(0, *kernel, std::vector{x, x, y}, scratch.data());
            device.launch(0, *kernel, std::vector{y, y, x}, scratch.data());
        },
        why_not);
    CHECK((step == nullptr) != why_not.empty());
    if (!step) return;
    CHECK(read(device, y.data, row.bytes()) == floats(0));
    for (const float power : {4.0f, 16.0f}) {
        device.launch(0, *step, {}, scratch.data());
        device.synchronize(0);
        CHECK(read(device, x.data, row.bytes()) == floats(power));
    }
}
