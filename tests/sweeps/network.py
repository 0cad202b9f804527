"""What a network does to a job of two ranks: network.py ORRERY [REGEX | ci]

Each row of the table says over what (`rendezvous`: rank 1 meets rank 0 through relay.py; `agents`: node 1's launcher
meets node 0's through it; `gloo`: two network namespaces, joined by packets.py), which harm comes, in which direction
and when, how the job must end, within how many seconds, and which words each side must say. REGEX chooses rows by
their names, `ci` a minute of them. Exit code 1 where a row is not so, 77 where no row could be run.
"""
import dataclasses
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

from packets import ADDRESSES, Wire
from relay import Relay

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, '..', '..', 'scripts', 'gpt.lua')
ALONE = '10.88.0.1'  # an address of no other host, that networks.sh gives this network namespace
SLACK = 90           # s, of every bound: to start processes, compile and train a few steps on a busy machine
JOIN, SILENCE, STEP, AGAIN, WAIT = 15, 10, 20, 15, 10  # run.join_timeout_s, run.timeout_s, --wait-node; fixed: 10, 15
FEW, MANY = 60, 1_000_000  # steps: of a run that ends, of one that is to be lost or stopped before it ends
SLOWLY = 8                 # steps of a run whose data goes through a harmed network
JUDGED = 40                # steps whose losses make the digest, or all

# Bytes that go before the harm, to the service and from it: a challenge of 40 down, a hello of 248 up, a welcome of 192
# down; then frames. `order` is an agent's first report and node 0's first order, which are longer than what comes
# before them; `running` strikes when steps were made.
PLACES = {'hello': (0, 0), 'welcome': (None, 40), 'first frame': (248, 232), 'meeting': (772, 520),
          'order': (248, 232), 'running': (0, 0)}
LONG = 100  # bytes
CI = ('^(rendezvous (none|(cut|half_open) down welcome|duplicate up first|drop down meeting|reorder up running)|'
      'agents (none|delay up|flip up first|reset down order|cut up running)|gloo (drop|reset|duplicate))')
STRIKES = ('cut', 'reset', 'half_open', 'drop', 'flip', 'duplicate', 'reorder')
WELL, LOST = 'well', 'lost'


@dataclasses.dataclass
class Row:
    over: str
    harm: str
    direction: str
    when: str
    ends: str
    codes: tuple = (0, 0)
    seconds: int = 0          # what the protocol's own bounds come to
    says: tuple = ('', '')    # of each side
    restarts: tuple = (0, 0)  # at least, at most
    after: int = 0

    def name(self):
        return f'{self.over} {self.harm} {self.direction} {self.when}'

    def stops(self):
        """What ends well and must not be over before it is harmed is stopped by a signal."""
        return self.ends == WELL and self.when in ('order', 'running')

    def steps(self):
        return MANY if self.ends == LOST or self.stops() else SLOWLY if self.over == 'gloo' else FEW


def whole(over):
    """Harms of the whole run, which TCP bears."""
    return [Row(over, harm, way, 'throughout', WELL, seconds=0) for harm, way in
            (('none', 'both'), ('delay', 'up'), ('delay', 'down'), ('delay', 'both'), ('slow', 'up'), ('slow', 'down'),
             ('slow', 'both'))]


def strikes(other):
    for when, offsets in PLACES.items():
        if when == other:
            continue
        for harm in STRIKES:
            for way, after in zip(('up', 'down'), offsets):
                if after is not None:
                    yield harm, way, when, after


RANK_1 = r'rank 1 \(pid \d+ on host [^)]*\) (died|made a protocol error|is silent for)|, as rank 1 sees it'
RANK_0 = r'rank 0, which holds the rendezvous at \S+,|' + RANK_1
ABSENT = '1 of 2 ranks have not joined: 1'


