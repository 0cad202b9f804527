#include "cli/scale/scale_flags.h"

#include "cli/flag_checks.h"

namespace orrery {

void add_scale_flags(CLI::App& scale, ScaleCommand& command) {
    scale.add_option("--ranks", command.ranks, "sizes, ascending, as 1,2,4,8");
    scale.add_option("--axis", command.axis, "axis of the mesh that grows; the others stay");
    scale.add_flag("--strong", command.strong, "the same batch at every size; else it grows with the ranks");
    scale.add_option("--steps", command.steps, "of each run; the first quarter is not counted");
    scale.add_option("--rounds", command.rounds, "runs of each size, in turn; the one in the middle counts")
        ->check(CLI::Range(1, 99));
    scale.add_option("--target", command.target, "efficiency that is wanted of the last size");
    scale.add_option("-o,--out", command.out, "write a picture, too: FILE.svg")->check(file_name());
    scale.add_option("--limit", command.limit_s, "seconds that one run may take")->check(CLI::Range(1, 1 << 20));
    CLI::Option* const simulate =
        scale.add_flag("--simulate", command.simulate, "predict each size; nothing runs, unless --measure asks for it");
    scale.add_flag("--measure", command.measure, "with --simulate: run the sizes, too, and print both")
        ->needs(simulate);
    CLI::Option* const cluster =
        scale.add_option("--cluster", command.how.cluster, "with --simulate: on this cluster; see configs/clusters/")
            ->check(file_name())
            ->needs(simulate);
    scale.add_option("--cluster-nodes", command.how.cluster_nodes, "so many nodes, instead of what the file says")
        ->check(whole_number_from(1, 1'000'000))
        ->needs(cluster);
    scale
        .add_option("--table", command.how.tables,
                    "with --simulate: measured costs of this machine, as calibrate or a run writes; may repeat")
        ->allow_extra_args(false)
        ->check(file_name())
        ->needs(simulate)
        ->excludes(cluster);
    scale.footer(
        "Ends with 0 when the last size reaches the target, 1 when it does not, 2 for a mistake of the command.\n"
        "Examples:\n"
        "  orrery scale scripts/gpt.lua --config configs/two_ranks.toml --ranks 1,2\n"
        "  orrery scale scripts/gpt.lua --config configs/two_ranks.toml --ranks 1,2,4 --strong -o scale.svg\n"
        "  orrery scale scripts/gpt.lua --config configs/two_ranks.toml --ranks 1,2,4 --simulate --table here.json\n"
        "  orrery scale my.lua --config mine.toml --ranks 8,64,512 --simulate --cluster configs/clusters/h100.toml");
}

}  // namespace orrery
