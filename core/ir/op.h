#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "orrery/op.h"

namespace orrery {

/// True if the output of an op consists of unchanged elements of one input: all of them, or a block of them.
bool is_view(const OpDef& def);
bool is_sum(const OpDef& def);
/// The name of the elementwise op that combines two values of a reduction: "add", "maximum" or "minimum".
std::string_view op_combining(ReduceOp how);
/// True for attributes that compiler passes set on any op; scripts cannot set them.
bool set_by_passes(std::string_view attribute);
/// The name of the kernel that does the op's work: OpDef::kernel, or the op's name if that is empty.
std::string_view kernel_of(const OpDef& def);
/// How many ids a lookup takes: the size of its dim, or of its dims together. `shape`: that of its rows.
int64_t ids_looked_up(const Lookup& lookup, const Shape& shape, const Attributes& attributes);
/// True if a communicator runs the op, not a device.
bool communicates(const OpDef& def);
/// True for a roll of a split dim: ranks of the attribute `axis` exchange blocks by messages, and no device runs it.
bool exchanges_blocks(const OpDef& def, const Op& op);
/// For such an op on an axis of `members`: how many members further a rank sends its block, 1 to members - 1.
int64_t exchange_offset(const Program& program, const Op& op, int64_t members);
/// True if the op sends a value from one pipeline stage to another.
bool is_transfer(const OpDef& def);
/// True if the op sums a value over the pipeline axis.
bool is_stage_sum(const OpDef& def);
/// The op that propagation inserts for a collective: "all_reduce"; "shard" (no communication) for Opcode::kernel.
std::string_view op_inserted_for(Opcode instruction);

/// The definition of an op by name. If there is none, throws Error (at `asked` if given) that suggests a similar name.
const OpDef& op_def(std::string_view kind);
const OpDef& op_def(std::string_view kind, const Origin& asked);
std::optional<Opcode> collective_of(const Op& op);
/// The definition of an op by name; nullptr if there is none.
const OpDef* find_op_def(std::string_view kind);
/// All ops: built-in ones in the order of the table in core/ir/README.md, then those of plugins added so far.
std::vector<const OpDef*> all_ops();
/// The built-in ops.
const std::vector<const OpDef*>& own_ops();

FactorRule rule_of(const Program& program, const Op& op);

/// Checks an op's operands and attributes, adds default attributes and infers the outputs. Throws Error at `origin`.
std::vector<Typed> infer(const OpDef& def, const Program& program, std::span<const ValueId> inputs,
                         Attributes& attributes, const Origin& origin);

}  // namespace orrery