def rendezvous_rows():
    rows = whole('rendezvous')
    for harm, way, when, after in strikes('order'):
        row = Row('rendezvous', harm, way, when, LOST, (1, 1), 0, (RANK_1, RANK_0), after=after)
        if when in ('hello', 'welcome', 'first frame'):
            row.seconds = JOIN
            # A rank that was not admitted yet, or was refused once, connects again.
            if harm not in ('flip', 'duplicate') or (harm, when) == ('flip', 'hello'):
                row = Row('rendezvous', harm, way, when, WELL, seconds=JOIN, after=after)
            elif way == 'down':  # it finds what cannot be of this service, before it is in
                row.says = (ABSENT + '|' + RANK_1,
                            'sent an invalid handshake|does not have the token|protocol error of rank 0')
            else:  # the service finds bytes behind a good proof that are not its member's
                row.seconds, row.says = 0, (RANK_1, RANK_1)
        elif harm == 'half_open':
            row.seconds = SILENCE
            if when == 'meeting':
                row.seconds = JOIN + SILENCE
                row.says = (RANK_1 + '|rank 1 has not reached', RANK_0 + '|rank 0 has not reached')
        rows.append(row)
    rows.append(Row('rendezvous', 'gone', 'both', 'hello', LOST, (1, 1), JOIN,
                    (ABSENT, r'rank 1 cannot reach the rendezvous at \S+ within')))
    rows.append(Row('rendezvous', 'gone', 'both', 'running', LOST, (1, 1), SILENCE, (RANK_1, RANK_0)))
    return rows


def agents_rows():
    rows = whole('agents')
    for harm, way, when, after in strikes('meeting'):
        row = Row('agents', harm, way, when, WELL, seconds=AGAIN + (SILENCE if harm == 'half_open' else 0), after=after)
        if when == 'running':
            row.codes, row.restarts, row.says = (75, 75), (1, 1), ('node 1 is lost', 'rejoins the other nodes')
        if when == 'order':
            row.codes, row.restarts = (75, 75), (0, 2)
        rows.append(row)
    for when, restarts in (('hello', (0, 0)), ('running', (1, 1))):  # one that waits for its node in vain
        rows.append(Row('agents', 'gone', 'both', when, LOST, (75, 75), SILENCE + AGAIN + WAIT,
                        ('the job ends: node 1 is missing', 'node 0 is missing: its launcher did not answer'),
                        restarts))
    return rows


def gloo_rows():
    rows = [Row('gloo', harm, 'both', 'throughout', WELL)
            for harm in ('delay', 'slow', 'reorder', 'duplicate', 'drop', 'flip')]
    # In one collective or in two, as they were when packets were lost.
    stuck = ('(no transport ends it( \([^)]*\))?|ranks wait for each other); '
             'rank [01] has waited for .* rank [01] in class 0')
    # The kernel tells of a reset once, in a read or in a write; what asks after that finds the connection closed.
    ended = '([Rr]eset by peer|closed by peer|Broken pipe)'
    rows += [Row('gloo', 'reset', 'both', 'running', LOST, (1, 1), 0, (f'rank 1: .*{ended}', f'rank 0: .*{ended}')),
             Row('gloo', 'half_open', 'up', 'running', LOST, (1, 1), STEP, (stuck, stuck)),
             Row('gloo', 'black_hole', 'both', 'running', LOST, (1, 1), STEP, (stuck, stuck)),
             Row('gloo', 'cut', 'both', 'running', LOST, (1, 1), SILENCE, (RANK_1, RANK_0))]
    return rows


def free_port(host):
    with socket.create_server((host, 0)) as taken:
        return taken.getsockname()[1]


def read(*path):
    try:
        with open(os.path.join(*path), errors='replace') as file:
            return file.read()
    except FileNotFoundError:
        return ''


def lines_of(*path):
    """Of a file of JSON lines, of which the last may be cut."""
    return [json.loads(line) for line in read(*path).splitlines(keepends=True) if line.endswith('\n')]


def losses(folder):
    return [(m['step'], m['loss']) for m in lines_of(folder, 'run', 'metrics.jsonl') if 'loss' in m]


def digest(folder, steps):
    judged = min(steps, JUDGED)
    found = losses(folder)[:judged]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:8] if len(found) == judged else f'{len(found)} steps'


