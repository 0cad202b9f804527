#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/timeline.h"

namespace orrery {

/// How many bytes are alive on a rank of one class, instruction by instruction.
struct MemoryCurve {
    int rank = 0;            ///< of the pipeline
    std::string ranks;       ///< of the job: "ranks 0..7"
    int64_t persistent = 0;  ///< inputs, params, states and results: there all the time
    struct Point {
        double time = 0;  ///< in the timeline's units; below 0 before the fragments, above the makespan after them
        int64_t gradients = 0, activations = 0, workspaces = 0;  ///< the last: kernels' own scratch
        int64_t all() const { return gradients + activations + workspaces; }
    };
    std::vector<Point> points;  ///< one per instruction, what it touches included, and one behind each fragment
    int64_t peak = 0;           ///< persistent included
    double peak_time = 0;
};

/// How a value lies on the mesh.
struct LayoutView {
    struct Split {
        std::string axis;
        int64_t size = 1;
        int dim = 0;
    };
    std::string text;           ///< "embed/dp mlp/tp", "whole", "partial dp"; empty: there is no such value
    std::vector<Split> splits;  ///< by dim, outermost first
    int64_t parts = 1;          ///< a rank holds one of so many
    int64_t bytes = 0;          ///< that a rank holds
};

/// A parameter, or several that differ only by the number in their names.
struct ParamRow {
    std::string name;  ///< "h.{0..11}.attn.q.weight"
    int64_t count = 1;
    std::string type;                    ///< "f32 768 x 3072"
    int rank = 2;                        ///< number of dims
    std::string where;                   ///< "stages 0..3"; empty where there is one stage
    LayoutView rest, read, grad, state;  ///< `read` by the forward pass; text is empty where there is none
};

/// All that a drawing shows; each way of drawing shows the same.
struct Picture {
    std::string title;
    std::vector<std::string> facts;  ///< one line each
    Schedule schedule;
    Timeline timeline;
    std::string unit;                 ///< of time
    double lead = 0;                  ///< time shown before the fragments and after them, where memory is drawn
    std::vector<MemoryCurve> memory;  ///< per class; empty for a bare schedule
    int64_t memory_limit = 0;         ///< bytes; 0: none stated
    std::vector<ParamRow> params;
    std::string mesh;
};

/// A schedule alone, in unit time.
Picture picture(const Schedule& schedule);

/// A plan with its memory and the layouts of its params. `by_flops`: a fragment takes as long as its kernels have
/// floating-point operations, otherwise F, B and W take one unit each.
Picture picture(const Plan& plan, bool by_flops, int64_t memory_limit);

/// The same on a timeline of its own, with a row for each pipeline rank, whose `unit` is named.
Picture picture(const Plan& plan, Timeline timeline, std::string unit, int64_t memory_limit);

/// One self-contained SVG: no script, no font, nothing fetched.
std::string draw_svg(const Picture& picture);

struct TextStyle {
    int width = 100;  ///< columns, at least 40
    bool colour = false;
};

/// The same in characters.
std::string draw_text(const Picture& picture, const TextStyle& style);

}  // namespace orrery
