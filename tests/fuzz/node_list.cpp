// Lists of hosts and of tasks that Slurm gives its tasks: plugins/launcher/slurm.
#include "../../plugins/launcher/slurm/node_list.h"

#include <algorithm>

#include "target.h"

namespace orrery::fuzz {
namespace {

void run(std::string_view input) {
    const slurm::NodeList list = slurm::node_list(input);
    if (list.problem.empty()) {
        require(list.hosts > 0 && list.hosts <= 1'000'000, "a list has hosts");
        require(!list.first.empty() && list.first.find_first_of("[],\n ") == std::string::npos, "the first is a host");
        const slurm::NodeList first = slurm::node_list(list.first);
        require(first.hosts == 1 && first.first == list.first, "a host is a list of one");
        const slurm::NodeList twice = slurm::node_list(std::string(input) + "," + std::string(input));
        require(twice.problem.empty() ? twice.hosts == 2 * list.hosts && twice.first == list.first
                                      : 2 * list.hosts > 1'000'000,
                "a list twice has twice the hosts");
    } else {
        require(list.first.empty() && list.hosts == 0, "what is no list has no hosts");
    }
    for (const int64_t node : {0, 1, 1'000'000}) require(slurm::tasks_on(input, node) >= 0, "a number of tasks");
}

std::vector<std::string> seeds() {
    return {"n1",
            "n[003-005,9],login",
            "r[1-2]n[007-009]-ib,login[0]x[1-2]y",
            "gpu-a.cluster,gpu-b.cluster",
            "n[0-999999]",
            "n[0-999]m[0-999]",
            "n[9223372036854775807]",
            "n[5-3]",
            "n[",
            "[1-2]",
            "n]",
            "n[1,]",
            "n[1-2,",
            ",n1",
            "n1,",
            "4(x2),3",
            "1(x9223372036854775807),2",
            "4(x2"};
}

std::vector<std::string> words() { return {"[", "]", ",", "-", "(x", ")", "n", "00", "1", "9", "999999", "]["}; }

}  // namespace

Target node_list_target() { return {"node_list", run, seeds, words}; }

}  // namespace orrery::fuzz
