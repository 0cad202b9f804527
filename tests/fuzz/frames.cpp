// Frames behind a good hello: control/wire, and what a rendezvous' service does with them. An input is a body; a
// stream that a member sends as it is; and, a line each, frames that it seals: a kind, a key, a value.
#include <algorithm>

#include "control/wire.h"
#include "member.h"
#include "orrery/error.h"
#include "target.h"

namespace orrery::fuzz {
namespace {

void parse(std::string_view body) {
    try {
        const wire::Frame frame = wire::parse(body);
        require(wire::encode(frame) == body, "a frame is written as it came");
        require(frame.key.size() <= wire::max_key, "a key is short");
    } catch (const Error&) {
    }
}

void run(std::string_view input) {
    parse(input);
    {
        ProvenMember member;
        require(member.joined(), "a good hello joins");
        member.send(input);
    }
    ProvenMember member;
    uint64_t id = 0;
    for (size_t at = 0; at < input.size() && id < 64;) {
        const size_t end = std::min(input.find('\n', at), input.size());
        const std::string_view line = input.substr(at, end - at);
        at = end + 1;
        if (line.empty()) continue;
        const size_t space = std::min(line.find(' '), line.size());
        wire::Frame frame;
        frame.kind =
            static_cast<wire::Kind>(static_cast<uint8_t>(line[0]) % (static_cast<uint8_t>(wire::Kind::lost) + 1));
        frame.id = ++id;
        frame.key = line.substr(1, std::min(space, wire::max_key) - std::min<size_t>(space, 1));
        frame.value = line.substr(std::min(space + 1, line.size()));
        member.send(member.seal(frame));
    }
}

std::vector<std::string> seeds() {
    using wire::Kind;
    std::vector<std::string> all = {"", "0topic a value\n1topic\n2count 1\n2count 9223372036854775807\n2count 1\n",
                                    "3topic\n4topic\n5\n6late at step 3\n7\n",
                                    "8 it is out of memory\n1never\n6\n9a b\n:\n"};
    for (uint8_t kind = 0; kind <= static_cast<uint8_t>(Kind::lost); ++kind)
        all.push_back(wire::encode({static_cast<Kind>(kind), kind * 3u, "topic/1", "a value"}));
    all.push_back(wire::encode({Kind::set, ~0ull, std::string(wire::max_key, 'k'), std::string(300, 'v')}));
    return all;
}

}  // namespace

Target frames_target() { return {"frames", run, seeds}; }

}  // namespace orrery::fuzz
