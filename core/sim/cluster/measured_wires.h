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
        int64_t bytes = 0;             ///< size S of communicator.h
        double seconds = 0;            ///< time of the slowest member
        double processor_seconds = 0;  ///< processor time of all members together
    };
    struct Times {
        double seconds = 0, processor_seconds = 0;
    };

    MeasuredTable() = default;
    /// Throws Error for invalid rows: fewer than 2 ranks, or times that are not positive.
    explicit MeasuredTable(std::vector<Row> rows);
    /// Parses a JSON list of objects with the keys of Row. Throws Error at `name`, naming the row and the problem.
    static MeasuredTable parse(std::string_view json, const std::string& name);

    /// Returns the times for a size and a number of ranks. Interpolates between sizes on logarithmic scales. A size
    /// below the smallest measured takes as long as the smallest; above the largest, the rate of the two largest sizes
    /// is extrapolated. For another number of ranks, the nearest measured one counts: its latency is scaled by the
    /// algorithm's steps and the rest by its bytes. Throws Error if transport and op were not measured, naming those
    /// that were.
    Times times(std::string_view transport, Opcode opcode, int64_t ranks, int64_t bytes) const;

private:
    using Curve = std::map<int64_t, Times>;  ///< times by bytes
    Times on_curve(const Curve& curve, int64_t bytes) const;

    std::map<std::pair<std::string, std::string>, std::map<int64_t, Curve>> curves_;  ///< by transport, op and ranks
};

/// Resources of processes on one host, or on hosts joined by slow links.
struct SharedHost {
    double processors = 1;
    double link_bytes_s = 0;    ///< rate of each rank's link in one direction; 0: no link, only memory
    double link_latency_s = 0;  ///< latency of a message
};

/// Prices of communication of Orrery's own transports, in seconds of the host's processors, which copy and sum.
class MeasuredWires {
public:
    /// `transports`: names by axis; an axis that is not listed has the transport of key `none`.
    MeasuredWires(MeasuredTable table, const SharedHost& host, std::map<AxisId, std::string> transports);

    /// See Prices::collective and ::message. With links, the steps of a ring with the link's latency run concurrently
    /// with the processors' work; the table's times are without links.
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

/// Number of steps of a ring; 1 for a message.
int64_t ring_steps(Opcode opcode, int64_t ranks);

}  // namespace orrery
