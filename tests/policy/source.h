#pragma once
#include <set>
#include <string>
#include <vector>

namespace policy {

/// A text file of the repository; `path` is relative to its root.
struct Source {
    std::string path;
    std::vector<std::string> lines;

    bool is(const std::string& extension) const { return path.ends_with(extension); }
    bool in(const std::string& folder) const { return path.starts_with(folder + "/"); }
    bool code() const;  ///< C++, CUDA, Lua, CMake or a shell script
};

/// Every file of the repository that people write: no build folders, data, runs, nor files with other than text.
const std::vector<Source>& sources();

/// What the first column of a file's tables that begin with `heading` has in backticks: `lower`, `walk.h`, `ops/`.
std::set<std::string> first_column(const Source& manual, const std::string& heading);

struct Include {
    std::string name;
    bool angle;
    size_t line;
};
std::vector<Include> includes_of(const Source& source);

}  // namespace policy
