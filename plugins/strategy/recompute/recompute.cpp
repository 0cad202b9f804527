// Recomputation (Chen et al. 2016): the backward pass recomputes forward values instead of storing them: those of each
// numbered block (h.0, h.1, ...), of some of these, or of given scopes; of all ops, or of some kinds.
#include <algorithm>
#include <string>

#include "orrery/plugin.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

/// "h.3.attn" -> "h.3"; "" when no part is a number.
std::string block_of(const std::string& scope) {
    for (size_t start = 0; start <= scope.size();) {
        const size_t end = std::min(scope.find('.', start), scope.size());
        const auto digit = [](char c) { return c >= '0' && c <= '9'; };
        if (end > start && std::all_of(scope.begin() + static_cast<std::ptrdiff_t>(start),
                                       scope.begin() + static_cast<std::ptrdiff_t>(end), digit))
            return scope.substr(0, end);
        start = end + 1;
    }
    return "";
}

class Recompute : public Strategy {
public:
    Recompute(Config& options, Origin origin)
        : scopes_(options.texts("scopes")),
          kinds_(options.texts("kinds")),
          layers_(options.integer("layers", 0)),
          origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "recompute";
    }

    void annotate(Program& program, const Mesh&) override {
        std::vector<std::string> scopes = scopes_;
        if (scopes.empty()) scopes = blocks(program, kinds_);
        if (scopes.empty()) scopes = blocks(program, {});  // the pass names the kinds that no block has
        if (scopes.empty())
            throw Error(origin_,
                        "strategy recompute: the program has no numbered block (a scope such as h.0)\n  name what to "
                        "recompute in `scopes`");
        const auto all = static_cast<int64_t>(scopes.size());
        if (layers_ < 0 || layers_ > all)
            throw Error(origin_, "strategy recompute: layers = " + std::to_string(layers_) + ", but there are " +
                                     std::to_string(all) + " scopes to recompute\n  set layers from 1 to " +
                                     std::to_string(all) + ", or 0 for all");
        for (int64_t i = 0; i < all; ++i)  // evenly spread, so that each pipeline stage recomputes its share
            if (layers_ == 0 || i * layers_ % all < layers_)
                program.recompute(scopes[static_cast<size_t>(i)], origin_, kinds_);
    }

private:
    /// The numbered blocks with a forward op of some kinds; of any kind, if `kinds` is empty.
    static std::vector<std::string> blocks(const Program& program, const std::vector<std::string>& kinds) {
        std::vector<std::string> found;
        for (const Op& op : program.ops) {
            const std::string block = block_of(op.scope);
            if (op.phase != Phase::forward || block.empty()) continue;
            if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), op.kind) == kinds.end()) continue;
            if (std::find(found.begin(), found.end(), block) == found.end()) found.push_back(block);
        }
        return found;
    }

    std::vector<std::string> scopes_;
    std::vector<std::string> kinds_;
    int64_t layers_;  ///< number of scopes to recompute; 0: all
    Origin origin_;
};

void add(Registry& registry) {
    registry.add_strategy("recompute", [](Config& options, const Origin& origin) {
        return std::make_unique<Recompute>(options, origin);
    });
}

}  // namespace

}  // namespace orrery

ORRERY_PLUGIN("strategy.recompute", "0.1", orrery::add);
