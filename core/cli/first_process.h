#pragma once

namespace orrery {

/// If this process is the first one of its PID namespace, as in a container, continues in a child process. The first
/// process then forwards its signals to the child, which the system would else discard for lack of a handler, reaps all
/// orphaned processes, and exits with the child's exit code, or 128 + the signal that ended it; after a failure when no
/// process is left, 10 s later at most. Must be called before threads start. Returns in the child, and at once in any
/// other process.
void leave_first_process();

}  // namespace orrery
