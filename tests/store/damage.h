// What can happen to a folder of checkpoints, by chance and on purpose.
#pragma once
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"

namespace orrery {

class Damage {
public:
    using Path = std::filesystem::path;

    Damage(Path place, unsigned seed) : place_(std::move(place)), random_(seed) {}

    static const std::vector<std::string>& kinds();
    /// Does one of them; false when there is nothing left to do it to.
    bool apply(const std::string& kind);
    /// What is written into strays: it must not be lost.
    static constexpr const char* foreign = "years of work";

    static std::string name_of(int64_t step);
    static std::string contents(const Path& path);
    static void write(const Path& path, const std::string& text);
    /// Changes a manifest and gives it a digest that fits.
    template <class Edit>
    static void sign(const Path& manifest, Edit edit) {
        Json json = parse_json(contents(manifest), {});
        json.erase("digest");
        edit(json);
        json["digest"] = sha256(json.dump());
        write(manifest, json.dump());
    }

    /// The same of a rank's index, to whose digest the manifest beside it is signed.
    template <class Edit>
    static void sign_index(const Path& manifest, int64_t rank, Edit edit) {
        char name[40];
        std::snprintf(name, sizeof name, "rank-%05lld.index.json", static_cast<long long>(rank));
        const Path path = manifest.parent_path() / name;
        Json index = parse_json(contents(path), {});
        edit(index);
        const std::string text = index.dump();
        write(path, text);
        sign(manifest, [&](Json& json) {
            for (Json& entry : json["indexes"])
                if (entry[0] == rank) entry = Json::array({rank, text.size(), sha256(text)});
        });
    }

    int64_t draw(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }

private:
    std::vector<Path> folders() const;  ///< with a manifest
    std::vector<Path> files(bool same_name = false);
    template <class List>
    auto any(const List& list) {
        return list[static_cast<size_t>(draw(0, static_cast<int64_t>(list.size()) - 1))];
    }
    Path free_name();
    bool between_files(const std::string& kind);
    bool to_folders(const std::string& kind);
    bool stray(const std::string& kind);
    bool signed_anew(const std::string& kind);
    void mutate(Json& json);

    Path place_;
    std::mt19937 random_;
};

}  // namespace orrery
