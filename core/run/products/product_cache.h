#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "run/products/products.h"

namespace orrery {

/// What was measured of products, in a folder of the user's: a file for each machine and type. Whoever reads one finds
/// it whole, also while others write.
class ProductCache {
public:
    /// `folder` "": it holds nothing and keeps nothing.
    ProductCache(Env& env, std::string folder) : env_(env), folder_(std::move(folder)) {}

    /// nullopt when there is nothing, or what is there cannot be used: `notes` says then which file, and why.
    std::optional<std::vector<TriedProducts>> find(const ProductKinds& kinds, DType dtype,
                                                   std::vector<std::string>& notes) const;
    /// A file that cannot be written is said in `notes`.
    void keep(const ProductKinds& kinds, DType dtype, const std::vector<TriedProducts>& tried,
              std::vector<std::string>& notes) const;
    std::string path(const ProductKinds& kinds, DType dtype) const;

private:
    Env& env_;
    std::string folder_;
};

/// "orrery" in $XDG_CACHE_HOME, or in ~/.cache; "" where there is neither. A relative $XDG_CACHE_HOME does not count,
/// as the XDG Base Directory Specification asks.
std::string cache_folder();

/// As JSON and back. Throws Error with what is wrong with it.
std::string text_of(const std::vector<TriedProducts>& tried);
std::vector<TriedProducts> parse_tried(std::string_view text);

}  // namespace orrery
