"""Two hosts of shaped_hosts.sh: the rate of their links, and jobs with a rank on each."""
import os
import subprocess
import sys

from timed_runs import flags

# Bytes of the largest packet, and of tbf's burst: what is larger than the burst is cut once more, which takes the
# processors, and what the burst holds passes unshaped, which is much of a small message.
LARGE, SMALL = (32768, "36kb"), (4096, "5kb")


class Hosts:
    def __init__(self, program, script, switch, hosts):
        self.program, self.script, self.switch, self.hosts = program, script, switch, hosts
        self.processors = sorted(os.sched_getaffinity(0))

    def shape(self, mbit, of_large=False):
        """Shapes each direction of each link. of_large: messages are much larger than a burst."""
        largest, burst = LARGE if of_large or mbit > 300 else SMALL
        for i, host in enumerate(self.hosts):
            for namespace, device in ((self.switch, f"veth-{i}"), (host, "veth-h")):
                subprocess.run(["ip", "-n", namespace, "link", "set", device, "gso_max_size", str(largest)],
                               check=True)
                subprocess.run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                                f"{mbit:g}mbit", "burst", burst, "limit", "4mb"], check=True)

    def together(self, commands, said_of):
        """A command a host, each with a processor of its own as far as there are some. What they said."""
        there = self.processors
        ranks = [subprocess.Popen(["ip", "netns", "exec", host, "taskset", "-c", str(there[i % len(there)]), *command],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for i, (host, command) in enumerate(zip(self.hosts, commands))]
        said = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit(f"{said_of}\n" + "\n".join(text[-2000:] for text in said))
        return said

    def run(self, sets, folder):
        """A job with a rank on each host."""
        own = {"transport.gloo.interface": "veth-h"} if sets["run.transport"] == "gloo" else {
            "transport.ucx.devices": "veth-h"}
        command = [self.program, "run", self.script, *flags({**sets, **own, "run.folder": folder}), "--nodes",
                   str(len(self.hosts)), "--rendezvous", "10.79.0.1:29879", "--node-rank"]
        self.together([[*command, str(i)] for i in range(len(self.hosts))], folder)
