#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "run/data/data.h"

namespace orrery {

int tokenize_command(const TokenizeCommand& command) {
    std::error_code ignored;
    if (std::filesystem::equivalent(command.text, command.bin, ignored))
        throw Error(fmt::format("tokenize: {} and {} are one file, whose text would be lost\n  name another token file",
                                command.text, command.bin));
    const int64_t count = tokenize_bytes(command.text, command.bin, command.token_bytes);
    std::printf("%s: %lld tokens of %d bytes, one a byte, vocabulary 256\n", command.bin.c_str(),
                static_cast<long long>(count), command.token_bytes);
    return 0;
}

}  // namespace orrery
