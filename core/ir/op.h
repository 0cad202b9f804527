#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "orrery/op.h"

namespace orrery {

/// True when the output holds elements of one input unchanged: all of them or a block.
bool is_view(const OpDef& def);
/// True for the elementwise sum of two inputs.
bool is_sum(const OpDef& def);
/// The elementwise op for a reduction: sum -> "add", max -> "maximum", min -> "minimum".
std::string_view op_combining(ReduceOp how);
/// True for attributes that passes set on any op; scripts cannot set them.
bool set_by_passes(std::string_view attribute);
/// The kernel that does the op's work: OpDef::kernel, or the op's name when that is empty.
std::string_view kernel_of(const OpDef& def);
/// True when a communicator runs the op.
bool communicates(const OpDef& def);
/// True for the op that sends a value from one pipeline stage to another.
bool is_transfer(const OpDef& def);
/// True for the op that sums a value over the pipeline axis.
bool is_stage_sum(const OpDef& def);
/// The op that propagation inserts for a collective: Opcode::all_reduce -> "all_reduce", Opcode::kernel -> "shard".
std::string_view op_inserted_for(Opcode instruction);

/// Finds an op by name. Throws Error, at `asked` if given, naming it and a similar name when it does not exist.
const OpDef& op_def(std::string_view kind);
const OpDef& op_def(std::string_view kind, const Origin& asked);
std::optional<Opcode> collective_of(const Op& op);
/// Finds an op by name; nullptr when it does not exist.
const OpDef* find_op_def(std::string_view kind);
/// All ops in the order of the table in core/ir/README.md, then those that plugins have added so far.
std::vector<const OpDef*> all_ops();
/// The built-in ops, without those of plugins.
const std::vector<const OpDef*>& own_ops();

FactorRule rule_of(const Program& program, const Op& op);

/// Checks operands and attributes, fills in default attributes and infers the outputs. Throws Error at `origin`.
std::vector<Typed> infer(const OpDef& def, const Program& program, std::span<const ValueId> inputs,
                         Attributes& attributes, const Origin& origin);

}  // namespace orrery
