#pragma once
#include <string>
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// Prints the program, one line per value or op, with layouts when a mesh is given. `parse` reads the text back.
///
///     program mlp  mesh dp=2 tp=2
///       %0 x          = input             f32[batch=8,embed=512]   dp:S(0) tp:R  # mlp.lua:3
///       %1 up.w       = param             f32[embed=512,mlp=2048]  dp:R tp:S(1)  # mlp.lua:4 by tensor, mlp.lua:20
///     forward layers.0.mlp
///       %2            = matmul %0 %1      f32[batch=8,mlp=2048]    dp:S(0) tp:S(1)  # mlp.lua:9
///     backward layers.0.mlp
///       %5            = matmul %4 %1 {trans_b=true}  f32[batch=8,embed=512]  dp:S(0) tp:P(sum)  of %2  # mlp.lua:9
///     notes
///       store %1 tp S(1)  # tensor, mlp.lua:20
///       result loss_sum %3
///
/// "of %2": the forward op that makes %2. "#": script line, "by" what set the layout, ";" the cause of a collective.
std::string print(const Program& program, const Mesh* mesh = nullptr);

/// An origin as programs print it: its text if that can be parsed back, otherwise "who" "file" line column.
std::string print(const Origin& origin);

}  // namespace orrery
