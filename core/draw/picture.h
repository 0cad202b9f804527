#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/timeline.h"

namespace orrery {

/// Live bytes on a rank of one class, instruction by instruction.
struct MemoryCurve {
    int rank = 0;            ///< pipeline rank
    std::string ranks;       ///< text of the class's ranks: "ranks 0..7"
    int64_t persistent = 0;  ///< bytes of inputs, params, states and results, which are always live
    struct Point {
        double time = 0;  ///< in the timeline's units; below 0: before the fragments, above the makespan: after
        int64_t gradients = 0, activations = 0, workspaces = 0;  ///< bytes by part; `workspaces`: kernels' scratch
        int64_t all() const { return gradients + activations + workspaces; }
    };
    std::vector<Point> points;  ///< one for each instruction, with its operands, and one after each fragment
    int64_t peak = 0;           ///< largest number of bytes, including persistent bytes
    double peak_time = 0;
};

/// A value's layout on the mesh.
struct LayoutView {
    struct Split {
        std::string axis;
        int64_t size = 1;
        int dim = 0;
    };
    std::string text;           ///< "embed/dp mlp/tp", "whole", "partial dp"; empty: no such value
    std::vector<Split> splits;  ///< splits by dim, outermost first
    int64_t parts = 1;          ///< a rank holds one of this many parts
    int64_t bytes = 0;          ///< bytes per rank
};

/// A param, or several params with names that differ only by numbers.
struct ParamRow {
    std::string name;  ///< "h.{0..11}.attn.q.weight"
    int64_t count = 1;
    std::string type;                    ///< "f32 768 x 3072"
    int rank = 2;                        ///< number of dims
    std::string where;                   ///< stages that have the param: "stages 0..3"; empty if there is one stage
    LayoutView rest, read, grad, state;  ///< `read`: as the forward pass reads it; an empty text: no such value
};

/// The content of a drawing; SVG and text show the same.
struct Picture {
    std::string title;
    std::vector<std::string> facts;  ///< lines of text about the picture
    Schedule schedule;
    Timeline timeline;
    std::string unit;                 ///< unit of time
    double lead = 0;                  ///< time shown before and after the fragments for memory outside them
    std::vector<MemoryCurve> memory;  ///< curves by class; empty for a schedule without a plan
    int64_t memory_limit = 0;         ///< bytes; 0: not given
    std::vector<ParamRow> params;
    std::string mesh;
};

/// Makes the picture of a schedule without a plan, in unit time.
Picture picture(const Schedule& schedule);

/// Makes the picture of a plan, with memory and layouts of params. `by_flops`: fragments last as long as their kernels
/// have flops; otherwise F, B and W take one unit each.
Picture picture(const Plan& plan, bool by_flops, int64_t memory_limit);

/// Makes the picture of a plan on a given timeline with a row for each pipeline rank; `unit` names the timeline's unit.
Picture picture(const Plan& plan, Timeline timeline, std::string unit, int64_t memory_limit);

/// Draws one self-contained SVG without scripts, fonts or external references.
std::string draw_svg(const Picture& picture);

struct TextStyle {
    int width = 100;  ///< width in columns, at least 40
    bool colour = false;
};

/// Draws the picture in characters.
std::string draw_text(const Picture& picture, const TextStyle& style);

}  // namespace orrery
