// Which gradients verification judges: whatever linear ops an optimizer puts before the sum over ranks.
#include <catch2/catch.hpp>

#include "layout_models.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;

namespace {

using Ints = std::vector<int64_t>;

/// x [8, 4] w [4, 6] -> its squares, and what `make` makes of w and its gradient is w's next value.
Model updated(const std::function<ValueId(Model&, ValueId w, ValueId g)>& make) {
    Model m;
    const ValueId x = m.input("x", {8, 4}, {"batch", "embed"});
    const ValueId w = m.param("w", {4, 6}, {"embed", "mlp"});
    const ValueId loss = m.op("sum", {m.op("square", {m.op("matmul", {x, w})})}, {{"dims", Ints{0, 1}}});
    m.build.result("loss_sum", loss, m.here());
    differentiate(m.program, loss);
    m.build.set_phase(Phase::update);
    m.build.update(w, make(m, w, m.program.grad_of(w)), m.here());
    m.split_names({{"batch", "dp"}});
    return m;
}

ValueId scaled(Model& m, ValueId x, double by) { return m.op("scale", {x}, {{"by", by}}); }

struct Outcome {
    Lowered lowered;
    VerifyReport report;
    std::string text() const { return report.text(lowered.plan, {}); }
};

Outcome ran(const Model& m, const std::string& mistake = "") {
    Outcome r{compile(m.program, Mesh({{"dp", 2}}).with_microbatches(2)), {}};
    Verifying how;
    how.reference = true;
    if (!mistake.empty()) how.options.injections = {parse_injection(mistake)};
    r.report = verify_plan(m.program, r.lowered, how);
    return r;
}

}  // namespace

TEST_CASE("verify: a gradient that is scaled, summed or sliced before its sum over ranks is judged") {
    const std::vector<std::pair<std::string, std::function<ValueId(Model&, ValueId, ValueId)>>> updates{
        {"scaled",
         [](Model& m, ValueId w, ValueId g) {
             return m.op("sub", {w, scaled(m, g, 0.01)});
         }},
        {"twice",
         [](Model& m, ValueId w, ValueId g) {
             const ValueId one = m.op("sub", {w, scaled(m, g, 0.01)});
             return m.op("add", {one, m.op("square", {scaled(m, g, 0.001)})});
         }},
        {"summed",
         [](Model& m, ValueId w, ValueId g) {
             return m.op("sub", {w, m.op("sum", {g}, {{"dims", Ints{0}}, {"keep", true}})});
         }},
        {"sliced",
         [](Model& m, ValueId w, ValueId g) {
             const ValueId part =
                 m.op("slice", {g}, {{"dim", int64_t{1}}, {"start", int64_t{2}}, {"size", int64_t{1}}});
             return m.op("sub", {w, part});
         }},
        {"turned",
         [](Model& m, ValueId w, ValueId g) {
             const ValueId turned = m.op("transpose", {scaled(m, g, 0.01)}, {{"perm", Ints{1, 0}}});
             return m.op("sub", {w, m.op("transpose", {m.op("square", {turned})}, {{"perm", Ints{1, 0}}})});
         }},
    };
    for (const auto& [name, make] : updates) {
        const Model m = updated(make);
        const Outcome right = ran(m);
        INFO(name << "\n" << right.text());
        CHECK(right.report.passed());
        const Outcome wrong = ran(m, "scale,rank=1,tensor=w.grad,by=1.001");
        INFO(wrong.text());
        CHECK_FALSE(wrong.report.passed());
        REQUIRE(!wrong.report.roots.empty());
        CHECK(wrong.report.roots[0].rank == 1);
        CHECK(m.program.value(wrong.report.roots[0].value).name == "w.grad");
    }
}

TEST_CASE("verify: a gradient that the update does not read is not made and not missed") {
    const Outcome decayed = ran(updated([](Model& m, ValueId w, ValueId) { return scaled(m, w, 0.99); }));
    INFO(decayed.text());
    CHECK(decayed.report.passed());
    CHECK(decayed.report.unjudged.empty());
}

TEST_CASE("verify: a gradient that is known on no device for certain is not judged, which is no pass") {
    Model m;
    const ValueId x = m.input("x", {8, 4}, {"batch", "embed"});
    const ValueId w = m.param("w", {4, 6}, {"embed", "mlp"}), v = m.param("v", {4, 6}, {"embed", "mlp"});
    // The sum of a softmax is 1 whatever goes in: the gradient of w is noise.
    const ValueId p = m.op("softmax", {m.op("matmul", {x, w})});
    const ValueId y = m.op("square", {m.op("matmul", {x, v})});
    const ValueId loss =
        m.op("add", {m.op("sum", {p}, {{"dims", Ints{0, 1}}}), m.op("sum", {y}, {{"dims", Ints{0, 1}}})});
    m.build.result("loss_sum", loss, m.here());
    differentiate(m.program, loss);
    m.build.set_phase(Phase::update);
    const ValueId g = m.program.grad_of(w);
    const ValueId root = m.op("sqrt", {m.op("square", {g})});
    const ValueId next_w = m.op("sub", {w, m.op("div", {g, root})});  // a step of 1 in the gradient's direction
    m.build.update(w, next_w, m.here());
    const ValueId whole = m.op("sum", {next_w}, {{"dims", Ints{0, 1}}});
    m.build.update(v, m.op("sub", {v, m.op("mul", {m.program.grad_of(v), whole})}), m.here());
    m.split_names({{"batch", "dp"}});
    const Outcome r = ran(m);
    INFO(r.text());
    CHECK_FALSE(r.report.passed());
    CHECK(r.report.roots.empty());
    REQUIRE(r.report.unjudged.size() == 1);
    CHECK(r.report.unjudged[0] == v);
    CHECK(r.text().find("NOT JUDGED: the gradient of v\n") != std::string::npos);
}
