#include "folders.h"

// An empty path gives the folder itself, without a slash at its end.
std::string in_source(const std::string& path) {
    return path.empty() ? ORRERY_SOURCE : std::string(ORRERY_SOURCE "/") + path;
}

std::string in_build(const std::string& path) {
    return path.empty() ? ORRERY_BUILD : std::string(ORRERY_BUILD "/") + path;
}
