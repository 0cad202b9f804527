#include "source.h"
#include "folders.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

namespace policy {

namespace fs = std::filesystem;

namespace {

bool skipped(const std::string& name) {
    return name == ".git" || name == "data" || name == "runs" || name == "shared" || name.starts_with("build");
}

void collect(const fs::path& root, const fs::path& folder, std::vector<Source>& found) {
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename();
        const std::string path = entry.path().lexically_relative(root);
        if (entry.is_directory()) {
            // "data", "runs" and build folders are at the top only
            if (folder != root || !skipped(name)) collect(root, entry.path(), found);
            continue;
        }
        if (name == ".git" || name.ends_with(".swp")) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(file)), {});
        if (bytes.find('\0') != std::string::npos) continue;
        Source source{path, {}};
        for (size_t at = 0; at < bytes.size();) {
            const size_t end = std::min(bytes.find('\n', at), bytes.size());
            source.lines.push_back(bytes.substr(at, end - at));
            at = end + 1;
        }
        found.push_back(std::move(source));
    }
}

}  // namespace

bool Source::code() const {
    for (const char* extension : {".h", ".cpp", ".cu", ".cuh", ".lua", ".cmake", ".sh"})
        if (is(extension)) return true;
    return path.ends_with("CMakeLists.txt");
}

const std::vector<Source>& sources() {
    static const std::vector<Source> all = [] {
        std::vector<Source> found;
        collect(in_source(""), in_source(""), found);
        std::sort(found.begin(), found.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
        return found;
    }();
    return all;
}

std::set<std::string> first_column(const Source& manual, const std::string& heading) {
    static const std::regex name("`([^`]+)`");
    std::set<std::string> named;
    bool inside = false;
    for (const std::string& line : manual.lines) {
        if (line.starts_with(heading)) inside = true;
        if (!line.starts_with("|")) inside = false;
        if (!inside) continue;
        const std::string first = line.substr(1, line.find('|', 1) - 1);
        for (auto at = std::sregex_iterator(first.begin(), first.end(), name); at != std::sregex_iterator(); ++at)
            named.insert((*at)[1]);
    }
    return named;
}

std::vector<Include> includes_of(const Source& source) {
    static const std::regex directive(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"].*)");
    std::vector<Include> found;
    std::smatch match;
    for (size_t i = 0; i < source.lines.size(); ++i) {
        if (std::regex_match(source.lines[i], match, directive)) found.push_back({match[2], match[1] == "<", i + 1});
    }
    return found;
}

}  // namespace policy
