#!/usr/bin/env python3
"""Compares `orrery bench` with Open MPI or plain Gloo: interleaved rounds, medians.

    bench/collectives/compare.py mpi  [--collective all_reduce] [--rounds 5] [-b 1024] [-e 268435456] [-f 4] [-n 0]
    bench/collectives/compare.py gloo ...

Needs the built tree (build/orrery) and, for the peer, mpicxx and mpirun or libgloo-dev. Prints a table in Markdown.
"""
import argparse
import os
import statistics
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))


def build_peer(peer, folder):
    program = os.path.join(folder, f"peer_{peer}")
    source = os.path.join(here, f"peer_{peer}.cpp")
    compiler = ["mpicxx"] if peer == "mpi" else ["g++", "-std=c++17"]
    libraries = [] if peer == "mpi" else ["-lgloo", "-lpthread"]
    subprocess.run([*compiler, "-O2", source, "-o", program, *libraries], check=True)
    return program


def run_peer(peer, program, arguments):
    start = ["mpirun", "--allow-run-as-root", "-n", "2"] if peer == "mpi" else []
    sizes = [str(arguments.b), str(arguments.e), str(arguments.f), str(arguments.n)]
    out = subprocess.run([*start, program, arguments.collective, *sizes], check=True, capture_output=True, text=True)
    return {int(line.split()[0]): [float(x) for x in line.split()[1:3]] for line in out.stdout.splitlines()}


def run_orrery(arguments, transport):
    command = [arguments.orrery, "bench", arguments.collective, "-b", str(arguments.b), "-e", str(arguments.e),
               "-f", str(arguments.f), "--transport", transport, "--ranks", "2", "-c", "0", "-n", str(arguments.n)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines() if line and not line.startswith("#")]
    return {int(row[0]): [float(row[5]), float(row[9])] for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["mpi", "gloo"])
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-b", type=int, default=1024)
    parser.add_argument("-e", type=int, default=256 << 20)
    parser.add_argument("-f", type=int, default=4)
    parser.add_argument("-n", type=int, default=0, help="iterations, 0 chooses by size")
    parser.add_argument("--transport", help="ours: shm against mpi and gloo against gloo unless told otherwise")
    parser.add_argument("--orrery", default=os.path.join(here, "../../build/orrery"))
    arguments = parser.parse_args()
    transport = arguments.transport or ("shm" if arguments.peer == "mpi" else "gloo")
    program = build_peer(arguments.peer, os.path.dirname(os.path.abspath(arguments.orrery)))
    ours, theirs = {}, {}
    for round_number in range(arguments.rounds):
        for times, result in ((ours, run_orrery(arguments, transport)),
                              (theirs, run_peer(arguments.peer, program, arguments))):
            for size, us in result.items():
                times.setdefault(size, []).append(us)
        print(f"round {round_number + 1} of {arguments.rounds}", file=sys.stderr)
    name = "Open MPI" if arguments.peer == "mpi" else "plain Gloo"
    print(f"{arguments.collective} of f32 between two processes: {transport} and {name}, medians of {arguments.rounds} "
          "interleaved rounds\n")
    print(f"| bytes | {transport} us | {name} us | ratio | {transport} GB/s | in place us | {name} us | ratio | GB/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in sorted(set(ours) & set(theirs)):
        cells = []
        for column in (0, 1):
            mine = statistics.median(us[column] for us in ours[size])
            peer = statistics.median(us[column] for us in theirs[size])
            cells += [f"{mine:.2f}", f"{peer:.2f}", f"{peer / mine:.2f}", f"{size / mine / 1e3:.2f}"]
        print(f"| {size} | " + " | ".join(cells) + " |")


main()
