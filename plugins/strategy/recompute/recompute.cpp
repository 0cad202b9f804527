// Recomputation (Chen et al. 2016): the backward pass recomputes forward values instead of storing them: those of each
// numbered block (h.0, h.1, ...), or of some scopes; of all ops, or of some kinds.
// scripts/orrery/strategies/recompute.lua gives the same marks.
#include <algorithm>

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
        : scopes_(options.texts("scopes")), kinds_(options.texts("kinds")), origin_(std::move(origin)) {
        if (origin_.who.empty()) origin_.who = "recompute";
    }

    void annotate(Program& program, const Mesh&) override {
        std::vector<std::string> scopes = scopes_;
        for (const Op& op : program.ops) {
            const std::string block = block_of(op.scope);
            if (!scopes_.empty() || op.phase != Phase::forward || block.empty()) continue;
            if (std::find(scopes.begin(), scopes.end(), block) == scopes.end()) scopes.push_back(block);
        }
        if (scopes.empty())
            throw Error(origin_,
                        "strategy recompute: the program has no numbered block (a scope such as h.0)\n  name what to "
                        "recompute in `scopes`");
        for (const std::string& scope : scopes) program.recompute(scope, origin_, kinds_);
    }

private:
    std::vector<std::string> scopes_;
    std::vector<std::string> kinds_;
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
