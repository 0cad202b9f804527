// Messages of gradients on transports that queue: they hold up nothing of the last micro-batch.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "orrery/p2p.h"
#include "plan/access.h"
#include "trial.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

struct Asked {
    int zero = 1;
    bool sequence = true;
    int64_t micros = 4;
};

test::Lowered lowered(const Asked& asked, bool queued) {
    const auto made = experiment("tests/equivalence/models.lua",
                                 fmt::format("[mesh]\ndp = 2\ntp = 2\n[train]\nsteps = 3\nsequences_per_step = 8\n"
                                             "microbatches = {}\n[data]\npath = \"none\"\ntokens_per_sequence = 128\n"
                                             "[script]\nmodel = \"llama\"\nlayers = 6\nzero = {}\nsequence = {}\n",
                                             asked.micros, asked.zero, asked.sequence));
    CompileOptions options;
    for (const Axis& axis : made->mesh.axes())
        if (queued) options.contracts[axis.name] = accelerator_contract();
    return test::compile(made->train(), made->mesh, options);
}

/// Of the part of a stream from its first to its last instruction of a micro-batch.
struct Beside {
    int gradients = 0;  ///< collectives of gradients there
    int held_up = 0;    ///< instructions of micro-batches that wait for one
    int chained = 0;    ///< collectives of gradients there that wait for one over another axis
};

Beside beside(const RankClass& c) {
    const auto in_loop = [](const Instruction& i) { return i.fragment.micro >= 0; };
    const auto first = std::find_if(c.stream.begin(), c.stream.end(), in_loop);
    const auto last = std::find_if(c.stream.rbegin(), c.stream.rend(), in_loop).base();
    const auto once = [&](const Instruction& i) { return is_collective(i.opcode) && !in_loop(i); };
    Beside found;
    for (auto i = first; i != last; ++i) {
        found.gradients += once(*i);
        for (const int wait : i->waits) {
            const Instruction& earlier = c.stream[static_cast<size_t>(wait)];
            if (wait < first - c.stream.begin() || !once(earlier)) continue;
            found.held_up += in_loop(*i);
            found.chained += once(*i) && i->axis != earlier.axis;
        }
    }
    return found;
}

}  // namespace

TEST_CASE("queued messages of gradients hold up neither kernels nor the loop's collectives", "[traffic]") {
    for (const Asked& asked : {Asked{1, true, 4}, Asked{2, true, 4}, Asked{1, false, 4}, Asked{0, true, 4}}) {
        CAPTURE(asked.zero, asked.sequence, asked.micros);
        const test::Lowered queued = lowered(asked, true), plain = lowered(asked, false);
        for (const RankClass& c : queued.plan.classes) {
            const Beside found = beside(c);
            CHECK(found.gradients > 0);
            CHECK(found.held_up == 0);
            CHECK(found.chained == 0);
        }
        CHECK(test::difference(run_drawn(queued, 3, 40).values, run_drawn(plain, 3, 40).values, 0) == "");
    }
}
