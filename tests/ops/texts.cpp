// Programs of samples, and their gradients, as text and back.
#include <catch2/catch.hpp>

#include "chosen.h"
#include "compile/passes/differentiate.h"
#include "ir/build.h"
#include "ir/check_program.h"
#include "ir/parse.h"
#include "ir/print.h"

using namespace orrery;
using namespace orrery::op_tests;

namespace {

void check_text(const Program& program) {
    check_program(program);
    const std::string text = print(program);
    INFO(text);
    const Program back = parse(text);
    CHECK(print(back) == text);
    REQUIRE(back.ops.size() == program.ops.size());
    for (size_t i = 0; i < program.ops.size(); ++i) CHECK(back.ops[i].attributes == program.ops[i].attributes);
    check_program(back);
}

/// The program with the backward pass of the sum of its first output.
Program with_gradient(Program program) {
    Builder build(program);
    ValueId loss = build.one("sum", {program.ops[0].outputs[0]}, {}, {});
    if (program.value(loss).type.dtype != DType::f32)
        loss = build.one("cast", {loss}, {{"dtype", std::string("f32")}}, {});
    differentiate(program, loss);
    return program;
}

}  // namespace

TEST_CASE("programs of every op print and parse and are legal") {
    for (const OpDef* def : chosen()) {
        DYNAMIC_SECTION(def->name) {
            for (const Call& call : calls_of(*def)) {
                INFO(call.text());
                for (const bool named : {false, true}) {
                    check_text(call.program(false, named));
                    const Program trained = call.program(true, named);
                    const bool real = is_float(trained.value(trained.ops[0].outputs[0]).type.dtype);
                    if (!def->gradient || !real || trained.params().empty()) continue;
                    Program whole;
                    try {
                        whole = with_gradient(trained);
                    } catch (const Error& error) {  // a form that only runs forward
                        CHECK(std::string(error.what()).find(def->name) != std::string::npos);
                        continue;
                    }
                    check_text(whole);
                }
            }
        }
    }
}
