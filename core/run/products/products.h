#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orrery/device.h"

namespace orrery {

/// What one kind of a device's products showed when it was tried.
struct TriedProducts {
    std::string name;
    std::string why_not =
        {};                ///< why it is no candidate, as "it was ended by signal 4 (Illegal instruction)"; "": it is
    double rate = 0;       ///< FLOP/s over all shapes that were timed
    double best = 0;       ///< of the fastest of them
    bool for_now = false;  ///< why_not may not hold the next time: the trial was late, ended from elsewhere, ...

    bool operator==(const TriedProducts&) const = default;
};

/// Tries a kind with operands of a type, in a process of its own, and compares its results with exact ones. `timed`:
/// tells rates, too. Throws nothing: what goes wrong is why_not.
using ProductTrial = std::function<TriedProducts(const std::string& name, DType dtype, bool timed)>;

/// How the kinds are measured, and where what was found is kept.
struct ProductSearch {
    ProductTrial trial;
    std::string folder;  ///< of the user's cache; "": nothing is kept
};

/// What a run's products are, and why.
struct ProductChoice {
    std::string name;                 ///< "": no device of the run has a choice
    std::string fixed_by;             ///< as ProductKinds; "": measured, or the default where nothing is
    std::vector<std::string> common;  ///< kinds that all ranks have, the default first
    double best_flops = 0;            ///< of one rank, the best that was found, of any kind; 0: nothing was measured
    std::vector<std::string> said;    ///< lines for the beginning of a run
};

/// Who chooses with whom.
struct ProductRank {
    int64_t rank = 0;
    std::string host;  ///< this one's name
    /// Gives everyone's text to everyone, in rank order.
    std::function<std::vector<std::string>(const std::string& topic, const std::string& mine)> exchange;
};

/// How much faster than the default another kind must be to be taken.
inline constexpr double worth_another = 1.05;

/// Chooses the kind of products of a run whose products have operands of `dtype`, and has the device use it. The first
/// rank of each host and machine (ProductKinds::machine) looks in the cache or measures; the others have what it found.
/// Of the kinds that all ranks have, it takes the one that is fastest on the slowest of them, but the default unless
/// another is `worth_another`. `search` nullptr: nothing is measured, and who has fixed nothing has the default. Throws
/// Error with the ranks' kinds when there is none that all have. Collective: one round, and another where ranks
/// measure.
ProductChoice choose_products(Device& device, DType dtype, const ProductSearch* search, const ProductRank& rank);

/// The choice of a run that goes on from a checkpoint of `step`, made with the kind `saved` ("": it does not say, and
/// the default counts as its): that one again if nobody has fixed another and all ranks have it; else a line in `said`
/// says that bits will differ.
void resume_products(ProductChoice& choice, const std::string& saved, int64_t step);

}  // namespace orrery
