#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "orrery/op.h"

namespace orrery {

/// One input's elements, all or a block of them.
bool is_view(const OpDef& def);
/// Element by element the sum of its two inputs.
bool is_sum(const OpDef& def);
/// The op that combines two element by element: the sum, the maximum or the minimum.
std::string_view op_combining(ReduceOp how);
/// Attributes that passes set on any op after it was built; scripts cannot know them.
bool set_by_passes(std::string_view attribute);
/// The name of the kernel that does the op's own work.
std::string_view kernel_of(const OpDef& def);
/// Whether a communicator runs it: it sends or receives.
bool communicates(const OpDef& def);
/// Whether it sends a value from one pipeline stage to another.
bool is_transfer(const OpDef& def);
/// Whether it sums a value over the pipeline axis.
bool is_stage_sum(const OpDef& def);
/// The op that propagation inserts for an instruction.
std::string_view op_inserted_for(Opcode instruction);

/// Throws Error naming the kind, with a "did you mean", when there is no such op.
const OpDef& op_def(std::string_view kind);
const OpDef& op_def(std::string_view kind, const Origin& asked);
/// OpDef::collective of the op.
std::optional<Opcode> collective_of(const Op& op);
/// nullptr when there is none.
const OpDef* find_op_def(std::string_view kind);
/// Every op, in the order of the table in core/ir/README.md; behind them those that plugins have brought so far.
std::vector<const OpDef*> all_ops();
/// Without those.
const std::vector<const OpDef*>& own_ops();

/// The rule of an op by its definition.
FactorRule rule_of(const Program& program, const Op& op);

/// Checks operand count and attributes against the definition, completes the attributes and infers the outputs.
std::vector<Typed> infer(const OpDef& def, const Program& program, std::span<const ValueId> inputs,
                         Attributes& attributes, const Origin& origin);

}  // namespace orrery
