#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "draw/shares.h"
#include "orrery/plan.h"
#include "plan/timeline.h"

namespace orrery {

/// Live bytes over time on a rank of one class (ranks with one instruction stream).
struct MemoryCurve {
    int rank = 0;
    std::string ranks;       ///< text of the class's ranks: "ranks 0..7"
    int64_t persistent = 0;  ///< bytes of inputs, params, states and results, which are always live
    struct Point {
        double time = 0;  ///< in units of the timeline; below 0: before all fragments; above the makespan: after them
        int64_t gradients = 0, param_copies = 0, activations = 0, workspaces = 0;  ///< bytes by MemoryPart
        int64_t all() const { return gradients + param_copies + activations + workspaces; }
    };
    std::vector<Point> points;  ///< by time: one at each instruction, with its operands, and one after each fragment
    int64_t peak = 0;
    double peak_time = 0;
};

struct LayoutView {
    struct Split {
        std::string axis;
        int64_t size = 1;
        int dim = 0;
    };
    std::string text;           ///< "embed/dp mlp/tp", "whole", "partial dp"; empty: no such value
    std::vector<Split> splits;  ///< axes that split a dim, by dim, outermost first
    int64_t parts = 1;          ///< number of blocks that the value is split into; a rank has one
    int64_t bytes = 0;          ///< bytes of one rank's block
};

/// A row for one param, or for several whose names differ only by numbers.
struct ParamRow {
    std::string name;  ///< "h.{0..11}.attn.q.weight"
    int64_t count = 1;
    std::string type;                    ///< "f32 768 x 3072"
    int rank = 2;                        ///< number of dims
    std::string where;                   ///< stages that have the param: "stages 0..3"; empty if there is one stage
    LayoutView rest, read, grad, state;  ///< layouts at rest, in the forward pass, of gradient and state; "": none
};

/// What the simulated rank that represents a pipeline rank does besides its fragments.
struct RankActivity {
    struct Lane {
        std::string axis;
        Intervals busy;     ///< times at which messages or collectives are in flight, in units of the timeline
        Intervals exposed;  ///< part of it that kernels waited for
    };
    int64_t rank = 0;
    double computing = 0, waiting = 0;  ///< shares of the step: in kernels, and waiting for other ranks
    Intervals once;                     ///< times of kernels outside all fragments, such as the optimizer's
    std::vector<Lane> lanes;            ///< the same axes for each pipeline rank
};

struct Picture {
    std::string title;
    std::vector<std::string> facts;  ///< lines of text to print with the drawing
    Schedule schedule;
    Timeline timeline;
    std::string unit;                    ///< words for the timeline's unit, if it is not a time
    double unit_s = 0;                   ///< seconds per unit; 0: it is not a time
    std::vector<RankActivity> activity;  ///< by pipeline rank; empty: not simulated
    double lead = 0;  ///< time drawn before and after the fragments, in which there is memory outside them
    std::vector<MemoryCurve> memory;  ///< a curve for each class of ranks; empty for a schedule without a plan
    int64_t memory_limit = 0;         ///< memory limit of a rank in bytes; 0: not given
    std::vector<ParamRow> params;
    std::string mesh;
};

/// Makes the picture of a schedule without a plan, in units of time.
Picture picture(const Schedule& schedule);

/// Makes the picture of a plan, with memory and layouts of params. `by_flops`: true if the length of a fragment is
/// given by the FLOPs of its kernels; false if F, B and W take one unit each.
Picture picture(const Plan& plan, bool by_flops, int64_t memory_limit);

/// Makes the picture of a simulated plan. `timeline`: a row for each pipeline rank, in units of `unit_s` seconds.
Picture picture(const Plan& plan, Timeline timeline, double unit_s, std::vector<RankActivity> activity,
                int64_t memory_limit);

/// Returns the picture as one self-contained SVG without scripts, fonts or external references.
std::string draw_svg(const Picture& picture);

struct TextStyle {
    int width = 100;  ///< width in columns, at least 40
    bool colour = false;
};

std::string draw_text(const Picture& picture, const TextStyle& style);

}  // namespace orrery
