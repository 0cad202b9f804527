#include "plugin/library_file.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>

#include "orrery/error.h"

namespace orrery {

namespace {

constexpr size_t most_names = size_t{1} << 24, longest_name = 256;  // max bytes, as a damaged file may claim any size

bool is_library(const ElfW(Ehdr) & header) {
    constexpr unsigned char bits = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
    return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == bits &&
           header.e_type == ET_DYN && header.e_shentsize == sizeof(ElfW(Shdr)) && header.e_shstrndx < header.e_shnum;
}

/// Returns the text at `at` in the section names, up to a zero byte; nullopt when it is too long or has no zero byte.
std::optional<std::string> name_at(const std::string& names, size_t at) {
    const size_t end = at < names.size() ? names.find('\0', at) : std::string::npos;
    if (end == std::string::npos || end - at > longest_name) return std::nullopt;
    return names.substr(at, end - at);
}

}  // namespace

bool read_at(std::ifstream& file, uint64_t offset, void* to, size_t bytes) {
    file.seekg(static_cast<std::streamoff>(offset));
    return static_cast<bool>(file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)));
}

LibraryFile::LibraryFile(std::filesystem::path path) : path_(std::move(path)) {
    const auto damaged = [] { return Error("it is not a shared library for this machine, or is truncated"); };
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path_, ignored)) throw damaged();  // as reading a pipe would block
    std::ifstream file(path_, std::ios::binary);
    ElfW(Ehdr) header;
    if (!read_at(file, 0, &header, sizeof(header)) || !is_library(header)) throw damaged();
    std::vector<ElfW(Shdr)> parts(header.e_shnum);
    if (!read_at(file, header.e_shoff, parts.data(), parts.size() * sizeof(parts[0]))) throw damaged();
    const ElfW(Shdr)& table = parts[header.e_shstrndx];
    if (table.sh_size > most_names) throw damaged();
    std::string names(table.sh_size, '\0');
    if (!read_at(file, table.sh_offset, names.data(), names.size())) throw damaged();
    for (const ElfW(Shdr) & part : parts) {
        auto name = name_at(names, part.sh_name);
        if (!name) throw damaged();
        sections_.push_back({std::move(*name), part.sh_offset, part.sh_size});
    }
}

std::optional<std::string> LibraryFile::section_that_begins(std::string_view prefix) const {
    const auto found =
        std::ranges::find_if(sections_, [&](const Section& section) { return section.name.starts_with(prefix); });
    return found == sections_.end() ? std::nullopt : std::optional(found->name);
}

std::optional<std::string> LibraryFile::bytes_of(std::string_view section, size_t most) const {
    const auto found = std::ranges::find(sections_, section, &Section::name);
    if (found == sections_.end()) return std::nullopt;
    if (found->bytes > most)
        throw Error("its section " + std::string(section) + " has " + std::to_string(found->bytes) +
                    " bytes, expected at most " + std::to_string(most));
    std::string bytes(found->bytes, '\0');
    std::ifstream file(path_, std::ios::binary);
    if (!read_at(file, found->offset, bytes.data(), bytes.size()))
        throw Error("its section " + std::string(section) + " is truncated");
    return bytes;
}

}  // namespace orrery
