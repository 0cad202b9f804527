#include "chosen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/text.h"
#include "interpreter.h"
#include "plugin/loader.h"

namespace orrery::op_tests {

namespace {

/// No exception: Catch2 asks for the ops where it can take none.
[[noreturn]] void refuse(const std::string& why) {
    fmt::print(stderr, "op tests: {}\n", why);
    std::exit(2);
}

std::vector<std::string> listed(const char* variable) {
    const char* const text = std::getenv(variable);
    return text == nullptr || *text == 0 ? std::vector<std::string>() : split(text, ',');
}

const Loader& loader() {
    static const Loader one(and_plugin_folders(listed("ORRERY_TESTED_OP_PLUGINS")));
    return one;
}

/// Outlives every device and kernel made from it.
Registry& registry() {
    static Registry& one = *new Registry;
    return one;
}

/// The ops that loading the plugins adds to the table.
std::vector<const OpDef*> plugins_ops(const std::vector<std::string>& names) {
    std::vector<const OpDef*> added;
    for (const std::string& name : names) {
        const std::vector<const OpDef*> before = all_ops();
        try {
            loader().load("op", name, registry(), {});
        } catch (const Error& error) {
            refuse(error.what());
        }
        const size_t already = added.size();
        for (const OpDef* def : all_ops())
            if (std::find(before.begin(), before.end(), def) == before.end()) added.push_back(def);
        if (added.size() == already) refuse(fmt::format("the plugin op/{} adds no op", name));
    }
    return added;
}

std::unique_ptr<Device> make_device(bool reference, int threads) {
    loader().load("device", "cpu", registry(), {});
    Config config("device.cpu");
    config.set("reference", {reference});
    config.set("threads", {int64_t{threads}});
    return registry().device("cpu", {})(config);
}

}  // namespace

bool chosen_by_name() { return !listed("ORRERY_TESTED_OPS").empty(); }

const std::vector<const OpDef*>& chosen() {
    static const std::vector<const OpDef*> ops = [] {
        if (chosen_by_name()) return plugins_ops(listed("ORRERY_TESTED_OPS"));
        std::vector<const OpDef*> table = all_ops();
        std::erase_if(table, [](const OpDef* def) { return def->collective || def->elsewhere; });
        return table;
    }();
    return ops;
}

Device& cpu(int threads) {
    static std::map<int, std::unique_ptr<Device>>& devices = *new std::map<int, std::unique_ptr<Device>>;
    std::unique_ptr<Device>& device = devices[threads];
    if (!device) device = make_device(false, threads);
    return *device;
}

Device& reference() {
    static Device& device = *make_device(true, 1).release();
    return device;
}

void run(Device& device, const KernelSpec& spec, std::span<const Tensor> operands) {
    static std::vector<std::byte>& scratch = *new std::vector<std::byte>;
    const std::unique_ptr<Kernel> kernel = device.prepare(spec);
    size_t room = static_cast<size_t>(kernel->scratch_bytes()) + scratch_alignment;
    scratch.resize(std::max(scratch.size(), room));
    void* begin = scratch.data();
    std::align(scratch_alignment, room - scratch_alignment, begin, room);
    device.launch(0, *kernel, operands, begin);
    device.synchronize(0);
}

}  // namespace orrery::op_tests

namespace orrery::test {

void run_reference(const KernelSpec& spec, std::span<const Tensor> operands) {
    op_tests::run(op_tests::reference(), spec, operands);
}

}  // namespace orrery::test
