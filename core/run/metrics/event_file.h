#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "run/metrics/appended_file.h"

namespace orrery {

/// Writes scalars for TensorBoard: an event file, which is records of tensorflow/core/util/event.proto. Each has its
/// length, the length's checksum, the bytes and theirs (tensorflow/core/lib/io/record_writer.h); ours hold one step.
class EventFile {
public:
    /// A new file in `folder`, behind those that are there. `time`: seconds since 1970. Throws Fault::failed naming
    /// path and reason, as writing does.
    EventFile(const std::string& folder, double time);

    const std::string& path() const { return file_->path(); }
    /// What was told so far of `first_step` and later, in this file and those before, is taken back.
    void start(double time, int64_t first_step);
    /// begin, add ..., end: one record of one write. Allocates nothing once records have had their largest size.
    void begin(double time, int64_t step);
    void add(std::string_view tag, double value);
    void end();

private:
    void write(std::string_view field_bytes);

    std::optional<AppendedFile> file_;
    double time_ = 0;
    int64_t step_ = 0;
    std::string values_, event_, record_;
};

}  // namespace orrery
