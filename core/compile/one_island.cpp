#include "compile/one_island.h"

#include "compile/program_set.h"

namespace orrery {

Plan one_island(Plan plan, const Islands& islands) {
    Program& program = plan.program;
    const auto axis = plan.mesh.find(islands.axis);
    for (ValueId id = 0; id < std::ssize(program.values); ++id) {
        Value& value = program.value(id);
        if (is_array(value)) {
            value = slice_of(value, islands);
        } else if (value.role == Role::input && filler_of(value) == Filler::data) {
            const auto batch = program.dim(id, "batch");
            if (!batch) continue;
            value.type.shape[*batch] /= islands.count;
            if (axis) value.layout.set(*axis, Placement::replicated());
        }
    }
    for (RankClass& c : plan.classes)
        for (Operand& place : c.places)
            if (is_array(program.value(place.value))) place.type.shape.erase(place.type.shape.begin());
    return plan;
}

}  // namespace orrery
