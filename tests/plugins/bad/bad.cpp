// Plugins that must be refused, one per macro; tests/plugins/CMakeLists.txt builds each into a file of its own.
#include <fcntl.h>
#include <unistd.h>

#include "orrery/plugin.h"

namespace {
using orrery::Config;
using orrery::Registry;

#ifdef GONE
extern "C" int orrery_test_gone();
int calls_gone = orrery_test_gone();
#endif

// Runs when the file is loaded: a refused file must not leave this trace.
struct Trace {
    Trace() {
        if (const char* path = ::getenv("ORRERY_TEST_TRACE")) ::close(::open(path, O_CREAT | O_WRONLY, 0644));
    }
} trace;

[[maybe_unused]] void good(Registry& registry) {
    registry.add_store(PLUGIN_NAME, [](Config&, const std::string&) -> std::unique_ptr<orrery::CheckpointStore> {
        throw orrery::Error("made for a test");
    });
}
[[maybe_unused]] void throws(Registry& registry) {
    good(registry);
    throw orrery::Error("the tape is not in the drive");
}
[[maybe_unused]] void throws_int(Registry&) { throw 42; }
[[maybe_unused]] void nothing(Registry&) {}
[[maybe_unused]] void two(Registry& registry) {
    good(registry);
    registry.add_store("another", nullptr);
}
}  // namespace

#ifdef NO_SYMBOL
[[gnu::used, gnu::section(".orrery." ORRERY_ABI)]] static const char mark = 1;
#elif defined(NO_SECTION)
int some_library() { return 1; }
#elif defined(IDLE)
static std::string no_drive() { return "no tape drive in this machine"; }
ORRERY_PLUGIN_IF("store." CALLED, "0.1", REGISTER, no_drive);
#else
ORRERY_PLUGIN("store." CALLED, "0.1", REGISTER);
#endif
