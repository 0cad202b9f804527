// Runs a link command with the digest of what it links as the build id, which is equal for
// equal sources and compiler.
//
//   orrery_link g++ -shared -o liborrery_device_cpu.so cpu.o memory.o libkernels.a ...
//
// Of each object, also those in archives, it takes what is loaded when the library is used: the bytes of code and
// constants, what their relocations refer to, and global names. Folders, debug information, local names and times are
// not in it. A linked file would not do: the length of its RUNPATH moves its code.
#include <elf.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace {

constexpr size_t digest_bytes = 20;  // as many as of a build id that a linker makes

/// nvcc makes names of a file's own device code from the path of the file: "_GLOBAL__N__e15a9ead_10_rows_cu_6a5cc637".
std::string without_module_ids(std::string bytes) {
    constexpr std::string_view begin = "_GLOBAL__N__";
    constexpr size_t digits = 8;
    for (size_t at = bytes.find(begin); at != std::string::npos; at = bytes.find(begin, at + begin.size()))
        for (size_t i = at + begin.size(); i < std::min(at + begin.size() + digits, bytes.size()); ++i) bytes[i] = '0';
    return bytes;
}

class Digest {
public:
    Digest() { EVP_DigestInit_ex(context_, EVP_sha256(), nullptr); }
    ~Digest() { EVP_MD_CTX_free(context_); }
    Digest(const Digest&) = delete;

    /// With its length, so that no two sequences of texts are the same.
    void add(std::string_view text) {
        const std::string bytes = without_module_ids(std::string(text));
        add(bytes.size());
        EVP_DigestUpdate(context_, bytes.data(), bytes.size());
    }
    void add(uint64_t number) { EVP_DigestUpdate(context_, &number, sizeof(number)); }
    std::string hex() {
        unsigned char bytes[EVP_MAX_MD_SIZE];
        EVP_DigestFinal_ex(context_, bytes, nullptr);
        std::string digits;
        for (size_t i = 0; i < digest_bytes; ++i) {
            digits += "0123456789abcdef"[bytes[i] >> 4];
            digits += "0123456789abcdef"[bytes[i] & 15];
        }
        return digits;
    }

private:
    EVP_MD_CTX* context_ = EVP_MD_CTX_new();
};

/// A relocatable ELF file.
class Object {
public:
    explicit Object(std::string_view bytes) : bytes_(bytes) {
        read_sections();
        kept_.resize(sections_.size());
        uint64_t kept = 0;
        for (size_t i = 0; i < sections_.size(); ++i) {
            if (sections_[i].sh_type == SHT_SYMTAB) symbols_ = &sections_[i];
            if (sections_[i].sh_type == SHT_SYMTAB_SHNDX) long_numbers_ = &sections_[i];
            if (sections_[i].sh_type == SHT_RELA) relocations_.emplace(sections_[i].sh_info, &sections_[i]);
            if (counts(sections_[i])) kept_[i] = ++kept;
        }
    }

    static bool is_one(std::string_view bytes) {
        if (bytes.size() < sizeof(Elf64_Ehdr) || !bytes.starts_with(ELFMAG)) return false;
        Elf64_Ehdr header;
        std::memcpy(&header, bytes.data(), sizeof(header));
        return header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_type == ET_REL;
    }

