// fuzz_tests [--target NAME] [--inputs N] [--seconds S] [--first N] [--write FOLDER] [FILE...]: runs the targets over
// seeded changes of their seeds, without libFuzzer: N inputs each, for at most S seconds each. FILE: that input alone.
// --write: the seeds as files, FOLDER/TARGET/NN, their words for libFuzzer, FOLDER/TARGET.dict, and nothing else. Exit
// code 1 with a finding, whose input is kept as finding-TARGET. At most 256 MiB and 1 s an input.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>

#include "mutate.h"
#include "orrery/error.h"
#include "target.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool counts_memory = false;  // the sanitizer has its own operator new
#else
constexpr bool counts_memory = true;
#endif

namespace {

constexpr size_t most_memory = size_t{256} << 20;
constexpr double most_seconds = 1;
std::atomic<size_t> memory{0};
std::atomic<bool> too_much{false};

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t bytes) {
    if (bytes > most_memory || memory.load() + bytes > most_memory) {
        too_much = true;
        throw std::bad_alloc();
    }
    void* const made = std::malloc(bytes == 0 ? 1 : bytes);
    if (!made) throw std::bad_alloc();
    memory += malloc_usable_size(made);
    return made;
}
void operator delete(void* made) noexcept {
    if (made) memory -= malloc_usable_size(made);
    std::free(made);
}
void operator delete(void* made, size_t) noexcept { operator delete(made); }
#endif

namespace orrery::fuzz {
namespace {

struct Options {
    std::string target, write;
    uint64_t inputs = 20'000, first = 0;
    double seconds = 10;
    std::vector<std::string> files;
};

/// What is run now, for a crash.
const std::string* now_running = nullptr;
char kept_name[256] = {};

void keep() {
    std::FILE* const file = std::fopen(kept_name, "wb");
    if (!file) return;
    std::fwrite(now_running->data(), 1, now_running->size(), file);
    std::fclose(file);
}

void crashed(int signal) {
    if (now_running) keep();
    static const char words[] = "finding: a crash, or more than 10 s; its input is kept as ";
    if (::write(2, words, sizeof words - 1) < 0 || ::write(2, kept_name, std::strlen(kept_name)) < 0 ||
        ::write(2, "\n", 1) < 0)
        ::_exit(1);
    ::signal(signal, SIG_DFL);
    ::raise(signal);
}

/// "" or what the finding is.
std::string look(const Target& target, const std::string& input) {
    const std::clock_t begin = std::clock();
    too_much = false;
    std::string finding;
    ::alarm(10);
    try {
        target.run(input);
    } catch (const std::exception& problem) {
        finding = problem.what();
    }
    ::alarm(0);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;  // whatever else runs here
    if (too_much) return "more than 256 MiB";
    if (finding.empty() && seconds > most_seconds) return "more than 1 s: " + std::to_string(seconds);
    return finding;
}

bool judge(const Target& target, const std::string& input, const std::string& what) {
    now_running = &input;
    std::snprintf(kept_name, sizeof kept_name, "finding-%s", target.name.c_str());
    const std::string finding = look(target, input);
    if (finding.empty()) return true;
    keep();
    std::fprintf(stderr, "%s, %s: %s\n  kept as %s\n", target.name.c_str(), what.c_str(), finding.c_str(), kept_name);
    return false;
}

bool sweep(const Target& target, const Options& options) {
    const Mutator mutator(target);
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
    uint64_t ran = 0;
    for (; ran < options.inputs && std::chrono::steady_clock::now() < until; ++ran) {
        const std::string input = mutator.input(options.first + ran);
        if (!judge(target, input, "input " + std::to_string(options.first + ran))) return false;
    }
    std::printf("%-12s %8llu inputs, no finding\n", target.name.c_str(), static_cast<unsigned long long>(ran));
    std::fflush(stdout);
    return ran > mutator.seeds();
}

bool read(const Target& target, const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::fprintf(stderr, "cannot read %s\n", path.c_str()), false;
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    return judge(target, input, path);
}

void write(const Target& target, const std::string& folder) {
    const std::filesystem::path place = std::filesystem::path(folder) / target.name;
    std::filesystem::create_directories(place);
    int number = 0;
    for (const std::string& seed : target.seeds())
        std::ofstream(place / std::to_string(number++), std::ios::binary) << seed;
    std::ofstream words(place.string() + ".dict");
    for (const std::string& word : target.words()) {
        words << '"';
        for (const unsigned char byte : word)
            words << "\\x"
                  << "0123456789abcdef"[byte / 16] << "0123456789abcdef"[byte % 16];
        words << "\"\n";
    }
}

Options options_of(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        if (!word.starts_with("--")) {
            options.files.push_back(word);
            continue;
        }
        ++i;
        if (word == "--target")
            options.target = value;
        else if (word == "--write")
            options.write = value;
        else if (word == "--inputs")
            options.inputs = std::stoull(value);
        else if (word == "--first")
            options.first = std::stoull(value);
        else if (word == "--seconds")
            options.seconds = std::stod(value);
        else
            throw Error("no option " + word);
    }
    return options;
}

int drive(const Options& options) {
    int looked = 0;
    bool good = true;
    for (const Target& target : targets()) {
        if (!options.target.empty() && target.name != options.target) continue;
        ++looked;
        if (!options.write.empty())
            write(target, options.write);
        else if (options.files.empty())
            good = sweep(target, options) && good;
        else
            for (const std::string& file : options.files) good = read(target, file) && good;
    }
    if (looked == 0) throw Error("no target " + options.target);
    if (!counts_memory && good) std::printf("memory was not counted: a sanitizer has it\n");
    return good ? 0 : 1;
}

}  // namespace
}  // namespace orrery::fuzz

int main(int argc, char** argv) {
    for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGALRM}) ::signal(signal, orrery::fuzz::crashed);
    try {
        return orrery::fuzz::drive(orrery::fuzz::options_of(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "fuzz_tests: %s\n", error.what());
        return 2;
    }
}
