#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "kernels/cuda/blas_plan.h"

namespace orrery::kernels::cuda {

namespace {

/// Choices of the process rather than of a device: replicas on two GPUs must add in the same order, with a file or
/// without one.
struct Choices {
    std::mutex lock;
    std::map<std::string, BlasChoice> made;
};

Choices& choices() {
    static Choices all;
    return all;
}

}  // namespace

BlasCache::BlasCache(const Context& context) {
    if (!context.cache().empty()) file_ = (context.cache() / "cublaslt.txt").string();
    prefix_ = context.chip().name + ", cublasLt " + std::to_string(cublasLtGetVersion()) +
              (context.deterministic ? "" : ", any order") + ": ";
}

bool BlasCache::find(const std::string& key, BlasChoice& choice) const {
    Choices& all = choices();
    const std::lock_guard<std::mutex> locked(all.lock);
    const auto at = all.made.find(prefix_ + key);
    if (at != all.made.end()) {
        choice = at->second;
        return true;
    }
    if (!read(key, choice)) return false;
    all.made.emplace(prefix_ + key, choice);
    return true;
}

BlasChoice BlasCache::add(const std::string& key, const BlasChoice& choice, bool measured) const {
    Choices& all = choices();
    const std::lock_guard<std::mutex> locked(all.lock);
    const auto [at, fresh] = all.made.emplace(prefix_ + key, choice);
    if (fresh) {
        if (measured) write(key, choice);
        read(key, at->second);  // the first line of a product counts, which may be another rank's
    }
    return at->second;
}

bool BlasCache::read(const std::string& key, BlasChoice& choice) const {
    if (file_.empty()) return false;
    std::ifstream in(file_);
    const std::string wanted = prefix_ + key + " = ";
    for (std::string line; std::getline(in, line);) {
        if (line.rfind(wanted, 0) != 0) continue;
        std::istringstream words(line.substr(wanted.size()));
        BlasChoice read;
        words >> read.workspace >> std::hex;
        for (auto& word : read.algorithm.data) words >> word;
        if (!words) continue;
        choice = read;
        return true;
    }
    return false;
}

void BlasCache::write(const std::string& key, const BlasChoice& choice) const {
    if (file_.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), ignored);
    std::ostringstream line;
    line << prefix_ << key << " = " << choice.workspace << std::hex;
    for (const auto word : choice.algorithm.data) line << ' ' << word;
    line << '\n';
    std::ofstream out(file_, std::ios::app);
    out << line.str() << std::flush;  // one write: lines of several ranks do not mix
}

}  // namespace orrery::kernels::cuda
