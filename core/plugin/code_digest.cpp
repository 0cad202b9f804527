#include "plugin/code_digest.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/text.h"
#include "plugin/library_file.h"

namespace orrery {

namespace {

std::string build_id_in(std::string_view notes) {
    constexpr size_t unit = 4;
    const auto rounded = [](size_t n) { return (n + unit - 1) / unit * unit; };
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= notes.size();) {
        ElfW(Nhdr) note;
        std::memcpy(&note, notes.data() + at, sizeof(note));
        const size_t name = at + sizeof(note), bytes = name + rounded(note.n_namesz);
        at = bytes + rounded(note.n_descsz);
        if (at > notes.size()) break;
        if (note.n_type == NT_GNU_BUILD_ID && notes.substr(name, note.n_namesz) == std::string_view("GNU", 4))
            return hex(notes.substr(bytes, note.n_descsz));
    }
    return "";
}

struct Sought {
    uintptr_t address;
    std::string id;
};

bool loads(const dl_phdr_info& info, uintptr_t address, size_t bytes) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = info.dlpi_phdr[i];
        const uintptr_t from = address - (info.dlpi_addr + part.p_vaddr);
        if (part.p_type == PT_LOAD && from < part.p_memsz && bytes <= part.p_memsz - from) return true;
    }
    return false;
}

/// Reads the build id of the library that contains an address, from its loaded ELF notes.
int look(dl_phdr_info* info, size_t, void* sought) {
    auto& found = *static_cast<Sought*>(sought);
    if (!loads(*info, found.address, 1)) return 0;
    for (int i = 0; i < info->dlpi_phnum && found.id.empty(); ++i) {
        const ElfW(Phdr)& part = info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_NOTE && loads(*info, begin, part.p_memsz))
            found.id = build_id_in({reinterpret_cast<const char*>(begin), static_cast<size_t>(part.p_memsz)});
    }
    return 1;
}

}  // namespace

LibraryCode code_at(const void* address) {
    Sought sought{reinterpret_cast<uintptr_t>(address), ""};
    ::dl_iterate_phdr(look, &sought);
    Dl_info info{};
    if (!::dladdr(address, &info) || !info.dli_fname) return {"", sought.id};
    std::error_code problem;
    const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, problem);
    return {problem ? info.dli_fname : file.string(), sought.id};
}

LibraryCode this_code() { return code_at(reinterpret_cast<const void*>(&this_code)); }

std::string code_digest_of(const std::filesystem::path& path) {
    constexpr size_t longest = size_t{1} << 16;  // max bytes of ELF notes, since a damaged file may claim any size
    std::ifstream file(path, std::ios::binary);
    ElfW(Ehdr) header;
    if (!read_at(file, 0, &header, sizeof(header)) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_phentsize != sizeof(ElfW(Phdr)))
        return "";
    for (size_t i = 0; i < header.e_phnum; ++i) {
        ElfW(Phdr) part;
        if (!read_at(file, header.e_phoff + i * sizeof(part), &part, sizeof(part))) return "";
        if (part.p_type != PT_NOTE || part.p_filesz > longest) continue;
        std::string notes(part.p_filesz, '\0');
        if (!read_at(file, part.p_offset, notes.data(), notes.size())) return "";
        if (std::string id = build_id_in(notes); !id.empty()) return id;
    }
    return "";
}

}  // namespace orrery
