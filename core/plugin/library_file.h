#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

bool read_at(std::ifstream& file, uint64_t offset, void* to, size_t bytes);

/// Reads the sections of a shared library for this machine, without running its code.
class LibraryFile {
public:
    /// Throws Error when the file is not a shared library for this machine or is truncated.
    explicit LibraryFile(std::filesystem::path path);

    /// Returns the name of the first section that begins with `prefix`; nullopt when there is none.
    std::optional<std::string> section_that_begins(std::string_view prefix) const;
    /// Returns the bytes of a section; nullopt when there is none. Throws Error when there are more than `most` bytes.
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
