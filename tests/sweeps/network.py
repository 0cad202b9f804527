"""What a network does to the rendezvous of two ranks: network.py ORRERY [--part N/M]

Rank 1 meets rank 0's store through relay.py. Each row of the table says which harm comes when, in which direction, and
how the run must end, within its bound: all ranks well, with the losses of the undisturbed run to the last digit, or all
with a reason that is told. Exit code 1 with the first row that is not so.
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

from relay import Relay

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, '..', '..', 'scripts', 'gpt.lua')
# A hello of 176 bytes is answered by a welcome; then come the settings, the plan's, and with each step nothing but heartbeats.
PLACES = {'hello': 0, 'first frame': 180, 'meeting': 700, 'running': 3000}
WELL, LOST = 'well', 'lost'


def table():
    rows = [('none', 'up', 0, 'throughout', WELL), ('delay', 'up', 0, 'throughout', WELL),
            ('slow', 'up', 0, 'throughout', WELL)]
    for place, after in PLACES.items():
        for harm in ('cut', 'reset', 'half_open', 'drop', 'flip', 'duplicate', 'reorder'):
            for direction in ('up', 'down'):
                # Who has not proved itself comes again, but for a proof that is wrong: nobody can tell a flipped bit
                # from another job's token. A link that had joined is a lost rank.
                ends = WELL if place == 'hello' and harm != 'flip' else LOST
                rows.append((harm, direction, after, place, ends))
    return rows


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as taken:
        return taken.getsockname()[1]


def start(orrery, rank, port, folder, steps):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE='2', LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE='2',
               MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), ORRERY_TOKEN='a-secret-of-this-test')
    sets = ['run.folder=run', 'run.seed=5', 'mesh.dp=2', 'data.path=text.txt', 'data.tokens_per_sequence=32',
            'train.sequences_per_step=4', f'train.steps={steps}', 'checkpoint.every_steps=0', 'script.layers=1',
            'script.embed=48', 'script.heads=3', 'run.join_timeout_s=8', 'run.timeout_s=10']
    words = [orrery, 'run', SCRIPT] + [word for one in sets for word in ('--set', one)]
    return subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def losses(folder):
    with open(os.path.join(folder, 'run', 'metrics.jsonl')) as lines:
        return [(m['step'], m['loss']) for m in map(json.loads, lines) if 'loss' in m]


def one(orrery, row, bound=45):
    harm, direction, after, place, ends = row
    steps = 400 if ends == WELL else 1_000_000  # what is to be lost must not be over before
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'text.txt'), 'w') as text:
            text.writelines(f'{i % 37} plus {i % 11} makes {i % 37 + i % 11} and so it is written\n' for i in range(1500))
        port = free_port()
        relay = Relay(port, harm, after, direction)
        began = time.monotonic()
        ranks = [start(orrery, 0, port, folder, steps), start(orrery, 1, relay.port, folder, steps)]
        said, late = [], False
        for rank in ranks:
            try:
                said.append(rank.communicate(timeout=max(1, bound - (time.monotonic() - began)))[0])
            except subprocess.TimeoutExpired:
                late = True
                rank.kill()
                said.append(rank.communicate()[0])
        took = time.monotonic() - began
        codes = [rank.returncode for rank in ranks]
        problem = ''
        if late:
            problem = f'not ended within {bound} s'
        elif not relay.struck:
            problem = 'nothing was harmed: the run was over before'
        elif ends == WELL:
            problem = '' if codes == [0, 0] else f'exit codes {codes}, expected 0'
        elif 0 in codes or any(code < 0 for code in codes):
            problem = f'exit codes {codes}, expected that both fail'
        elif not all(re.search(r'rank|rendezvous', text) for text in said):
            problem = 'it does not say who'
        found = losses(folder) if not problem and ends == WELL else None
        if problem:
            for rank, text in enumerate(said):
                sys.stderr.write(f'--- rank {rank}\n' + '\n'.join(text.splitlines()[-12:]) + '\n')
            sys.stderr.write(f'{row}: {problem}\n')
            sys.exit(1)
        words = next((line for line in said[0].splitlines()[::-1] if 'error' in line or 'rank 1' in line), '')
        return took, codes, found, words.strip()


def main():
    orrery = os.path.abspath(sys.argv[1])
    rows = table()
    if len(sys.argv) > 3:
        part, parts = map(int, sys.argv[3].split('/'))
        rows = rows[part % parts::parts]
    undisturbed = None
    print('| harm | direction | when | ends | codes | seconds |\n|---|---|---|---|---|---|')
    for row in rows:
        took, codes, found, _ = one(orrery, row)
        if found is not None:
            undisturbed = undisturbed or found
            if found != undisturbed:
                sys.exit(f'{row}: other losses than those of the undisturbed run')
        print(f'| {row[0]} | {row[1]} | {row[3]} | {row[4]} | {codes[0]} {codes[1]} | {took:.1f} |', flush=True)
    print(f'{len(rows)} networks: each run ended as the table says')


main()
