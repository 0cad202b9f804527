#pragma once
#include <string>

/// A path below the source folder, and one below the build folder. Only folders.cpp knows where they are, so that every
/// other object is the same in every checkout and the compiler cache serves it.
std::string in_source(const std::string& path);
std::string in_build(const std::string& path);