    void add_to(Digest& digest) const {
        for (size_t i = 0; i < sections_.size(); ++i) {
            const Elf64_Shdr& section = sections_[i];
            if (kept_[i] == 0) continue;
            digest.add(name(section));
            digest.add(section.sh_type);
            digest.add(section.sh_flags);
            digest.add(section.sh_size);
            if (section.sh_type != SHT_NOBITS) digest.add(content(section));
            const auto [first, end] = relocations_.equal_range(i);
            for (auto one = first; one != end; ++one) add_relocations(*one->second, digest);
        }
        add_globals(digest);
    }

private:
    /// From 65,280 sections on their count and the number of the one with their names are in the first one.
    void read_sections() {
        const auto header = at<Elf64_Ehdr>(0);
        if (header.e_shoff == 0) throw std::runtime_error("has no sections");
        const auto first = at<Elf64_Shdr>(header.e_shoff);
        const uint64_t count = header.e_shnum == 0 ? first.sh_size : header.e_shnum;
        if (count == 0) throw std::runtime_error("has no sections");
        if (header.e_shentsize != sizeof(Elf64_Shdr)) throw std::runtime_error("is damaged");
        names_ = header.e_shstrndx == SHN_XINDEX ? first.sh_link : header.e_shstrndx;
        for (uint64_t i = 0; i < count; ++i)
            sections_.push_back(at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
    }

    /// Loaded code or data. Unwind tables say nothing that the code does not; nvcc's module id is drawn by chance.
    bool counts(const Elf64_Shdr& section) const {
        const std::string_view called = name(section);
        return (section.sh_flags & SHF_ALLOC) && section.sh_type != SHT_NOTE && called != ".eh_frame" &&
               called != "__nv_module_id";
    }

    void add_relocations(const Elf64_Shdr& section, Digest& digest) const {
        for (uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Rela); ++i) {
            const auto one = at<Elf64_Rela>(section.sh_offset + i * sizeof(Elf64_Rela));
            digest.add(one.r_offset);
            digest.add(ELF64_R_TYPE(one.r_info));
            digest.add(static_cast<uint64_t>(one.r_addend));
            const uint64_t index = ELF64_R_SYM(one.r_info);
            const Elf64_Sym target = symbol(index);
            if (ELF64_ST_BIND(target.st_info) != STB_LOCAL) {
                digest.add(name(target));
            } else {  // compilers make local names of file names
                digest.add(section_of(target, index));
                digest.add(target.st_value);
            }
        }
    }

    void add_globals(Digest& digest) const {
        std::vector<std::tuple<uint64_t, uint64_t, uint64_t, std::string_view>> globals;
        for (uint64_t i = 0; symbols_ && i < symbols_->sh_size / sizeof(Elf64_Sym); ++i) {
            const Elf64_Sym one = symbol(i);
            if (ELF64_ST_BIND(one.st_info) == STB_LOCAL) continue;
            const uint64_t section = section_of(one, i);
            if (section > 0 && section <= kept_.size())
                globals.emplace_back(section, one.st_value, one.st_info, name(one));
        }
        std::sort(globals.begin(), globals.end());
        for (const auto& [section, value, info, name] : globals) {
            digest.add(section);
            digest.add(value);
            digest.add(info);
            digest.add(name);
        }
    }

    /// Number of a symbol's section among those that count; 0 where it does not, above all of them where the symbol is
    /// in none: absolute or common.
    uint64_t section_of(const Elf64_Sym& symbol, uint64_t index) const {
        if (symbol.st_shndx != SHN_XINDEX) {
            if (symbol.st_shndx >= SHN_LORESERVE) return ~uint64_t{symbol.st_shndx};
            return symbol.st_shndx < kept_.size() ? kept_[symbol.st_shndx] : throw std::runtime_error("is damaged");
        }
        if (!long_numbers_) throw std::runtime_error("has too many sections");
        const auto number = at<Elf32_Word>(long_numbers_->sh_offset + index * sizeof(Elf32_Word));
        const bool is_there = index < long_numbers_->sh_size / sizeof(Elf32_Word) && number < kept_.size();
        return is_there ? kept_[number] : throw std::runtime_error("is damaged");
    }

