#include "kernels_specs.h"

#include "ir/op.h"
#include "kernels_cases.h"

namespace orrery::kernels::testing {

namespace {

DType dtype_of(Type type) {
    switch (type) {
        case Type::f64: return DType::f64;
        case Type::bf16: return DType::bf16;
        case Type::f16: return DType::f16;
        case Type::i32: return DType::i32;
        case Type::u32: return DType::u32;
        case Type::u8: return DType::u8;
        case Type::i8: return DType::i8;
        case Type::f8e4m3: return DType::f8e4m3;
        case Type::f8e5m2: return DType::f8e5m2;
        default: return DType::f32;
    }
}

}  // namespace

Type OpCase::compared_as(size_t output) const {
    return op_def(spec.op).work == Work::tiled_loss ? in[0].type() : out[output].type();
}

KernelSpec kernel_spec(const Spec& spec) {
    KernelSpec same{spec.op, {}, {}, {}};
    for (const auto& [name, value] : spec.attributes) same.attributes.set(name, value);
    for (const Operand& o : spec.inputs) same.inputs.push_back({dtype_of(o.type), o.shape});
    for (const Operand& o : spec.outputs) same.outputs.push_back({dtype_of(o.type), o.shape});
    return same;
}

void run_reference(const Spec& spec, const Buffers& in, Buffers& out) {
    const KernelSpec same = kernel_spec(spec);
    Buffers inputs = in;
    std::vector<Tensor> operands;
    const auto both = [&](const std::vector<TensorType>& types, Buffers& buffers) {
        for (size_t i = 0; i < types.size(); ++i)
            operands.push_back({buffers[i].out().data, types[i].dtype, types[i].shape});
    };
    both(same.inputs, inputs);
    both(same.outputs, out);
    Context context;
    cpu_device::resolve(same, reference::table(), true)(context, operands);
}

std::vector<OpCase> op_cases(Source& source) {
    Cases c(source);
    for (const Type f : {Type::f32, Type::bf16, Type::f16}) {
        for (const Sizes& shape : {Sizes{3, 37}, Sizes{16, 64}}) elementwise(c, f, shape);
        broadcasts(c, f);
        for (const auto& [m, n, k] : {std::tuple<i64, i64, i64>{5, 7, 3}, {70, 65, 33}, {64, 128, 48}})
            products(c, f, m, n, k);
        mixed_products(c, f, 9, 24, 16);
        grouped_products(c, f, 3, 70, 65, 33);
        grouped_products(c, f, 5, 13, 24, 9);
        for (const Heads& z :
             {Heads{2, 37, 37, 4, 2, 16, true}, Heads{1, 70, 70, 2, 2, 64, true}, Heads{1, 33, 50, 3, 1, 24, false},
              Heads{1, 20, 20, 2, 1, 136, true}, Heads{2, 139, 139, 4, 2, 8, true, 33},
              Heads{1, 41, 150, 2, 1, 12, true, 7}, Heads{1, 20, 20, 2, 2, 24, true, 20},
              Heads{2, 75, 139, 4, 2, 20, true, 60, 12, true}, Heads{1, 70, 33, 2, 1, 8, false, 0, 136, true}})
            attentions(c, f, z);
        for (const auto& [rows, cols] :
             {std::pair<i64, i64>{5, 33}, {130, 96}, {75, 768}, {3, 1600}, {2, 9000}, {1, 40000}})
            norms(c, f, rows, cols);
        reductions(c, f,
                   {{{200, 33}, {0}, {33}},
                    {{200, 33}, {1}, {200}},
                    {{200, 33}, {0, 1}, {}},
                    {{5, 30, 7}, {1}, {5, 7}},
                    {{5, 30, 7}, {0, 2}, {30}},
                    {{700, 96}, {0}, {96}},
                    {{3, 9000}, {1}, {3}}},
                   70001);
        for (const auto& [n, rows, cols] : {std::tuple<i64, i64, i64>{7, 6, 3}, {300, 6, 40}, {1000, 700, 33}})
            embeddings(c, f, n, rows, cols);
        for (const auto& [outer, n, inner] :
             {std::tuple<i64, i64, i64>{3, 7, 5}, {40, 33, 1}, {2, 300, 40}, {1, 1500, 1}})
            indices(c, f, outer, n, inner);
        for (const auto& [rows, cols] : {std::pair<i64, i64>{1, 9001}, {3, 777}, {40, 33}}) codes(c, f, rows, cols);
        for (const i64 dim : {6, 32, 64, 288}) ropes(c, f, dim);
        for (const auto& [rows, vocab] : {std::pair<i64, i64>{7, 33}, {40, 500}, {5, 9001}, {2, 20000}})
            losses(c, f, rows, vocab);
        tiled_losses(c, f, 13, 33, 65);
        tiled_losses(c, f, 70, 24, 1000);
        for (const i64 n : {1, 1003, 20000}) updates(c, f, n);
        moves(c, f, 3, 5, 16);
    }
    random(c, 33, 7);
    return std::move(c.all);
}

std::vector<OpCase> size_cases(Source& source, i64 n) {
    Cases c(source);
    for (const Type f : {Type::f32, Type::bf16, Type::f16}) {
        elementwise(c, f, {n});
        broadcasts(c, f, n);
        products(c, f, 3, n, n + 2);
        products(c, f, n, n + 2, 3);
        mixed_products(c, f, n + 2, 5, n);
        grouped_products(c, f, 3, n, n + 2, 5);
        grouped_products(c, f, 2, 3, n, n + 2);
        attentions(c, f, {1, n, n, 2, 1, n, true});
        attentions(c, f, {1, n, n + 3, 2, 1, n, true, n / 2 + 2});
        attentions(c, f, {1, n, 2 * n + 1, 3, 3, n + 2, false});
        attentions(c, f, {2, n, n + 3, 2, 1, n, true, n / 2 + 2, n + 2, true});
        norms(c, f, 3, n);
        reductions(c, f,
                   {{{3, n}, {0}, {n}},
                    {{3, n}, {1}, {3}},
                    {{n, 3}, {0, 1}, {}},
                    {{n, 3, 5}, {1}, {n, 5}},
                    {{n, 3, 5}, {0, 2}, {3}}},
                   n);
        embeddings(c, f, n, 3, n);
        indices(c, f, 3, n, 1);
        indices(c, f, 2, 3, n);
        codes(c, f, 3, n);
        ropes(c, f, 2 * n);
        losses(c, f, 3, n);
        tiled_losses(c, f, 7, n, n + 2);
        updates(c, f, n);
    }
    for (const Type type : {Type::f32, Type::bf16, Type::f16, Type::f64, Type::i32, Type::u32, Type::u8, Type::i8}) {
        c.add("full", {{"value", 3.0}}, {}, {{type, {n}}});
        moves(c, type, 3, 5, n + 10);
        gathers(c, type, 3, n, 5);
        moves(c, type, n + 2, 5, 11);
    }
    random(c, 3, n);
    return std::move(c.all);
}

std::vector<OpCase> block_cases(Source& source) {
    Cases c(source);
    for (const Type f : {Type::f32, Type::bf16, Type::f16}) {
        elementwise(c, f, {1027});
        broadcasts(c, f, 1027);
        products(c, f, 3, 771, 1027);
        products(c, f, 515, 5, 1027);
        grouped_products(c, f, 3, 521, 67, 35);
        attentions(c, f, {1, 67, 259, 2, 1, 17, true});
        attentions(c, f, {1, 67, 391, 2, 1, 17, true, 269});
        attentions(c, f, {1, 67, 391, 2, 1, 17, true, 269, 33, true});
        norms(c, f, 3, 1027);
        reductions(c, f, {{{3, 4099}, {1}, {3}}, {{131, 1027}, {0}, {1027}}}, 4099);
        embeddings(c, f, 7, 3, 1027);
        indices(c, f, 3, 1027, 1);
        indices(c, f, 2, 5, 1027);
        indices(c, f, 67, 9, 67);
        codes(c, f, 2, 16391);
        ropes(c, f, 2054);
        losses(c, f, 3, 1027);
        tiled_losses(c, f, 7, 65, 1027);
        updates(c, f, 1027);
    }
    random(c, 3, 1027);
    return std::move(c.all);
}

std::vector<OpCase> product_cases(Source& source, i64 m, i64 n, i64 k) {
    Cases c(source);
    for (const Type f : {Type::f32, Type::bf16, Type::f16}) {
        products(c, f, m, n, k);
        mixed_products(c, f, m, n, k);
    }
    return std::move(c.all);
}

void check_cases(const RunSpec& run) {
    Source source;
    std::vector<OpCase> all = sample_cases(source);
    for (OpCase& one : op_cases(source)) all.push_back(std::move(one));
    check_cases(run, source, all);
}

void check_cases(const RunSpec& run, const Source& source, const std::vector<OpCase>& cases) {
    for (const OpCase& one : cases) {
        INFO(one.name() << ", seed " << source.seed);
        Buffers expected = one.out, got = one.out, again = one.out;
        run_reference(one.spec, one.in, expected);
        run(one.spec, one.in, got);
        run(one.spec, one.in, again);
        for (size_t i = 0; i < got.size(); ++i) {
            INFO("output " << i);
            check_close(got[i], expected[i], one.compared_as(i));
            CHECK(got[i].same_bits(again[i]));
        }
    }
}

}  // namespace orrery::kernels::testing
