#pragma once
#include <map>
#include <string>
#include <utility>

#include "compile/compile.h"
#include "plugin/loader.h"

namespace orrery {

/// Writes each program of a script after each pass to FOLDER/PROGRAM/NN-PASS.ir, and its plan to
/// FOLDER/PROGRAM/class-K.plan. Programs of one name, as the steps of a ramp, are PROGRAM, PROGRAM~2 and so on, in the
/// order in which they are compiled; of a name letters, digits, points and dashes stay.
class Dump {
public:
    /// Makes the folder. Throws Error unless it is new or empty: what a former dump has left would mislead.
    explicit Dump(std::string folder);

    /// Throws Error, naming pass and file, when the program is not legal.
    void look(std::string_view pass, const Program& program, const Mesh* mesh);
    void plans(const Compiled& compiled, size_t first = 0);

private:
    std::string folder_of(const std::string& program, const std::string& step);

    std::string folder_;
    std::map<std::pair<std::string, std::string>, int> seen_;  ///< by folder and pass
};

/// The program as a dump has it: the last line is "end".
std::string program_text(const Program& program, const Mesh* mesh);

/// The plan of a rank's class; of all classes where `rank` is negative. Throws Fault::usage for a rank beyond the mesh.
std::string plan_text(const Plan& plan, int64_t rank);

/// A dumped program as `orrery check FILE.ir` prints it: parsed and checked, with the plugins of its ops. Throws Error
/// with the file; a mistake of syntax has its line.
std::string checked_text(const std::string& file, const Loader& plugins);

}  // namespace orrery
