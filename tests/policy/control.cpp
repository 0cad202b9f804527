// core/control decides without I/O: no clock, thread, socket, file, process or entropy of its own.
#include <catch2/catch.hpp>
#include <regex>
#include <string>

#include "source.h"

using policy::Source;

namespace {

/// Why a header of this name is not for core/control, "" when it is.
std::string problem_of(const std::string& header) {
    static const std::regex system(
        R"(^((sys|netinet|arpa|net|linux)/.*|unistd\.h|fcntl\.h|poll\.h|netdb\.h|signal\.h|spawn\.h|time\.h|pthread\.h)"
        R"(|stdio\.h|dirent\.h|dlfcn\.h)$)");
    static const std::regex standard(
        R"(^(thread|mutex|shared_mutex|condition_variable|atomic|future|semaphore|latch|barrier|stop_token|fstream)"
        R"(|iostream|filesystem|random|csignal|ctime|cstdio)$)");
    if (std::regex_match(header, system)) return "it has calls of the system";
    if (std::regex_match(header, standard)) return "it has threads, files, clocks or entropy";
    if (header == "base/env.h") return "the owner of the loop has the Env; here events come in and actions go out";
    return "";
}

/// What a line of code does that is the owner's.
bool does_io(const std::string& line) {
    static const std::regex words(
        R"(\b(steady|system|high_resolution|utc|file)_clock\b|\bsystem_env\b)"
        R"(|\bstd::(this_thread|j?thread|(\w+_)?mutex|condition_variable\w*|atomic\w*|async|future|promise|latch)"
        R"(|barrier|[io]?fstream|filesystem|random_device|system|getenv|time|clock|fopen)\b)"
        R"(|(^|[^\w.>:])(fork|vfork|execv\w*|execl\w*|posix_spawn\w*|waitpid|socket|getrandom|getentropy|getenv)"
        R"(|getpid|gethostname|clock_gettime|gettimeofday|nanosleep|usleep|fopen|opendir)\s*\()"
        R"(|(^|[^\w>)\]])::(open|openat|creat|close|read|write|recv\w*|send\w*|connect|accept\w*|bind|listen|poll)"
        R"(|select|epoll_\w+|eventfd|pipe2?|dup2?|kill|fork|exec\w+|unlink\w*|rename\w*|fsync|mkdir\w*|stat|lstat)"
        R"(|fstat|sleep|time|socket|getrandom|getpid|mmap)\s*\()");
    return std::regex_search(line, words);
}

}  // namespace

TEST_CASE("core/control decides without I/O") {
    for (const Source& source : policy::sources()) {
        if (!source.in("core/control") || !(source.is(".h") || source.is(".cpp"))) continue;
        for (const policy::Include& include : policy::includes_of(source))
            if (const std::string problem = problem_of(include.name); !problem.empty())
                FAIL_CHECK(source.path << ":" << include.line << ": includes " << include.name << ": " << problem);
        for (size_t i = 0; i < source.lines.size(); ++i)
            if (does_io(source.lines[i].substr(0, source.lines[i].find("//"))))
                FAIL_CHECK(source.path << ":" << i + 1 << ": " << source.lines[i] << "\n  that is an action, which "
                                       << "the owner of the loop performs (core/control/README.md)");
    }
}

TEST_CASE("the scan of core/control knows what it forbids") {
    for (const char* header : {"thread", "mutex", "fstream", "atomic", "sys/socket.h", "unistd.h", "base/env.h"})
        if (problem_of(header).empty()) FAIL_CHECK(header);
    for (const char* header : {"vector", "chrono", "cstring", "fmt/format.h", "base/hash.h", "orrery/rendezvous.h"})
        if (!problem_of(header).empty()) FAIL_CHECK(header);
    for (const char* line :
         {"auto now = Clock::now() + std::chrono::steady_clock::duration(1);", "std::thread t(run);",
          "    const std::lock_guard<std::mutex> lock(m);", "    std::ifstream file(path);", "if (fork() == 0) {",
          "    const int fd = ::open(path, O_RDONLY);", "::recv(fd, b, n, 0);", "  std::this_thread::sleep_for(1ms);",
          "const char* home = std::getenv(\"HOME\");", "system_env()->now()", "std::random_device seed;"})
        if (!does_io(line)) FAIL_CHECK(line);
    for (const char* line : {"std::chrono::nanoseconds now", "void Membership::send(Connection to) {", "link.close(3);",
                             "actions.push_back({Action::Kind::open, 3});", "peer.write(text);", "state.time(now);"})
        if (does_io(line)) FAIL_CHECK(line);
}
