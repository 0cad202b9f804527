// The program published: what it exits with, and what it says and writes of rows that it cannot predict.
#include <sys/wait.h>

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "folders.h"

namespace {

constexpr const char* columns =
    "id,gpu,n_gpus,layers,hidden,heads,ffn,vocab,seq,micro_batch,global_batch,recompute,iter_time_s\n";
/// One that can be predicted; two sequences.
constexpr const char* good = "good,H100-80G-SXM,2,2,64,4,128,512,32,1,2,none,\n";

struct Ran {
    int code = -1;
    std::string errors;
};

std::string path(const std::string& name) { return in_build("tests/published_program." + name); }

std::string text_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

Ran ran(const std::string& rows, const std::string& options) {
    std::ofstream(path("csv")) << columns << rows;
    const std::string command =
        in_build("published") + " " + path("csv") + " " + options + " > /dev/null 2> " + path("errors");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(path("errors"))};
}

}  // namespace

TEST_CASE("published: options that are none are the user's mistake", "[published]") {
    for (const char* options : {"--every 0", "--every x", "--every 2x", "--every -1", "--every", "--what"}) {
        INFO(options);
        const Ran one = ran(good, options);
        CHECK(one.code == 2);
        CHECK(one.errors.find("published: ") == 0);
    }
}
