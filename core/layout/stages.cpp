#include "layout/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "ir/describe.h"
#include "ir/op.h"

namespace orrery {

namespace {

class Staging {
public:
    Staging(Program& program, int stages) : program_(program), stages_(stages), stage_of_(program.values.size(), 0) {
        for (const ScopeMark& mark : program.scope_marks()) {
            if (mark.stage == none) continue;
            if (mark.stage >= stages)
                throw Error(
                    mark.origin,
                    fmt::format("scope {} is put on stage {}, but the pipeline over {} has {} stages, counted from 0",
                                mark.scope, mark.stage, program.pipeline().axis, stages));
            marks_.emplace(mark.scope, mark.stage);
        }
        if (marks_.empty())
            throw Error(program.pipeline().origin, "a pipeline over " + program.pipeline().axis +
                                                       " needs stages: mark scopes with program:stage(scope, stage)");
    }

    void run() {
        find_feeding();
        for (size_t i = 0; i < program_.ops.size(); ++i) one(program_.ops[i], feeds_[i] != 0);
        std::vector<char> works(stages_, 0);
        for (const Op& op : program_.ops)
            if (op.phase == Phase::forward) works[op.stage] = 1;
        for (int stage = 0; stage < stages_; ++stage)
            if (!works[stage])
                throw Error(program_.pipeline().origin,
                            fmt::format("stage {} of {} has no op: give it a layer, or use fewer ranks on {} or fewer "
                                        "chunks",
                                        stage, stages_, program_.pipeline().axis));
    }

private:
    int mark_of(std::string scope) const {
        while (true) {
            const auto found = marks_.find(scope);
            if (found != marks_.end()) return found->second;
            if (scope.empty()) return none;
            const size_t dot = scope.rfind('.');
            scope.resize(dot == std::string::npos ? 0 : dot);
        }
    }

    /// Finds the ops with a stage mark, and all forward ops that these depend on.
    void find_feeding() {
        std::vector<char> read(program_.values.size(), 0);
        feeds_.resize(program_.ops.size(), 0);
        for (size_t i = program_.ops.size(); i-- > 0;) {
            const Op& op = program_.ops[i];
            if (op.phase != Phase::forward) continue;
            feeds_[i] = mark_of(op.scope) != none ||
                        std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) { return read[id] != 0; });
            if (!feeds_[i]) continue;
            for (ValueId input : op.inputs) read[input] = 1;
        }
    }

    void one(Op& op, bool feeds) {
        if (op.phase == Phase::update) return;
        int latest = 0;
        for (ValueId input : op.inputs)
            if (program_.value(input).op != none) latest = std::max(latest, stage_of_[input]);
        if (op.phase == Phase::backward && op.forward != none) {
            op.stage = program_.op(op.forward).stage;
        } else {
            const int mark = mark_of(op.scope);
            op.stage = mark != none ? mark : feeds || op.phase == Phase::backward ? latest : stages_ - 1;
        }
        for (ValueId output : op.outputs) stage_of_[output] = op.stage;
    }

    Program& program_;
    int stages_;
    std::unordered_map<std::string, int> marks_;
    std::vector<char> feeds_;
    std::vector<int> stage_of_;
};

/// Whether an input is the factor of a loss's gradient, which is made in the forward pass.
bool scales_loss(const Op& op, size_t input) {
    const auto& operands = op_def(op.kind).operands;
    return input < operands.size() && operands[input] == "scale?";
}

}  // namespace

int stage_count(const Program& program, const Mesh& mesh) {
    const Pipeline& pipeline = program.pipeline();
    if (pipeline.axis.empty() || mesh.size(pipeline.axis) == 1) return 1;
    return static_cast<int>(mesh.size(pipeline.axis)) * pipeline.chunks;
}

void assign_stages(Program& program, const Mesh& mesh) {
    const int stages = stage_count(program, mesh);
    if (stages > 1) Staging(program, stages).run();
}

std::vector<int> home_stages(const Program& program) {
    std::vector<int> homes(program.values.size(), none);
    for (const Op& op : program.ops)
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            const Value& v = program.value(op.inputs[i]);
            const bool read = v.role == Role::state && v.of == none && op.phase == Phase::forward;
            const bool source = v.role == Role::param || (read && !scales_loss(op, i));
            int& home = homes[op.inputs[i]];
            if (source && op.stage != none && (home == none || op.stage < home)) home = op.stage;
        }
    for (size_t id = 0; id < homes.size(); ++id) {
        const Value& v = program.values[id];
        if (v.role != Role::param && v.role != Role::state) continue;
        if (v.stage != none) homes[id] = v.stage;
        if (homes[id] == none) homes[id] = 0;
    }
    for (size_t id = 0; id < homes.size(); ++id)
        if (const Value& v = program.values[id]; v.role == Role::state && v.of != none) homes[id] = homes[v.of];
    return homes;
}

}  // namespace orrery
