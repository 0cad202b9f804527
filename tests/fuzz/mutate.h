#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "target.h"

namespace orrery::fuzz {

/// Changes of seeds, the same for the same number: bits, bytes, words of the target, pieces that go, come twice or come
/// from another seed, and numbers in decimal that become those at the ends of types.
class Mutator {
public:
    explicit Mutator(const Target& target) : seeds_(target.seeds()), words_(target.words()) {}

    /// The seeds themselves first.
    std::string input(uint64_t number) const;
    /// One change.
    void change(std::string& text, std::mt19937_64& random) const;
    size_t seeds() const { return seeds_.size(); }

private:
    std::vector<std::string> seeds_, words_;
};

}  // namespace orrery::fuzz
