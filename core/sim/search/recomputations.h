#pragma once
#include <string>
#include <vector>

#include "orrery/program.h"
#include "sim/search/choice.h"

namespace orrery {

/// What a search tries to recompute in the backward pass.
struct Recomputations {
    /// Candidates, ascending by bytes freed; the first recomputes nothing. Kinds of op are added one by one, those that
    /// free more bytes per second first, while they are better in this than whole layers; each is also there alone.
    /// Then come a quarter, half and three quarters of the layers, if these free more, and all layers.
    std::vector<Recomputation> worth;
    double saved = 0;                  ///< bytes that one sequence's forward pass saves without recomputation
    double forward_s = 0;              ///< time of recomputing all layers for one sequence
    std::vector<std::string> useless;  ///< kinds of op that free next to nothing, as others save the same memory
};

/// Finds what recomputation is worth its time, from a differentiated program with a batch of `sequences` on one device;
/// its own recompute marks are ignored. `flops_s`, `bytes_s`: rates of a device. `layers`: whether a number of layers
/// can be asked for.
Recomputations recomputations(const Program& program, int64_t sequences, double flops_s, double bytes_s, bool layers);

/// The candidates and the kinds that free next to nothing, as a line to print.
std::string text_of(const Recomputations& found);

}  // namespace orrery
