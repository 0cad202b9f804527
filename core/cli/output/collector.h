#pragma once

namespace orrery {

/// Ends of a command's streams in the process that collects its output; -1: closed, or, for `errors`, the same as
/// `output`.
struct CollectedStreams {
    int control = -1;                         ///< socket of messages from the command and its ranks (output.cpp)
    int output = -1, errors = -1;             ///< read ends of the command's own streams
    int terminal = -1, terminal_errors = -1;  ///< the command's stdout and stderr when it was started
};

/// Writes what the streams have to the terminal and to the logs of ranks, until all writers have ended.
int collect(const CollectedStreams& streams);

}  // namespace orrery