    template <class T>
    T at(uint64_t offset) const {
        if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) throw std::runtime_error("is cut short");
        T value;
        std::memcpy(&value, bytes_.data() + offset, sizeof(T));
        return value;
    }
    std::string_view content(const Elf64_Shdr& section) const {
        if (section.sh_offset > bytes_.size() || bytes_.size() - section.sh_offset < section.sh_size)
            throw std::runtime_error("is cut short");
        return bytes_.substr(section.sh_offset, section.sh_size);
    }
    std::string_view text(const Elf64_Shdr& table, uint64_t offset) const {
        const std::string_view all = content(table);
        if (offset >= all.size()) throw std::runtime_error("is damaged");
        return all.substr(offset, all.find('\0', offset) - offset);
    }
    std::string_view name(const Elf64_Shdr& section) const { return text(sections_.at(names_), section.sh_name); }
    std::string_view name(const Elf64_Sym& symbol) const {
        return text(sections_.at(symbols_->sh_link), symbol.st_name);
    }
    Elf64_Sym symbol(uint64_t index) const {
        if (!symbols_) throw std::runtime_error("has no symbols");
        return at<Elf64_Sym>(symbols_->sh_offset + index * sizeof(Elf64_Sym));
    }

    std::string_view bytes_;
    std::vector<Elf64_Shdr> sections_;
    uint64_t names_ = 0;  ///< the section with the names of all
    const Elf64_Shdr* symbols_ = nullptr;
    const Elf64_Shdr* long_numbers_ = nullptr;                ///< sections of symbols, where 16 bits are too few
    std::multimap<uint64_t, const Elf64_Shdr*> relocations_;  ///< by the section that they are of
    std::vector<uint64_t> kept_;  ///< by section: its number among those that count, from 1 on; 0: it does not
};

void add_object(std::string_view bytes, Digest& digest) {
    if (Object::is_one(bytes)) return Object(bytes).add_to(digest);
    digest.add(bytes);  // bitcode, say
}

/// "!<arch>\n", then members: a header of 60 characters with the size at 48, and the bytes, at even places.
void add_archive(std::string_view bytes, Digest& digest) {
    constexpr size_t begin = 8, header = 60, size_at = 48, size_digits = 10;
    for (size_t at = begin; at + header <= bytes.size();) {
        const size_t size = std::stoull(std::string(bytes.substr(at + size_at, size_digits)));
        const bool table = bytes[at] == '/' && !std::isdigit(static_cast<unsigned char>(bytes[at + 1]));
        if (bytes.size() - at - header < size) throw std::runtime_error("is cut short");
        if (!table) add_object(bytes.substr(at + header, size), digest);
        at += header + size + size % 2;
    }
}

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw std::runtime_error("cannot be read");
    return bytes;
}

/// The words of a response file.
std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> words;
    std::string word;
    char quote = 0;
    bool any = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\\' && i + 1 < text.size())
            word += text[++i], any = true;
        else if (quote ? c == quote : c == '"' || c == '\'')
            quote = quote ? 0 : c, any = true;
        else if (quote || !std::isspace(static_cast<unsigned char>(c)))
            word += c, any = true;
        else if (any)
            words.push_back(std::move(word)), word.clear(), any = false;
    }
    if (any) words.push_back(word);
    return words;
}

/// Objects and archives of a command line, each once, in its order.
void inputs_of(const std::vector<std::string>& words, std::vector<std::string>& inputs) {
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word == "-o")
            ++i;
        else if (word.starts_with("@"))
            inputs_of(words_of(read(word.substr(1))), inputs);
        else if (!word.starts_with("-") && (word.ends_with(".o") || word.ends_with(".a")) &&
                 std::find(inputs.begin(), inputs.end(), word) == inputs.end())
            inputs.push_back(word);
    }
}

std::string digest_of(const std::vector<std::string>& words) {
    std::vector<std::string> inputs;
    inputs_of(words, inputs);
    Digest digest;
    for (const std::string& path : inputs) try {
            const std::string bytes = read(path);
            if (bytes.starts_with("!<thin>")) throw std::runtime_error("is a thin archive, which cannot be digested");
            if (bytes.starts_with("!<arch>\n"))
                add_archive(bytes, digest);
            else
                add_object(bytes, digest);
        } catch (const std::exception& problem) {
            throw std::runtime_error(path + " " + problem.what());
        }
    return digest.hex();
}

}  // namespace

int main(int argc, char** argv) try {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.empty()) throw std::runtime_error("which link command?");
    words.push_back("-Wl,--build-id=0x" + digest_of(words));
    std::vector<char*> command;
    for (std::string& word : words) command.push_back(word.data());
    command.push_back(nullptr);
    ::execvp(command[0], command.data());
    throw std::runtime_error("cannot run " + words[0] + ": " + std::strerror(errno));
} catch (const std::exception& problem) {
    std::fprintf(stderr, "orrery_link: %s\n", problem.what());
    return 1;
}
