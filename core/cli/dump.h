#pragma once
#include <map>
#include <string>
#include <utility>

#include "compile/compile.h"
#include "plugin/loader.h"

namespace orrery {

/// Writes each program of a script after each pass to FOLDER/PROGRAM/NN-PASS.ir, and its plan to
/// FOLDER/PROGRAM/class-K.plan. Programs with the same name, such as the steps of a batch ramp, become PROGRAM,
/// PROGRAM~2 and so on in the order of compilation. In names, characters other than letters, digits, dots and dashes
/// become underscores.
class Dump {
public:
    /// Creates the folder. Throws Error unless it is new or empty: an earlier dump's files would seem to be new.
    explicit Dump(std::string folder);

    /// Writes the program as it is after a pass. Throws Error, naming pass and file, if the program is not valid.
    void look(std::string_view pass, const Program& program, const Mesh* mesh);
    void plans(const Compiled& compiled, size_t first = 0);

private:
    std::string folder_of(const std::string& program, const std::string& step);

    std::string folder_;
    std::map<std::pair<std::string, std::string>, int> seen_;  ///< number of programs dumped so far, by folder and pass
};

/// Returns a program as text in the format of a dump; its last line is "end".
std::string program_text(const Program& program, const Mesh* mesh);

/// Returns the plan that `rank` runs; -1: the plans of all ranks. Throws Fault::usage if there is no such rank.
std::string plan_text(const Plan& plan, int64_t rank);

/// Checks a dumped program for `orrery check FILE.ir`, loading the plugins of its ops, and returns it as text. Throws
/// Error naming the file and, for a syntax error, the line.
std::string checked_text(const std::string& file, const Loader& plugins);

}  // namespace orrery
