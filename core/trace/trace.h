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

/// A message's two ends.
enum class FlowEnd : uint8_t { none, from, to };

/// One bar of a trace: what a lane of a process did from when to when.
struct TraceSlice {
    int64_t process = 0;   ///< a rank, or a class of them
    std::string lane;      ///< "compute", "dp"
    std::string name;      ///< on the bar: "matmul"
    std::string category;  ///< what viewers filter by: "compute", "communication", "waiting"
    double start = 0;      ///< seconds since the trace's begin
    double duration = 0;   ///< seconds
    using Argument = std::variant<int64_t, double, std::string>;
    std::vector<std::pair<std::string, Argument>> arguments = {};  ///< shown when the bar is chosen; distinct names
    FlowEnd end = FlowEnd::none;
    int64_t flow = 0;  ///< of both ends of a message the same: an arrow is drawn between the bars
};

/// Writes a trace in Chrome's Trace Event Format as JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing read.
/// Streams: keeps a few words per lane. Each lane has a thread id that no other lane of any process has: Perfetto drops
/// bars without a word where two processes share one. Times are whole nanoseconds.
class TraceWriter {
public:
    /// `about`: shown as the trace's metadata. `out` must outlive it; whoever owns it looks whether it failed.
    explicit TraceWriter(std::ostream& out, const std::vector<std::pair<std::string, std::string>>& about = {});

    /// Names a process, and orders processes by their number. Before its first slice or later; once.
    void process(int64_t process, std::string_view name);
    /// Makes a lane without a slice, so that lanes stand in this order. A slice makes the lane that it names.
    void lane(int64_t process, const std::string& name);
    /// Slices of a lane come in the order of their start, and are apart or one inside the other. Throws Error,
    /// Fault::failed, naming both where they are not, which a viewer would draw wrongly; and at a time that is not
    /// finite.
    void slice(const TraceSlice& slice);
    /// Closes the document; nothing may be written after it.
    void finish();

private:
    struct Lane {
        int64_t id = 0;
        int64_t begun = 0;                                  ///< start of the last slice, in ns
        std::vector<std::pair<int64_t, std::string>> open;  ///< ends of slices that may hold the next one, and names
    };
    Lane& lane_of(int64_t process, const std::string& name);
    void event(std::string_view json);
    std::pair<int64_t, int64_t> place(Lane& lane, const TraceSlice& slice);

    std::ostream& out_;
    std::map<std::pair<int64_t, std::string>, Lane> lanes_;
    bool first_ = true;
};

}  // namespace orrery
