// What cuBLASLt and cuDNN are asked for, as far as it can be said without them.
#ifdef ORRERY_HAVE_CUDA
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "kernels/cuda/context.h"
#include "kernels/cuda/dnn_rules.h"

using namespace orrery;
using namespace orrery::kernels;
using namespace orrery::kernels::cuda;

namespace {

const DnnMachine hopper{91900, 9, 0};

Attention model(std::int64_t batch, std::int64_t heads, std::int64_t groups, std::int64_t time, std::int64_t dim) {
    Attention s;
    s.batch = batch, s.heads = heads, s.groups = groups, s.queries = s.keys = time, s.head_dim = dim;
    s.causal = true;
    return s;
}

std::int64_t scratch(const Attention& s, const DnnAttempt& a) {
    return dnn_slope_bytes(a.batch, a.heads, s.queries, s.keys);
}

std::string refused(const Attention& s, bool backward, std::size_t version, int major = 9, bool repeats = true) {
    return dnn_refusal(s, Type::bf16, backward, repeats, {version, major, 0});
}

}  // namespace

TEST_CASE("cuda libraries: a gradient that repeats its bits comes in slices whose scratch is linear in time") {
    const Attention shorter = model(16, 25, 25, 1024, 64), s = model(16, 25, 25, 4096, 64);
    CHECK(dnn_attempts(shorter, true, true, hopper).at(0).slices(shorter) == 1);
    const std::vector<DnnAttempt> all = dnn_attempts(s, true, true, hopper);
    REQUIRE(all.size() == 3);
    CHECK(all[0].batch == 4);
    CHECK(all[0].heads == 25);
    CHECK(all[0].slices(s) == 4);
    for (const DnnAttempt& a : all) {
        CHECK(a.form == DnnForm::stored);
        CHECK(a.engine == -1);
        CHECK(scratch(s, a) <= dnn_most_scratch(s));
        CHECK(a.slices(s) * a.batch * a.heads == s.batch * s.heads);
    }
    // Four batches begin at 16 bytes of the rows' sums, whatever a row's length; two do not.
    const std::vector<DnnAttempt> odd = dnn_attempts(model(16, 25, 25, 4095, 64), true, true, hopper);
    REQUIRE(!odd.empty());
    CHECK(odd[0].batch == 4);
    for (const std::int64_t time : {2048, 4096, 8192}) {  // twice the time, twice the bound
        const Attention longer = model(16, 25, 25, time, 64);
        CHECK(dnn_most_scratch(longer) == dnn_most_scratch(shorter) * (time / 1024));
        for (const DnnAttempt& a : dnn_attempts(longer, true, true, hopper))
            CHECK(scratch(longer, a) <= dnn_most_scratch(longer));
    }
}

TEST_CASE("cuda libraries: groups stay whole in a slice; a head too long for the bound is refused") {
    const Attention s = model(1, 32, 8, 8192, 128);
    const std::vector<DnnAttempt> all = dnn_attempts(s, true, true, hopper);
    REQUIRE(all.size() == 1);
    CHECK(all[0].groups == 1);
    CHECK(all[0].heads == 4);
    CHECK(scratch(s, all[0]) < dnn_most_scratch(s));
    CHECK(dnn_attempts(model(1, 32, 8, 1 << 17, 128), true, true, hopper).empty());
    // Rows of a slice must begin at a multiple of 16 bytes: 6 heads of 1999 queries do not.
    const std::vector<DnnAttempt> aligned = dnn_attempts(model(1, 24, 24, 1999, 64), true, true, hopper);
    REQUIRE(aligned.size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(aligned[i].heads == std::vector{12, 8, 4}[i]);
}

TEST_CASE("cuda libraries: the form of the gradient follows chip, version and the wish for repeated bits") {
    const Attention s = model(2, 4, 4, 256, 64);
    CHECK(dnn_attempts(s, false, true, hopper).at(0).form == DnnForm::forward);
    CHECK(dnn_attempts(s, true, false, hopper).at(0).form == DnnForm::summed);
    CHECK(dnn_attempts(s, true, true, hopper).at(0).form == DnnForm::stored);
    const DnnAttempt ordered = dnn_attempts(s, true, true, {92500, 9, 0}).at(0);
    CHECK(ordered.form == DnnForm::summed);
    CHECK(ordered.engine == 6);
    CHECK(ordered.knobs.back() == std::pair<std::string, std::int64_t>("stages", 4));
    const DnnAttempt blackwell = dnn_attempts(s, true, true, {91900, 10, 0}).at(0);
    CHECK(blackwell.form == DnnForm::stored);
    CHECK(blackwell.engine == 5);
    CHECK(blackwell.knobs.size() == 2);
    const Attention large = model(16, 25, 25, 4096, 64);
    CHECK(dnn_attempts(large, true, true, {91900, 10, 0}).at(0).slices(large) == 1);
    CHECK(dnn_attempts(large, true, true, {91900, 10, 0}).at(1).slices(large) == 4);
}

TEST_CASE("cuda libraries: versions with known faults and sizes without an engine are refused with a reason") {
    const Attention s = model(2, 4, 4, 256, 64);
    CHECK(refused(s, true, 91900) == "");
    CHECK(refused(s, false, 91900) == "");
    CHECK(refused(s, true, 91000) == "cuDNN 9.10.0 has known faults");
    CHECK(refused(s, true, 91001) == "cuDNN 9.10.1 has known faults");
    CHECK(refused(s, true, 91002) == "");
    CHECK(refused(s, true, 80907) == "cuDNN 8.9.7 is older than 9.0");
    CHECK(refused(model(2, 4, 4, 100, 64), true, 91500) ==
          "cuDNN 9.15.0 needs keys in multiples of 128 for the gradient");
    CHECK(refused(model(2, 4, 4, 100, 64), true, 91600) == "");
    CHECK(refused(model(2, 4, 4, 100, 64), false, 91500) == "");
    CHECK(refused(model(2, 4, 4, 1, 64), true, 91900) == "cuDNN has no gradient of a single position");
    CHECK(refused(s, true, 91700, 10) != "");
    CHECK(refused(s, true, 91700, 10, false) == "");
    CHECK(refused(model(2, 4, 4, 256, 256), true, 91900, 9) == "");
    CHECK(refused(model(2, 4, 4, 256, 256), true, 91900, 8) != "");
    CHECK(refused(model(2, 4, 4, 256, 60), false, 91900) != "");
    Attention shifted = s;
    shifted.shift = 3;
    CHECK(refused(shifted, false, 91900) == "the mask is not the plain triangle");
    Attention windowed = s;
    windowed.window = 64;
    for (const bool backward : {false, true}) CHECK(refused(windowed, backward, 91900) == "the mask has a window");
    CHECK(dnn_refusal(s, Type::f32, false, true, hopper) != "");
    CHECK(dnn_unseen(90900) == std::numeric_limits<float>::lowest());
    CHECK(std::isinf(dnn_unseen(91000)));
}

TEST_CASE("cuda libraries: a context makes a plan once for a key, and drops it with itself") {
    std::weak_ptr<int> seen;
    {
        kernels::cuda::Context context(Chip{}, nullptr, "");
        int made = 0;
        const auto make = [&] { return new int(++made); };
        const std::shared_ptr<int> first = context.keep<int>("a", make);
        CHECK(context.keep<int>("a", make) == first);
        CHECK(*context.keep<int>("b", make) == 2);
        CHECK(made == 2);
        seen = first;
    }
    CHECK(seen.expired());
}
#endif
