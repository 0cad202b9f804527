#pragma once
#include <map>
#include <string>
#include <vector>

#include "orrery/plan.h"
#include "plan/summary.h"

namespace orrery {

/// Communication by one opcode on one axis, caused by one script line. All layers of a model share an entry.
struct Redistribution {
    std::string kind;  ///< opcode: "all_gather", "send"
    std::string axis;
    std::string what;       ///< name of the value, with * for layer numbers: "h.*.mlp.up.weight.grad"
    std::string why;        ///< what needs the value: "for matmul", "update of h.*.attn.q.weight", "result loss_sum"
    std::string by;         ///< the strategies that caused the value's layout, with their lines
    Origin origin;          ///< the script line that needs the value
    bool implicit = false;  ///< a gather or all-to-all that no mark of a strategy requested
    int64_t values = 0;     ///< number of different values of the program
    int64_t count = 0;      ///< messages per step, on the rank that sends the max number of bytes
    int64_t bytes = 0;      ///< bytes sent per step, max over ranks
    int64_t streams = 0;    ///< number of instruction streams (one per pipeline rank) that contain it
};

/// What a layer of the model sends over an axis in one micro-batch because of strategies' marks: the median of a rank's
/// layers, and the max over ranks. Values and ops are of one layer if their names agree up to the first number: "h.3".
struct LayerTraffic {
    std::string by, axis;                   ///< `by`: the strategies, with their lines
    std::map<std::string, int64_t> counts;  ///< messages by opcode
    int64_t bytes = 0;                      ///< bytes sent
    int64_t kept = 0;  ///< bytes of results of forward gathers and all-to-alls that the backward pass reads
};

/// All redistributions of a step, sorted by bytes sent, largest first. `layers`, unless null, receives the traffic of a
/// layer for each strategy and axis. Linear in the program and its streams.
std::vector<Redistribution> redistributions(const Plan& plan, const WireBytes& wires = {},
                                            std::vector<LayerTraffic>* layers = nullptr);

/// The redistributions as a table of up to `most` lines, and a line about the implicit ones. Empty if there are none.
std::string lint_text(const std::vector<Redistribution>& entries, size_t most = 40);
/// A line for each strategy and axis. Empty if there are none.
std::string layers_text(const std::vector<LayerTraffic>& layers);

}  // namespace orrery
