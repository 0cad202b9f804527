#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Reads so many bytes from there on; false when the file has fewer.
bool read_at(std::ifstream& file, uint64_t offset, void* to, size_t bytes);

/// A shared library of this machine as a file, of which nothing runs.
class LibraryFile {
public:
    /// Throws Error when it is another kind of file, or is truncated.
    explicit LibraryFile(std::filesystem::path path);

    /// The first section whose name begins so, nullopt when there is none.
    std::optional<std::string> section_that_begins(std::string_view prefix) const;
    /// The bytes of a section, nullopt when there is none. Throws Error when it has more than `most` of them.
    std::optional<std::string> bytes_of(std::string_view section, size_t most) const;

private:
    struct Section {
        std::string name;
        uint64_t offset = 0, bytes = 0;
    };
    std::filesystem::path path_;
    std::vector<Section> sections_;
};

}  // namespace orrery
