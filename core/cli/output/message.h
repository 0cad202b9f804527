#pragma once
#include <array>
#include <cstdint>

#include "base/json.h"
#include "cli/output/output.h"

namespace orrery {

/// A message between a command, or one of its ranks, and the process that collects their output.
struct OutputMessage {
    Json text = {};
    std::array<int, 2> files = {-1, -1};  ///< descriptors that came with it
    bool cut = false;                     ///< not all of them came: this process has no descriptor left
};

enum class Received : uint8_t { message, nothing, end };

/// Sends a message; `files`: copies of these descriptors are sent, too. Blocks while the socket is full, unless
/// `droppable`. Returns false and sets errno if the message was not sent although its reader is there.
bool send_message(int socket, const Json& text, std::array<int, 2> files = {-1, -1}, bool droppable = false);
/// Receives a message without waiting.
Received receive(int socket, OutputMessage& message);

inline Shown shown_in(const Json& text) { return static_cast<Shown>(text.value("shown", 0)); }

}  // namespace orrery
