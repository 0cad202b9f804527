#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "run/metrics/appended_file.h"

namespace orrery {

/// Writes scalars for TensorBoard into an event file, a sequence of records of tensorflow/core/util/event.proto. A
/// record has the scalars of one step. It consists of its length, the length's checksum, the bytes and their checksum
/// (tensorflow/core/lib/io/record_writer.h).
class EventFile {
public:
    /// Creates a new file in `folder` whose name sorts after the existing ones. `time`: seconds since 1970. Throws
    /// Fault::failed naming path and reason; writing does, too.
    EventFile(std::string folder, double time);

    const std::string& path() const { return file_->path(); }
    /// Makes TensorBoard discard `first_step` and later steps of this file and of earlier ones.
    void start(double time, int64_t first_step);
    /// begin(), add() for each scalar and end() write one record with one system call. They allocate nothing once
    /// records have had their largest size. If the file was removed, begin() creates a new one.
    void begin(double time, int64_t step);
    void add(std::string_view tag, double value);
    void end();

private:
    void create(double time);
    void write(std::string_view field_bytes);

    const std::string folder_;
    std::optional<AppendedFile> file_;
    double time_ = 0;
    int64_t step_ = 0;
    std::string values_, event_, record_;
};

}  // namespace orrery
