// Hostfiles of the engine ssh.
#include "../../plugins/engine/ssh/hostfile.h"

#include <algorithm>
#include <set>

#include "target.h"

namespace orrery::fuzz {
namespace {

/// What a shell, ssh or another hostfile would take for something else.
constexpr std::string_view never = " \t\r\n'\"\\$`;&|<>(){}*?~!#=,/[]";

void run(std::string_view input) {
    std::vector<Host> hosts;
    try {
        hosts = parse_hostfile(input, "hosts.txt");
    } catch (const Error& error) {
        require(std::string_view(error.what()).starts_with("hosts.txt:"), "a refusal names the file");
        return;
    }
    require(!hosts.empty(), "there is a host");
    std::set<std::string> machines;
    std::string written;
    for (const Host& host : hosts) {
        require(host.name.find_first_of(never) == std::string::npos, "a host is one harmless word");
        require(!host.name.empty() && host.name.front() != '-', "a host is not an option");
        const std::string machine = host.name.substr(host.name.find('@') + 1);
        require(!machine.empty() && machine.front() != '-', "a host is not an option to ssh");
        require(machines.insert(machine).second, "a host comes once");
        require(host.slots == -1 || (host.slots >= 1 && host.slots <= 1'000'000), "slots are in bounds");
        written += host.name + (host.slots < 0 ? "" : " slots=" + std::to_string(host.slots)) + "\n";
    }
    const auto again = promised("what is written reads back", [&] { return parse_hostfile(written, "written"); });
    require(again.size() == hosts.size(), "every host reads back");
    for (size_t i = 0; i < hosts.size(); ++i)
        require(again[i].name == hosts[i].name && again[i].slots == hosts[i].slots, "a host reads back as it was");
}

std::vector<std::string> seeds() {
    return {"n1 slots=4\nn2 slots=4\n",
            "n1\nn1\nn1\nn2\nn2\nn2\n",
            "# two desks\nanna@desk1 slots=1   # under the window\r\n\r\n\tdesk2.example.org slots=2\n",
            "fd00::1 slots=8\n[fd00::2] slots=8\nanna@fe80::1%eth0\n",
            "10.0.0.1 slots=1000000\n10.0.0.1 slots=1000000\n",
            "n1:4\n",
            "n1 solts=4\n",
            "n1 slots=0\n",
            "n1 slots=9223372036854775808\n",
            "-oProxyCommand=x slots=1\n",
            "anna@-n1\n",
            "bob@n1\nanna@n1\n",
            "n1 slots=1 max_slots=2\n",
            "\n#\n",
            "$(n1)\n",
            "n_1-2.a\n"};
}

std::vector<std::string> words() {
    return {"slots=", "slots", " ", "\t", "\n", "\r\n", "#", "@", ":", "::", "[", "]", "%", "n1", "-", "anna@"};
}

}  // namespace

Target hostfile_target() { return {"hostfile", run, seeds, words}; }

}  // namespace orrery::fuzz
