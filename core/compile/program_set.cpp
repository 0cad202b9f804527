#include "compile/program_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "compile/passes/status_word.h"
#include "ir/describe.h"

namespace orrery {

std::string_view name_of(Filler filler) {
    switch (filler) {
        case Filler::data: return "data";
        case Filler::step: return "step";
        case Filler::seed: return "seed";
        case Filler::status: return "status";
    }
    return "";
}

Filler filler_of(const Value& input) {
    if (input.name == "step") return Filler::step;
    if (input.name == "seed") return Filler::seed;
    return input.name == status_name ? Filler::status : Filler::data;
}

std::vector<InputDecl> declared_inputs(const Program& program) {
    std::vector<InputDecl> all;
    for (const ValueId id : program.inputs()) {
        const Value& value = program.value(id);
        all.push_back({value.name, value.type, value.dims, filler_of(value)});
    }
    return all;
}

Quotient quotient_of(std::string_view name) {
    return {std::string(name), fmt::format("{}.sum", name), fmt::format("{}.count", name)};
}

std::vector<Quotient> quotients(const Program& program) {
    constexpr std::string_view suffix = ".sum";
    std::vector<Quotient> all;
    for (const Result& result : program.results) {
        if (!result.name.ends_with(suffix)) continue;
        Quotient made = quotient_of(std::string_view(result.name).substr(0, result.name.size() - suffix.size()));
        if (program.result(made.count)) all.push_back(std::move(made));
    }
    return all;
}

std::vector<ResultDecl> declared_results(const Program& program) {
    std::set<std::string> sum_up = {"loss_sum", "count"};
    for (const Quotient& quotient : quotients(program)) sum_up.insert({quotient.sum, quotient.count});
    std::vector<ResultDecl> all;
    for (const Result& result : program.results) {
        const bool sums = sum_up.contains(result.name);
        all.push_back({result.name, program.value(result.value).type, sums});
    }
    return all;
}

std::string declared(const CompiledProgram& compiled) {
    const Program& program = compiled.plan.program;
    std::vector<std::string> in, out;
    for (const InputDecl& input : declared_inputs(program))
        in.push_back(fmt::format("{} {} ({})", input.name, text_of(input.type, input.dims), name_of(input.filler)));
    for (const ResultDecl& result : declared_results(program))
        out.push_back(fmt::format("{} {}{}", result.name, result.type.text(), result.adds_up ? ", adds up" : ""));
    return fmt::format("{}: {} -> {}", compiled.entry.name, join(in, ", "), join(out, "; "));
}

ProgramEntry at_batch(const ProgramEntry& full, int64_t batch) {
    ProgramEntry part = full;
    part.name = fmt::format("{} of {}", full.name, batch);
    part.batch = batch;
    return part;
}

ProgramEntry at_capacity(const ProgramEntry& entry, double capacity) {
    ProgramEntry other = entry;
    other.name = fmt::format("{} at {:g}", entry.name, capacity);
    other.capacity = capacity;
    return other;
}

ProgramEntry at_length(const ProgramEntry& entry, int64_t length) {
    ProgramEntry other = entry;
    other.name = fmt::format("{} of {} positions", entry.name, length);
    other.length = length;
    return other;
}

std::vector<Calls> calls_for(const ProgramEntry& full, int64_t samples, int64_t microbatches, int64_t ways) {
    std::vector<Calls> all{{full.name, full, samples / full.batch}};
    int64_t left = samples % full.batch;
    const auto take = [&](int64_t batch, bool whole) {
        if (batch < 1 || left < batch) return;
        ProgramEntry part = at_batch(full, batch);
        part.whole = whole;
        all.push_back({full.name, part, left / batch});
        left %= batch;
    };
    if (microbatches > 1) take(full.batch / microbatches, false);                  // a batch of one micro-batch
    const int64_t local = std::max<int64_t>(1, full.batch / microbatches / ways);  // samples of one rank
    take(left / ways * ways, false);
    if (ways > 1) take(std::min(left, local), true);
    take(left, ways > 1);
    std::erase_if(all, [](const Calls& calls) { return calls.times == 0; });
    return all;
}

}  // namespace orrery
