#!/usr/bin/env python3
"""What runs tell of their steps, read by other programs: TensorBoard, promtool, node_exporter.

    scripts/conformance/metrics.py [--kills 50] [--seed 1] [--promtool FILE] [--node-exporter FILE] [--keep FOLDER]

A run on two ranks is killed at random moments and started again, once with a record cut, once from an older checkpoint.
After each kill TensorBoard's EventAccumulator, and at last its server with both loaders, must hold each number of
metrics.jsonl exactly once, equal in f32, and nothing else. promtool finds nothing to say of Prometheus' file,
node_exporter serves it, and who reads it in a loop never sees half of it. Prints a table; exit code 1: it differs.
Needs the package tensorboard, build/orrery and build/bench/bench_metrics; promtool and node_exporter where they are.
"""
import argparse
import importlib.metadata
import json
import logging
import math
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "tests/jobs"))
import events  # noqa: E402  what metrics.jsonl tells, by tag and step

logging.disable(logging.WARNING)  # what it purges

rows = []


def row(what, said, good):
    rows.append((what, said, good))
    print(f"{what}: {said}: {'ok' if good else 'WRONG'}", flush=True)


def command(asked, steps):
    return [str(root / "build/orrery"), "run", str(root / "scripts/gpt.lua"), "--set", "run.folder=run",
            "--set", "mesh.dp=2", "--set", "data.path=text.txt", "--set", "data.tokens_per_sequence=32",
            "--set", "data.validation=0.1", "--set", "train.sequences_per_step=8", "--set", f"train.steps={steps}",
            "--set", "train.evaluate_every=7", "--set", "train.evaluate_batches=1", "--set",
            "checkpoint.every_steps=3", "--set", "script.layers=2", "--set", "script.embed=192", "--set",
            "script.heads=3", "--set", "metrics.prometheus=prometheus/run.prom"]


def differing(told, found):
    """Pairs of tag and step that are not there once on both sides, or differ."""
    pairs = {(tag, step) for side in (told, found) for tag, steps in side.items() for step in steps}
    wrong = [pair for pair in sorted(pairs)
             if not events.same(told.get(pair[0], {}).get(pair[1], []), found.get(pair[0], {}).get(pair[1], []))]
    return wrong, len(pairs)


