// `verify` on a lowered plan, with the CPU device and ranks as threads.
#pragma once
#include "plan_ranks.h"
#include "run/verify/inject.h"
#include "run/verify/verify.h"

namespace orrery::test {

/// How to verify: as Running, `contents` give the sources.
struct Verifying {
    VerifyOptions options;
    bool reference = false;
    std::function<std::vector<char>(const Value&, int64_t step)> contents = test::contents;
    std::map<std::string, std::vector<ChunkTable>> collectives;
};

inline VerifyReport verify_plan(const Program& annotated, const Lowered& lowered, const Verifying& how = {}) {
    const auto device = [&] { return cpu_device(how.reference); };
    const auto contents = [&](const Value& value, int64_t step) {
        const std::vector<char> bytes = how.contents(value, step);
        const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
        return std::vector<std::byte>(first, first + bytes.size());
    };
    registry();  // made before the ranks' threads ask for it
    return verify({annotated, lowered.plan, lowered.persistent, device, threads_transport, contents,
                   std::chrono::milliseconds(60'000), how.collectives},
                  how.options);
}

}  // namespace orrery::test