class Job:
    """Two sides of a row, in a folder of their own."""

    def __init__(self, orrery, row, folder):
        self.orrery, self.row, self.folder, self.sides, self.wire = orrery, row, folder, [], None
        self.stopped = False
        with open(os.path.join(folder, 'text.txt'), 'w') as text:
            text.writelines(f'{i % 37} plus {i % 11} makes {i % 37 + i % 11} and so it is written\n'
                            for i in range(1500))
        getattr(self, row.over)()

    def start(self, words, before=(), sets=(), **variables):
        settings = ['run.folder=run', 'run.seed=5', 'mesh.dp=2', 'data.path=text.txt', 'data.tokens_per_sequence=32',
                    'train.sequences_per_step=4', f'train.steps={self.row.steps()}', 'train.evaluate_every=0',
                    'checkpoint.every_steps=20', 'script.layers=1', 'script.embed=12', 'script.heads=3',
                    'run.threads_per_rank=1', f'run.join_timeout_s={JOIN}', f'run.timeout_s={STEP}', *sets]
        command = [*before, self.orrery, 'run', SCRIPT] + [word for one in settings for word in ('--set', one)]
        env = dict(os.environ, ORRERY_TOKEN='a-secret-of-this-test', **variables)
        with open(os.path.join(self.folder, f'said.{len(self.sides)}'), 'w') as said:
            self.sides.append(subprocess.Popen(command + words, cwd=self.folder, env=env, stdout=said,
                                               stderr=subprocess.STDOUT))

    def started(self):
        return len(losses(self.folder)) >= 5

    def relay(self, host):
        port = free_port(host)
        ready = self.started if self.row.when == 'running' else lambda: True
        self.wire = Relay(host, port, self.row.harm, self.row.after, self.row.direction, ready,
                          LONG if self.row.when == 'order' else 0)
        return port

    def ranks(self, host, ports, local, before=((), ()), sets=()):
        for rank in (0, 1):
            self.start([], before[rank], sets, RANK=str(rank), WORLD_SIZE='2', LOCAL_RANK=str(rank % local),
                       LOCAL_WORLD_SIZE=str(local), MASTER_ADDR=host, MASTER_PORT=str(ports[rank]))

    def rendezvous(self):
        port = self.relay('127.0.0.1')
        self.ranks('127.0.0.1', (port, self.wire.port), 2)

    def agents(self):
        port = self.relay(ALONE)
        for node, meets in enumerate((port, self.wire.port)):
            self.start(['--restarts', '5', '--nodes', '2', '--node-rank', str(node), '--wait-node',
                        str(WAIT if self.row.ends == LOST else 60), '--rendezvous', f'{ALONE}:{meets}'],
                       sets=['run.transport=gloo'])

    def gloo(self):
        port = 29500
        self.wire = Wire(self.row.harm, port, self.started)
        self.ranks(ADDRESSES[0], (port, port), 1, [self.wire.inside(end) for end in (0, 1)],
                   ['run.transport=gloo', f'run.join_timeout_s={2 * JOIN}'])

    def went_on(self):
        """After a restart, where one is to come, for some steps."""
        begun = [e['step'] for e in lines_of(self.folder, 'run', 'events.jsonl') if e['event'] == 'training']
        found = losses(self.folder)
        enough = self.row.restarts[0] == 0 or len(begun) > self.row.restarts[0]
        return enough and found and found[-1][0] >= max([JUDGED] + begun[-1:]) + 5

    def wait(self, bound):
        """Whether all have ended within `bound` seconds."""
        until = time.monotonic() + bound
        while any(side.poll() is None for side in self.sides):
            if time.monotonic() > until:
                return False
            if self.row.stops() and not self.stopped and self.wire.struck and self.went_on():
                self.stopped = True
                self.sides[0].send_signal(signal.SIGTERM)
            time.sleep(0.1)
        return True

    def close(self):
        for side in self.sides:
            if side.poll() is None:
                side.kill()
            side.wait()
        self.wire.close()

    def problem(self, late, undisturbed):
        row, codes = self.row, tuple(side.returncode for side in self.sides)
        if late:
            return f'not ended within {row.seconds + SLACK} s'
        if not self.wire.struck:
            return 'nothing was harmed: the run was over before'
        if codes != row.codes:
            return f'exit codes {codes}, expected {row.codes}'
        for side, words in enumerate(row.says):
            if not re.search(words, read(self.folder, f'said.{side}')):
                return f'side {side} does not say "{words}"'
        if row.ends == WELL and undisturbed not in (None, found := digest(self.folder, row.steps())):
            return f'digest {found}, that of the undisturbed run is {undisturbed}'
        if row.over == 'agents':
            ends = [e for e in lines_of(self.folder, 'run', 'events.jsonl') if e['event'] == 'end']
            restarts = ends[-1]['restarts'] if ends else -1
            if not row.restarts[0] <= restarts <= row.restarts[1]:
                return f'{restarts} restarts, expected {row.restarts[0]} to {row.restarts[1]}'
        return ''


