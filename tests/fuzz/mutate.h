#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::fuzz {

/// Changes of seeds, the same for the same number: bits, bytes, pieces that go, come twice or come from another seed,
/// and numbers in decimal that become those at the ends of types.
class Mutator {
public:
    explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

    /// The seeds themselves first.
    std::string input(uint64_t number) const;

private:
    std::vector<std::string> seeds_;
};

}  // namespace orrery::fuzz