def accumulated(folder):
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    found = {}
    for tag in reader.Tags()["scalars"]:
        for one in reader.Scalars(tag):
            found.setdefault(tag, {}).setdefault(one.step, []).append(events.f32(one.value))
    return found


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def get(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def served(folder, fast, told):
    """The scalars answer of TensorBoard's server, once it has loaded all, or what it has after ten minutes."""
    port = free_port()
    program = pathlib.Path(sys.executable).parent / "tensorboard"
    server = subprocess.Popen(
        [str(program), "--logdir", str(folder), "--port", str(port), "--samples_per_plugin",
         "scalars=10000000",  # 0 is to keep all, but the scalars answer of 2.21 is empty then
         f"--load_fast={'true' if fast else 'false'}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    answers = f"http://127.0.0.1:{port}/data/plugin/scalars"
    found = {}
    try:
        began = time.monotonic()
        while time.monotonic() < began + 600:
            time.sleep(2)
            try:
                tags = json.loads(get(f"{answers}/tags"))
            except OSError:
                continue
            found = {}
            for run, names in tags.items():
                for tag in names:
                    asked = urllib.parse.urlencode({"run": run, "tag": tag})
                    for _, step, value in json.loads(get(f"{answers}/scalars?{asked}")):
                        value = math.nan if value is None else events.f32(float(value))
                        found.setdefault(tag, {}).setdefault(step, []).append(value)
            if not differing(told, found)[0]:
                break
    finally:
        server.terminate()
        server.wait()
    return found


class Reader(threading.Thread):
    """Reads Prometheus' file in a loop: each time it must be whole."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.reads, self.half, self.replaced, self.stopped = path, 0, 0, [], False

    def run(self):
        last = None
        while not self.stopped:
            try:
                with open(self.path) as file:
                    text, status = file.read(), os.fstat(file.fileno())
            except FileNotFoundError:
                continue
            if status.st_ino != last:
                self.replaced.append(status.st_mtime_ns / 1e9)  # when it was written, not when it was seen
                last = status.st_ino
            self.reads += 1
            names = set(re.findall(r"^# TYPE (\w+)", text, re.M))
            whole = text.endswith("\n") and all(re.search(rf"^{name}{{.*}} \S+$", text, re.M) for name in names)
            self.half += not (whole and "orrery_checkpoint_seconds" in names)


def files_of(run):
    return sorted((run / "tensorboard").glob("*tfevents*"))


def wait_for(true):
    while not true():
        time.sleep(0.01)


def kill_often(asked, scratch, draw):
    run = scratch / "run"
    wrong = started = numbers = 0
    cut = older = False
    for kill in range(asked.kills):
        before = len(files_of(run))
        process = subprocess.Popen(command(asked, 1000000), cwd=scratch, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        if draw.random() < 0.8:  # while it trains; else at any moment of its start
            wait_for(lambda: len(files_of(run)) > before or process.poll() is not None)
        time.sleep(draw.uniform(0.0, 0.4))
        os.killpg(process.pid, signal.SIGKILL)  # the launcher and all ranks at one moment
        process.wait()
        started += len(files_of(run)) > before
        if not files_of(run):
            continue
        newest = files_of(run)[-1]
        torn = len(newest.read_bytes()) != sum(16 + len(body) for body in events.records(newest))
        lines = (run / "metrics.jsonl").read_bytes()
        if lines and not lines.endswith(b"\n"):
            (run / "metrics.jsonl").write_bytes(lines[:lines.rfind(b"\n") + 1])  # for who reads it here
        # A kill between the two writes leaves one number more in one of them, which the next start takes back.
        told, found = events.told(run), accumulated(run / "tensorboard")
        last = max((step for steps in told.values() for step in steps), default=0)
        differ = [pair for pair in differing(told, found)[0] if pair[1] < last]
        numbers += differing(told, found)[1]
        wrong += len(differ)
        if differ:
            print(f"kill {kill}: {differ[:3]}")
        if not cut and kill >= asked.kills // 3 and not torn:  # as if it had been killed inside of the next record
            *_, record = events.records(newest)
            data = newest.read_bytes()[-16 - len(record):]
            with newest.open("ab") as file:
                file.write(data[:draw.randint(1, len(data) - 1)])
            cut = True
        if not older and cut and kill >= 2 * asked.kills // 3 and (run / "checkpoints").exists():
            saved = sorted((run / "checkpoints").glob("step-*[0-9]"))
            if len(saved) > 1:
                shutil.rmtree(saved[-1])
                older = True
    row(f"EventAccumulator after each of {asked.kills} kills", f"{numbers} numbers compared, {wrong} differ; "
        f"{started} of the starts had begun to write", wrong == 0 and started > asked.kills // 2)
    row("a record cut, an older checkpoint", f"{'both' if cut and older else 'not both'} happened", cut and older)


def finish(asked, scratch):
    run = scratch / "run"
    saved = sorted((run / "checkpoints").glob("step-*[0-9]"))
    steps = int(saved[-1].name[5:]) + 300 if saved else 300
    reader = Reader(scratch / "prometheus/run.prom")
    reader.start()
    done = subprocess.run(command(asked, steps), cwd=scratch, capture_output=True, text=True)
    reader.stopped = True
    reader.join()
    if done.returncode != 0:
        print(done.stdout[-2000:], done.stderr[-2000:])
    row("the run goes on to its end", f"{steps} steps", done.returncode == 0)
    told = events.told(run)
    good = sorted(told["loss_metrics/global_avg_loss"]) == list(range(1, steps + 1))
    row("metrics.jsonl", f"{len(told)} tags, each step once", good)
    for name, found in (("EventAccumulator", accumulated(run / "tensorboard")),
                        ("own reader (tests/jobs/events.py)", events.scalars(run / "tensorboard")),
                        ("server, load_fast=false", served(run / "tensorboard", False, told)),
                        ("server, load_fast=true", served(run / "tensorboard", True, told))):
        wrong, numbers = differing(told, found)
        row(f"{name} at the end", f"{numbers} numbers in {len(files_of(run))} files, "
            f"{len(wrong)} differ{': ' + str(wrong[:2]) if wrong else ''}", not wrong)
    apart = [b - a for a, b in zip(reader.replaced, reader.replaced[1:])]
    row("Prometheus' file, read in a loop", f"{reader.reads} reads, {reader.half} of half a file; replaced "
        f"{len(reader.replaced)} times, {min(apart, default=math.inf):.2f} s apart at least",
        reader.half == 0 and reader.reads > 0 and min(apart, default=1) > 0.98)


def check_prometheus(asked, scratch):
    path = scratch / "prometheus/run.prom"
    if asked.promtool:
        done = subprocess.run([asked.promtool, "check", "metrics"], stdin=open(path), capture_output=True, text=True)
        row("promtool check metrics", (done.stdout + done.stderr).strip() or "silent",
            done.returncode == 0 and not done.stdout and not done.stderr)
    else:
        row("promtool check metrics", "it is not installed: apt-get install prometheus", False)
    if not asked.node_exporter:
        row("node_exporter serves it", "it is not installed: apt-get install prometheus-node-exporter", False)
    else:
        port = free_port()
        server = subprocess.Popen([asked.node_exporter, "--collector.disable-defaults", "--collector.textfile",
                                   f"--collector.textfile.directory={path.parent}",
                                   f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        try:
            answer = ""
            for _ in range(200):
                time.sleep(0.2)
                try:
                    answer = get(f"http://127.0.0.1:{port}/metrics")
                    break
                except OSError:
                    pass
            said = {line.split("{")[0]: float(line.split()[-1]) for line in answer.splitlines()
                    if line.startswith("orrery_")}
            ours = {line.split("{")[0]: float(line.split()[-1]) for line in path.read_text().splitlines()
                    if line.startswith("orrery_")}
            row("node_exporter serves it", f"{len(said)} of {len(ours)} metrics, equal: {said == ours}",
                said == ours and "node_textfile_scrape_error 0" in answer)
        finally:
            server.terminate()
            server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--promtool", default=shutil.which("promtool"))
    parser.add_argument("--node-exporter", default=shutil.which("prometheus-node-exporter"))
    parser.add_argument("--keep", help="a folder for the run, which stays there")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as made:
        scratch = pathlib.Path(asked.keep or made)
        (scratch / "prometheus").mkdir(parents=True, exist_ok=True)
        text = "".join(f"{i % 37} plus {i % 11} makes {i % 37 + i % 11}\n" for i in range(3000))
        (scratch / "text.txt").write_text(text)
        kill_often(asked, scratch, draw)
        finish(asked, scratch)
        check_prometheus(asked, scratch)
    bench = root / "build/bench/bench_metrics"
    if bench.exists():
        said = subprocess.run([str(bench)], capture_output=True, text=True).stdout.strip()
        medians = [float(m) for m in re.findall(r"median +([0-9.]+) us", said)]
        row("telling a step, median of 10,000", "; ".join(f"{m} us" for m in medians) + " (0 and 64 results)",
            bool(medians) and max(medians) < 50)
    print(f"\nSeed {asked.seed}; tensorboard {importlib.metadata.version('tensorboard')}, data server "
          f"{importlib.metadata.version('tensorboard-data-server')}, Python {sys.version.split()[0]}\n")
    print("| what | said | |\n|---|---|---|")
    for what, said, good in rows:
        print(f"| {what} | {said} | {'ok' if good else 'WRONG'} |")
    return 0 if all(good for _, _, good in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
