#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/mesh.h"
#include "sim/prices.h"

namespace orrery {

/// Times of collectives and messages measured on a host, by transport and op ("all_reduce", "send").
class MeasuredTable {
public:
    struct Row {
        std::string transport, op;
        int64_t ranks = 0;
        int64_t bytes = 0;             ///< bytes of the operation's larger tensor (S in communicator.h)
        double seconds = 0;            ///< time of the operation on its slowest rank
        double processor_seconds = 0;  ///< processor time of the operation, summed over its ranks
    };
    struct Times {
        double seconds = 0, processor_seconds = 0;
    };

    MeasuredTable() = default;
    /// Throws Error for invalid rows: fewer than 2 ranks, less than 1 byte, or a time of 0 s.
    explicit MeasuredTable(std::vector<Row> rows);
    /// Parses a JSON list of objects with the members of Row as keys. Throws Error that names `name` and the bad row.
    static MeasuredTable parse(std::string_view json, const std::string& name);

    /// Returns the time and processor time of an operation. Interpolates between measured sizes on logarithmic scales;
    /// below the smallest size, returns the smallest's times; above the largest, extrapolates the rate of the two
    /// largest. If the number of ranks was not measured, scales the times of the next smaller measured number: latency
    /// by the steps of a ring, the rest by the bytes sent. Throws Error if transport and op were not measured, naming
    /// those that were.
    Times times(std::string_view transport, Opcode opcode, int64_t ranks, int64_t bytes) const;

private:
    using Curve = std::map<int64_t, Times>;  ///< measured times by size in bytes
    Times on_curve(const Curve& curve, int64_t bytes) const;

    std::map<std::pair<std::string, std::string>, std::map<int64_t, Curve>> curves_;  ///< times by transport, op, ranks
};

/// Processors and links of ranks on one host, or on hosts joined by slow links.
struct SharedHost {
    double processors = 1;
    double link_bytes_s = 0;    ///< bandwidth of each rank's link in one direction; 0: no links, only shared memory
    double link_latency_s = 0;  ///< seconds of latency of a message over a link
};

/// Predicts times of communication over Orrery's own transports, in which the host's processors copy and sum data.
class MeasuredWires {
public:
    /// `transports`: each axis' transport by name; the entry of key `none` is for axes that are not listed.
    MeasuredWires(MeasuredTable table, const SharedHost& host, std::map<AxisId, std::string> transports);

    /// Both return what a collective or message needs: the measured time, in part as load on processors, and, if ranks
    /// have links, the bytes on the links and their latency.
    Demand collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                      const std::vector<int64_t>& alike);
    Demand message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike);
    double capacity(ResourceId resource) const { return resource == 0 ? host_.processors : host_.link_bytes_s; }

private:
    Demand demand(Opcode opcode, AxisId axis, int64_t bytes, int64_t ranks, int64_t groups) const;

    MeasuredTable table_;
    SharedHost host_;
    std::map<AxisId, std::string> transports_;
};

/// Returns the number of steps in which a ring of `ranks` ranks performs a collective; 1 for a message.
int64_t ring_steps(Opcode opcode, int64_t ranks);

}  // namespace orrery