def one(orrery, row, undisturbed):
    """The problem, "": none; seconds; the digest, "" where the row has none."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        job = Job(orrery, row, folder)
        try:
            late = not job.wait(row.seconds + SLACK)
            took = time.monotonic() - began
        finally:
            job.close()
        problem = job.problem(late, undisturbed)
        if problem or os.environ.get('SWEEP_TELL'):  # a number of lines, of all rows
            for side in (0, 1):
                sys.stderr.write(f'--- {row.name()}: side {side}\n')
                lines = read(folder, f'said.{side}').splitlines()[-int(os.environ.get('SWEEP_TELL') or 14):]
                sys.stderr.write('\n'.join(lines) + '\n')
            events = read(folder, 'run', 'events.jsonl')
            sys.stderr.write(f'{events}{row.name()}: {problem or "as expected"}\n')
            sys.stderr.flush()
        return problem, took, digest(folder, row.steps()) if row.ends == WELL else ''


class Undisturbed(Row):
    """A run over the rendezvous, which no other may differ from."""

    def __init__(self, steps):
        stops = steps == MANY
        super().__init__('rendezvous', 'none', 'both', 'running' if stops else '', WELL, (75, 75) if stops else (0, 0))
        self.few = steps

    def steps(self):
        return self.few


def reference(orrery, steps):
    problem, _, found = one(orrery, Undisturbed(steps), None)
    return sys.exit(f'the undisturbed run of {steps} steps: {problem}') if problem else found


def missing(over, orrery):
    """Why rows over that cannot be run here, "": they can."""
    if over == 'agents':
        try:
            free_port(ALONE)
        except OSError:
            return 'no network namespace of its own'
    if over != 'rendezvous' and not os.path.exists(
            os.path.join(os.path.dirname(orrery), 'plugins', 'liborrery_transport_gloo.so')):
        return 'no transport gloo'
    if over == 'gloo':
        try:
            Wire('none', 0, lambda: True).close()
        except (OSError, subprocess.CalledProcessError) as why:
            return f'no tun interfaces and network namespaces ({why})'
    return ''


def main():
    orrery, chosen = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ''
    chosen = CI if chosen == 'ci' else chosen
    failed, run, undisturbed = 0, 0, {}  # digests by the number of steps, which the rate of learning follows
    print('| over | harm | direction | when | expected | codes | found | digest | seconds | bound |')
    print('|---' * 10 + '|', flush=True)
    for rows in (rendezvous_rows(), agents_rows(), gloo_rows()):
        over = rows[0].over
        rows = [row for row in rows if re.search(chosen, row.name())]
        why = missing(over, orrery) if rows else ''
        if why:
            print(f'{over} skipped: {len(rows)} rows: {why}')
            continue
        for row in rows:
            steps = row.steps()
            if row.ends == WELL and steps not in undisturbed:
                undisturbed[steps] = reference(orrery, steps)
            problem, took, found = one(orrery, row, undisturbed.get(steps))
            failed, run = failed + bool(problem), run + 1
            print(f'| {row.over} | {row.harm} | {row.direction} | {row.when} | {row.ends} | {row.codes[0]} '
                  f'{row.codes[1]} | {problem or "as expected"} | {found} | {took:.1f} | {row.seconds + SLACK} |',
                  flush=True)
    print(f'{run} networks: ' + (f'{failed} ended otherwise' if failed else 'each run ended as the table says'))
    sys.exit(1 if failed else 0 if run else 77)


main()
