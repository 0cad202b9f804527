#include "products.h"

#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>

namespace orrery::cpu_device {

namespace {

using kernels::Products;

struct Named {
    Products kind;
    const char* name;
};
constexpr Named named[] = {{Products::onednn, "onednn"}, {Products::native, "native"}, {Products::blocks, "blocks"}};
static_assert(std::size(named) == std::size(kernels::all_products));

/// What /proc/cpuinfo says first under a name, "" when it says nothing.
std::string said(std::string_view cpuinfo, std::string_view name) {
    for (size_t at = 0; at < cpuinfo.size();) {
        const size_t end = std::min(cpuinfo.find('\n', at), cpuinfo.size());
        const std::string_view line = cpuinfo.substr(at, end - at);
        at = end + 1;
        const size_t colon = line.find(':');
        if (colon == std::string_view::npos || !line.starts_with(name)) continue;
        if (line.find_first_not_of(" \t", name.size()) != colon) continue;  // "model name" is no "model"
        const size_t begin = line.find_first_not_of(" \t", colon + 1);
        return begin == std::string_view::npos ? "" : std::string(line.substr(begin));
    }
    return "";
}

/// The notes of a segment, of which one may be the build id.
std::string build_id_of(const char* notes, size_t size) {
    constexpr size_t unit = 4;
    const auto rounded = [](size_t n) { return (n + unit - 1) / unit * unit; };
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
        ElfW(Nhdr) note;
        std::memcpy(&note, notes + at, sizeof(note));
        const char* const name = notes + at + sizeof(note);
        const auto* const bytes = reinterpret_cast<const unsigned char*>(name + rounded(note.n_namesz));
        at += sizeof(note) + rounded(note.n_namesz) + rounded(note.n_descsz);
        if (at > size || note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || std::memcmp(name, "GNU", 4) != 0)
            continue;
        std::string digits;
        for (size_t i = 0; i < note.n_descsz; ++i) {
            digits += "0123456789abcdef"[bytes[i] >> 4];
            digits += "0123456789abcdef"[bytes[i] & 15];
        }
        return digits;
    }
    return "";
}

/// Looks for the file that is mapped where this code is.
int look(dl_phdr_info* info, size_t, void* found) {
    const auto here = reinterpret_cast<uintptr_t>(&look);
    bool mine = false;
    std::string id;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && here >= begin && here - begin < part.p_memsz) mine = true;
        if (part.p_type == PT_NOTE && id.empty())
            id = build_id_of(reinterpret_cast<const char*>(begin), static_cast<size_t>(part.p_memsz));
    }
    if (mine) *static_cast<std::string*>(found) = id;
    return mine ? 1 : 0;
}

}  // namespace

std::string_view name_of(kernels::cpu::Isa isa) {
    using kernels::cpu::Isa;
    return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "portable";
}

std::vector<std::string> product_names() {
    std::vector<std::string> names;
    for (const Named& one : named) names.emplace_back(one.name);
    return names;
}

std::string name_of(Products kind) { return named[static_cast<size_t>(kind)].name; }

std::optional<Products> parse_products(std::string_view name) {
    for (const Named& one : named)
        if (name == one.name) return one.kind;
    return std::nullopt;
}

std::string build_id() {
    std::string id;
    ::dl_iterate_phdr(look, &id);
    return id;
}

std::string machine_of(std::string_view cpuinfo, int threads) {
    std::string lines;
    const auto line = [&](const std::string& name, const std::string& value) { lines += name + "=" + value + "\n"; };
    // The last three are what other architectures say instead.
    for (const char* name :
         {"model name", "cpu family", "model", "stepping", "microcode", "CPU implementer", "CPU part", "CPU revision"})
        if (const std::string value = said(cpuinfo, name); !value.empty()) line(name, value);
    line("instructions", std::string(name_of(kernels::cpu::isa())));
    line("oneDNN", kernels::cpu::onednn_version());
    line("oneDNN's instructions", kernels::cpu::onednn_instructions());  // also its environment variable's
    const std::string flags = said(cpuinfo, "flags") + said(cpuinfo, "Features");
    line("flags", std::to_string(std::hash<std::string>()(flags)));
    line("build", build_id());
    line("threads", std::to_string(threads));
    return lines;
}

std::string arithmetic_of(std::string_view cpuinfo, bool reference) {
    if (reference) return "kernels=reference\n";
    const std::string model = said(cpuinfo, "model name");
    // oneDNN cuts products by the sizes of the processor's caches.
    return "processor=" + (model.empty() ? said(cpuinfo, "CPU part") : model) +
           "\ninstructions=" + std::string(name_of(kernels::cpu::isa())) +
           "\noneDNN=" + kernels::cpu::onednn_version() +
           "\noneDNN's instructions=" + kernels::cpu::onednn_instructions() + "\nlibc=" + gnu_get_libc_version() + "\n";
}

}  // namespace orrery::cpu_device
