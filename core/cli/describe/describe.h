#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

struct CommandProgram;  // defined in cli/flags.h

/// Prints what may be in place of the last of `words`, one a line; "//" stands for names of files. `words`: those of
/// the command line so far, without the program's name. scripts/completion/orrery calls it.
int print_completions(const CommandProgram& program, const std::vector<std::string>& words);

/// Prints the manual page of section 1, in roff.
int print_man_page(const CommandProgram& program, std::string_view exit_codes);

}  // namespace orrery
