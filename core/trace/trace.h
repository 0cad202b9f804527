#pragma once
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace orrery {

/// Whether an arrow for a message begins at a bar (`from`), ends at it (`to`), or neither.
enum class FlowEnd : uint8_t { none, from, to };

/// One bar of a trace: what a process did on one of its lanes (rows of bars), and when.
struct TraceSlice {
    int64_t process = 0;   ///< number of a rank, or of a class of ranks
    std::string lane;      ///< name of the lane: "compute", "dp"
    std::string name;      ///< text on the bar: "matmul"
    std::string category;  ///< filter for viewers: "compute", "communication", "waiting"
    double start = 0;      ///< seconds since the beginning of the trace
    double duration = 0;   ///< duration in seconds
    using Argument = std::variant<int64_t, double, std::string>;
    /// values shown when the bar is selected; names are distinct
    std::vector<std::pair<std::string, Argument>> arguments = {};
    FlowEnd end = FlowEnd::none;
    int64_t flow = 0;  ///< number of the arrow at the bar's `end`; two bars with the same number are connected
};

/// Writes a trace as JSON in Chrome's Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing read.
/// Streams: keeps only a few words per lane. Thread ids of lanes are unique over all processes, because Perfetto
/// silently drops bars if two processes use one thread id. Times are rounded to nanoseconds.
class TraceWriter {
public:
    /// `about`: metadata of the trace. `out` must outlive the writer; the caller checks it for write errors.
    explicit TraceWriter(std::ostream& out, const std::vector<std::pair<std::string, std::string>>& about = {});

    /// Names a process; viewers order processes by number. Call at most once per process, before or after its slices.
    void process(int64_t process, std::string_view name);
    /// Makes an empty lane, to fix the order of lanes. slice() makes lanes that do not exist yet.
    void lane(int64_t process, const std::string& name);
    /// Writes a slice. Slices of a lane must be in the order of their starts, and disjoint or nested, because viewers
    /// draw overlapping ones wrongly. Throws Error, Fault::failed, naming both slices if they are not, and for
    /// times below 0 or above 9e9 s.
    void slice(const TraceSlice& slice);
    /// Ends the JSON document; nothing may be written afterwards.
    void finish();

private:
    struct Lane {
        int64_t id = 0;
        int64_t begun = 0;                                  ///< start of the last slice of the lane, in ns
        std::vector<std::pair<int64_t, std::string>> open;  ///< ends (ns) and names of slices that may contain the next
    };
    Lane& lane_of(int64_t process, const std::string& name);
    void event(std::string_view json);
    std::pair<int64_t, int64_t> place(Lane& lane, const TraceSlice& slice);

    std::ostream& out_;
    std::map<std::pair<int64_t, std::string>, Lane> lanes_;
    bool first_ = true;
};

}  // namespace orrery
