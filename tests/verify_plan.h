// `verify` on a lowered plan, with the CPU device and ranks as threads.
#pragma once
#include <catch2/catch.hpp>

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

/// Requires that verify passes, and that it names `tensor` and rank 1 if that rank multiplies the tensor by 1.5.
inline void check_names_rank_1(const Program& annotated, const Lowered& lowered, const std::string& tensor) {
    const VerifyReport report = verify_plan(annotated, lowered);
    INFO(report.text(lowered.plan, {}));
    CHECK(report.passed());
    Verifying wrong;
    wrong.options.injections = {parse_injection("scale,rank=1,tensor=" + tensor + ",by=1.5")};
    const VerifyReport found = verify_plan(annotated, lowered, wrong);
    CHECK_FALSE(found.passed());
    REQUIRE(!found.roots.empty());
    CHECK_THAT(found.text(lowered.plan, wrong.options), Catch::Contains(tensor) && Catch::Contains("rank 1"));
}

}  // namespace orrery::test
