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

/// Collectives and messages as they were timed on some host, by transport and op ("all_reduce", "send").
class MeasuredTable {
public:
    struct Row {
        std::string transport, op;
        int64_t ranks = 0;
        int64_t bytes = 0;             ///< S of communicator.h
        double seconds = 0;            ///< of the slowest member
        double processor_seconds = 0;  ///< of all members together
    };
    struct Times {
        double seconds = 0, processor_seconds = 0;
    };

    MeasuredTable() = default;
    /// Throws Error for rows that cannot be: below 2 ranks, times that are not above 0.
    explicit MeasuredTable(std::vector<Row> rows);
    /// From JSON, a list of objects with the keys of Row. Throws Error at `name`, saying which row has what.
    static MeasuredTable parse(std::string_view json, const std::string& name);

    /// Interpolated between sizes, both on logarithmic scales. Smaller than what was measured takes as long as the
    /// smallest, larger goes on at the rate of the two largest. Of another number of ranks: the nearest that was
    /// measured, its latency by the algorithm's steps and the rest by its bytes. Throws Error where the transport and
    /// op were not measured at all, naming what was.
    Times times(std::string_view transport, Opcode opcode, int64_t ranks, int64_t bytes) const;

private:
    using Curve = std::map<int64_t, Times>;  ///< by bytes
    Times on_curve(const Curve& curve, int64_t bytes) const;

    std::map<std::pair<std::string, std::string>, std::map<int64_t, Curve>> curves_;  ///< then by ranks
};

/// What processes of one host, or of hosts joined by slow links, have between them.
struct SharedHost {
    double processors = 1;
    double link_bytes_s = 0;    ///< of each rank, one direction; 0: no link but memory
    double link_latency_s = 0;  ///< of a message
};

/// Prices of this project's own transports: Prices' communication where the processors that copy and add are shared by
/// all, in processor seconds.
class MeasuredWires {
public:
    /// `transports`: by axis; an axis without one has that of `none`.
    MeasuredWires(MeasuredTable table, const SharedHost& host, std::map<AxisId, std::string> transports);

    /// As Prices::collective and ::message. Over links: steps of a ring, each with the link's latency, beside the
    /// processors' work; what the table has is without links.
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

/// Of a ring; of a message 1.
int64_t ring_steps(Opcode opcode, int64_t ranks);

}  // namespace orrery
