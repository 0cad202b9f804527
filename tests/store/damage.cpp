#include "damage.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

namespace orrery {

namespace fs = std::filesystem;

const std::vector<std::string>& Damage::kinds() {
    static const std::vector<std::string> all{
        "a flipped bit",       "a flipped high bit",   "a file cut short",       "a file that grew",
        "a missing file",      "swapped files",        "a file of another step", "a manifest of another step",
        "a copied step",       "a step over another",  "a renamed step",         "two steps swapped",
        "a missing step",      "a stray file",         "a stray folder",         "a stray link",
        "a stray partial",     "more in a step",       "a folder in a step",     "a mark",
        "a signed other step", "a signed other place", "a signed mutation",
    };
    return all;
}

std::string Damage::name_of(int64_t step) {
    char text[40];
    std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
    return text;
}

std::string Damage::contents(const Path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void Damage::write(const Path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::vector<fs::path> Damage::folders() const {
    std::vector<Path> all;
    for (const auto& entry : fs::directory_iterator(place_))
        if (fs::is_directory(entry.symlink_status()) && fs::exists(entry.path() / "manifest.json") &&
            entry.path().filename().string().starts_with("step-") && !entry.path().has_extension())
            all.push_back(entry.path());
    std::sort(all.begin(), all.end());
    return all;
}

std::vector<fs::path> Damage::files(bool same_name) {
    std::vector<Path> all;
    for (const Path& folder : folders())
        for (const auto& entry : fs::directory_iterator(folder))
            if (entry.is_regular_file() && entry.file_size() > 0 && entry.path().extension() != ".txt")
                all.push_back(entry.path());
    std::sort(all.begin(), all.end());
    if (!same_name || all.empty()) return all;
    const Path name = any(all).filename();
    std::erase_if(all, [&](const Path& path) { return path.filename() != name; });
    return all;
}

/// Where a step could be, and is none.
fs::path Damage::free_name() {
    for (;;) {
        const int64_t step = draw(0, 9) == 0 ? (draw(0, 1) ? INT64_MAX : INT64_MAX - draw(1, 1000)) : draw(1, 50);
        if (fs::symlink_status(place_ / name_of(step)).type() == fs::file_type::not_found)
            return place_ / name_of(step);
    }
}

bool Damage::apply(const std::string& kind) {
    return between_files(kind) || to_folders(kind) || stray(kind) || signed_anew(kind);
}

bool Damage::between_files(const std::string& kind) {
    const std::vector<Path> all = files(kind == "a file of another step");
    if (all.size() < 2) return false;
    const Path one = any(all);
    std::string bytes = contents(one);
    const auto at = static_cast<size_t>(draw(0, static_cast<int64_t>(bytes.size()) - 1));
    if (kind == "a flipped bit" || kind == "a flipped high bit") {
        bytes[at] = static_cast<char>(bytes[at] ^ (kind == "a flipped bit" ? 1 << draw(0, 7) : 0x80));
        write(one, bytes);
    } else if (kind == "a file cut short") {
        write(one, bytes.substr(0, at));
    } else if (kind == "a file that grew") {
        write(one, bytes + bytes.substr(at));
    } else if (kind == "a missing file") {
        fs::remove(draw(0, 4) == 0 ? one.parent_path() / ".orrery-checkpoint" : one);
    } else if (kind == "swapped files") {
        const Path other = any(all);
        write(one, contents(other));
        write(other, bytes);
    } else if (kind == "a file of another step") {
        write(any(all), bytes);
    } else if (kind == "a manifest of another step") {
        write(any(folders()) / "manifest.json", contents(any(folders()) / "manifest.json"));
    } else {
        return false;
    }
    return true;
}

bool Damage::to_folders(const std::string& kind) {
    const std::vector<Path> all = folders();
    if (all.empty()) return false;
    const Path one = any(all), other = any(all), spare = place_ / "spare";
    if (kind == "a copied step") {
        fs::copy(one, free_name());
    } else if (kind == "a step over another") {
        if (one == other) return false;
        fs::remove_all(other);
        fs::copy(one, other);
    } else if (kind == "a renamed step") {
        fs::rename(one, free_name());
    } else if (kind == "two steps swapped") {
        if (one == other) return false;
        fs::rename(one, spare);
        fs::rename(other, one);
        fs::rename(spare, other);
    } else if (kind == "a missing step") {
        fs::remove_all(one);
    } else if (kind == "more in a step") {
        write(one / ("more" + std::to_string(draw(0, 99))), "x");
    } else if (kind == "a folder in a step") {
        const Path folder = one / ("folder" + std::to_string(draw(0, 99)));
        if (!fs::create_directory(folder)) return false;
        write(folder / "thesis", foreign);
    } else if (kind == "a mark") {
        write(one / "suspect.txt", "the loss of the step after it is inf");
    } else {
        return false;
    }
    return true;
}

bool Damage::stray(const std::string& kind) {
    const Path name = free_name();
    if (kind == "a stray file") {
        write(name, foreign);
    } else if (kind == "a stray folder" || kind == "a stray partial") {
        const Path folder = kind == "a stray folder" ? name : Path(name.string() + ".partial");
        if (!fs::create_directory(folder)) return false;
        draw(0, 2) == 0 ? write(folder / ".orrery-checkpoint", "") : write(folder / "thesis", foreign);
    } else if (kind == "a stray link") {
        const std::vector<Path> all = folders();
        fs::create_symlink(all.empty() || draw(0, 2) == 0 ? Path("nowhere") : any(all).filename(), name);
    } else {
        return false;
    }
    return true;
}

bool Damage::signed_anew(const std::string& kind) {
    std::vector<Path> good;
    for (const Path& folder : folders()) {
        const Path manifest = folder / "manifest.json";
        if (Json::accept(contents(manifest))) good.push_back(manifest);
    }
    if (good.empty()) return false;
    const Path manifest = any(good);
    if (!parse_json(contents(manifest), {}).is_object()) return false;
    if (kind == "a signed other step") {
        sign(manifest, [&](Json& json) { json["step"] = draw(0, 60); });
    } else if (kind == "a signed other place" && parse_json(contents(manifest), {}).contains("indexes")) {
        const Json root = parse_json(contents(manifest), {});
        const Json index = root["indexes"].is_array() && !root["indexes"].empty() ? any(root["indexes"]) : Json();
        if (!index.is_array() || index.size() != 3 || !index[0].is_number_integer()) return false;
        const auto rank = index[0].get<int64_t>();
        if (rank < 0 || !fs::exists(manifest.parent_path() / ("rank-0000" + std::to_string(rank) + ".index.json")))
            return false;
        const std::string text =
            contents(manifest.parent_path() / ("rank-0000" + std::to_string(rank) + ".index.json"));
        if (!Json::accept(text)) return false;  // damaged before
        const Json before = Json::parse(text);
        if (!before.is_object() || !before.contains("shards") || before["shards"].empty()) return false;
        sign_index(manifest, rank, [&](Json& json) {
            Json& shards = json["shards"];
            Json& begin = shards[static_cast<size_t>(draw(0, static_cast<int64_t>(shards.size()) - 1))][2];
            begin = std::max<int64_t>(0, begin.get<int64_t>() + 4 * draw(-4, 4));
        });
    } else if (kind == "a signed mutation") {
        sign(manifest, [&](Json& json) { mutate(json); });
    } else {
        return false;
    }
    return true;
}

/// Changes one value anywhere, but not what the host says: of that nothing else tells.
void Damage::mutate(Json& json) {
    Json* at = &json;
    while ((at->is_object() || at->is_array()) && !at->empty() && (at == &json || draw(0, 9) > 0)) {
        auto next = at->begin();
        std::advance(next, draw(0, static_cast<int64_t>(at->size()) - 1));
        if (at == &json && next.key() == "host") continue;
        at = &*next;
    }
    const Json numbers{0, 1, -1, 4, 64, 4096, 2.5, 1e300, int64_t{1} << 40, INT64_MAX, UINT64_MAX};
    const Json others{nullptr, true, "", "f32", "é", Json::array(), Json::object(), Json::array({1, 2})};
    if (at->is_number_integer() && draw(0, 1) == 0)
        *at = at->get<int64_t>() + draw(-2, 2);
    else if (at->is_array() && !at->empty() && draw(0, 1) == 0)
        draw(0, 1) == 0 ? at->push_back(any(*at)) : at->erase(at->size() - 1);
    else
        *at = draw(0, 1) == 0 ? any(numbers) : any(others);
}

}  // namespace orrery
