"""Eight tiny ranks for a while, a fault about every four seconds: soak.py ORRERY [SECONDS [SEED]]; 20, or 600 where
ORRERY_LONG names a file for the table

Whatever happens, the job goes on, by itself or because this starts its launcher again. In the end losses and weights
are those of a run to which nothing happened, to the last bit; memory, descriptors, threads and files have not grown;
and no process, port, shared memory or partial file is left. Exit code 1 with what was not so.
"""
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, '..', '..', 'scripts')
SILENCE_S = 10  # what a rank that is stopped for good costs
# Each with how often it is drawn, and what follows: nothing, a restart by the launcher, a launcher that this starts
# again, or nothing or a restart.
FAULTS = {'strangers': (3, 'none'), 'paused': (2, 'none'), 'stray file': (2, 'none'), 'disk frozen': (2, 'none'),
          'rank killed': (5, 'restart'), 'stopped': (1, 'restart'), 'byte flipped': (2, 'restart'),
          'launcher killed': (2, 'start'), 'preempted': (2, 'start'), 'preempted by a rank': (1, 'start'),
          'disk full': (2, 'any')}


class Failed(Exception):
    pass


def wait_for(what, limit_s, condition):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise Failed(f'{what}: not within {limit_s} s')


def read(path, begin=0):
    """From a byte on, or so many before the end; what is not there is empty."""
    try:
        with open(path, 'rb') as file:
            if begin:
                file.seek(max(begin, -os.path.getsize(path)), os.SEEK_SET if begin > 0 else os.SEEK_END)
            return file.read().decode(errors='replace')
    except OSError:
        return ''


def parent_of(pid):
    stat = read(f'/proc/{pid}/stat')
    return int(stat.rsplit(')', 1)[1].split()[1]) if ')' in stat else -1


def processes_with(word):
    return [int(p) for p in os.listdir('/proc') if p.isdigit() and word in read(f'/proc/{p}/cmdline')]


def ports_of(pid):
    """Ports that a process listens on."""
    mine = set()
    for link in glob.glob(f'/proc/{pid}/fd/*'):
        try:
            mine.add(os.readlink(link))
        except OSError:
            pass
    lines = read('/proc/net/tcp').splitlines()[1:] + read('/proc/net/tcp6').splitlines()[1:]
    return [int(f[1].split(':')[1], 16) for f in map(str.split, lines) if f[3] == '0A' and f'socket:[{f[9]}]' in mine]


def shared_memory():
    """By name; but for what other sweeps have there."""
    return {name for name in os.listdir('/dev/shm') if not name.startswith('orrery-sweep')}


def say(line):
    print(line, flush=True)
    if os.environ.get('ORRERY_LONG'):
        with open(os.environ['ORRERY_LONG'], 'a') as file:
            file.write(line + '\n')


class Disk:
    """A small file system for the checkpoints, which may be frozen or full; without one those faults are left out."""

    def __init__(self, work, place):
        self.place, self.why_not, image = place, '', os.path.join(work, 'disk')
        os.makedirs(place)
        with open(image, 'wb') as file:
            file.truncate(64 << 20)
        for command in (['mkfs.ext4', '-q', '-m', '0', image], ['mount', '-o', 'loop', image, place]):
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError as problem:
                self.why_not = str(problem)
                return
            if done.returncode:
                self.why_not = (done.stderr.strip().splitlines() or ['?'])[0]
                return

    def freeze(self, on):
        return subprocess.run(['fsfreeze', '-f' if on else '-u', self.place], capture_output=True).returncode == 0

    def close(self):
        if self.why_not:
            return
        self.freeze(False)
        for _ in range(200):
            if subprocess.run(['umount', self.place], capture_output=True).returncode == 0:
                return
            time.sleep(0.05)


class Job:
    """The launcher, its ranks, and the run's folder."""

    def __init__(self, orrery, work, name):
        self.orrery, self.work, self.folder = orrery, work, os.path.join(work, name)
        self.checkpoints = os.path.join(self.folder, 'checkpoints')
        self.log, self.launcher, self.starts = self.folder + '.log', None, 0

    def start(self, steps, *more):
        settings = {
            'run.folder': self.folder, 'run.seed': 5, 'run.threads_per_rank': 1, 'run.timeout_s': 30,
            'mesh.dp': 4, 'mesh.tp': 2, 'lua.library': SCRIPTS,
            'data.path': os.path.join(self.work, 'text.txt'), 'data.tokens_per_sequence': 16, 'data.validation': 0.1,
            'train.sequences_per_step': 4, 'train.steps': steps, 'train.evaluate_every': 0,
            'checkpoint.every_steps': 5, 'script.layers': 1, 'script.embed': 16, 'script.heads': 2, 'script.warmup': 5}
        words = [self.orrery, 'run', os.path.join(self.work, 'soak.lua'), *more]
        for key, value in settings.items():
            words += ['--set', f'{key}={value}']
        with open(self.log, 'ab') as log:
            self.launcher = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.work)
        self.starts += 1

    def ranks(self):
        """In their order."""
        return [p for p in sorted(processes_with(self.folder)) if parent_of(p) == self.launcher.pid]

    def ended(self, codes):
        """Waits for the launcher, and until none of its processes is left."""
        try:
            code = self.launcher.wait(120)
        except subprocess.TimeoutExpired:
            raise Failed('the launcher does not end')
        if code not in codes:
            raise Failed(f'the launcher ended with {code}, expected {codes}')
        wait_for('the ranks are gone', 15, lambda: not processes_with(self.folder))

    def step(self):
        """The last one in metrics.jsonl."""
        found = re.findall(r'"step":(\d+),"loss"', read(self.folder + '/metrics.jsonl', -4000))
        return int(found[-1]) if found else 0

    def events(self):
        return [json.loads(line) for line in read(self.folder + '/events.jsonl').splitlines()]

    def newest(self):
        """Steps that are visible, the newest first."""
        found = glob.glob(self.checkpoints + '/step-????????/manifest.json')
        return sorted((int(p.split('/')[-2][5:]) for p in found), reverse=True)

    def trained(self):
        """How many generations have begun to train."""
        return sum(event['event'] == 'training' for event in self.events())

    def files(self):
        """By path, steps by their order; but for TensorBoard's, one a start, and what only some runs leave."""
        steps, names = [f'step-{step:08d}' for step in self.newest()], set()
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = os.path.relpath(os.path.join(folder, name), self.folder)
                for number, step in enumerate(steps):
                    path = path.replace(step, f'step {number}')
                names.add(re.sub(r'generation-\d+|logs/g\d+', 'generation', path))
        return {path for path in names if not re.match('tensorboard/|costs.json|events.jsonl', path)}

    def losses(self):
        lines = [json.loads(line) for line in read(self.folder + '/metrics.jsonl').splitlines()]
        return {line['step']: (line['loss'], line['grad_norm']) for line in lines if 'grad_norm' in line}

    def digest(self, step):
        """Of all objects of a step."""
        files = sorted(glob.glob(f'{self.checkpoints}/step-{step:08d}/rank-*.safetensors'))
        sums = [hashlib.sha256(open(file, 'rb').read()).hexdigest() for file in files]
        if not sums:
            raise Failed(f'step {step} has no objects in {self.checkpoints}')
        return hashlib.sha256(' '.join(sums).encode()).hexdigest()


class Soak:
    def __init__(self, orrery, work, seconds, seed):
        self.random, self.seconds, self.work = random.Random(seed), seconds, work
        self.job = Job(orrery, work, 'soaked')
        os.makedirs(self.job.folder)
        self.disk = Disk(work, self.job.checkpoints)
        self.counts, self.samples, self.own, self.held = {}, [], set(), []
        kinds = [name for name in FAULTS if not (self.disk.why_not and name.startswith('disk'))]
        self.often = [name for name in kinds for _ in range(FAULTS[name][0])]
        self.first = self.random.sample(kinds, len(kinds))  # each kind once, then by chance

    def again(self):
        self.job.start(10**9, '--restarts', '1000')

    def progressed(self, beyond):
        """Until a new step is finished; the launcher must be there meanwhile."""
        self.comes(f'a step beyond {beyond}', lambda: self.job.step() > beyond)

    def comes(self, what, condition):
        """While the launcher is there."""
        def look():
            if self.job.launcher.poll() is not None:
                raise Failed(f'the launcher ended by itself with {self.job.launcher.returncode}')
            return condition()
        wait_for(what, 120, look)

    def rank(self):
        """Any that is there."""
        return self.random.choice(wait_for('ranks', 30, self.job.ranks))

    def kill(self, pid, how):
        try:
            os.kill(pid, how)
        except ProcessLookupError:  # it went with a fault before
            pass

    def fault(self, name):
        """What follows, where that is not so in any case."""
        job = self.job
        if name == 'rank killed':
            self.kill(self.rank(), signal.SIGKILL)
        elif name == 'launcher killed':
            job.launcher.kill()
            job.ended([-signal.SIGKILL])
            self.again()
        elif name in ('preempted', 'preempted by a rank'):
            self.kill(job.launcher.pid if name == 'preempted' else self.rank(), signal.SIGTERM)
            job.ended([75])
            self.again()
        elif name == 'stopped':
            self.kill(self.rank(), signal.SIGSTOP)
            time.sleep(SILENCE_S)
        elif name == 'paused':
            pid = self.rank()
            self.kill(pid, signal.SIGSTOP)
            time.sleep(self.random.uniform(0.2, 1.5))
            self.kill(pid, signal.SIGCONT)
        elif name == 'byte flipped':
            self.flip()
        elif name == 'stray file':
            self.stray()
        elif name == 'strangers':
            self.strangers()
        elif name == 'disk frozen':
            if self.disk.freeze(True):
                time.sleep(self.random.uniform(0.5, 2))
                self.disk.freeze(False)
        elif name == 'disk full':
            return self.fill()
        return None

    def flip(self):
        """In the newest of two, and the next start meets it: the older one is used."""
        self.clear_away()
        steps = wait_for('two checkpoints', 60, lambda: len(self.job.newest()) > 1 and self.job.newest())
        path = self.random.choice(sorted(glob.glob(f'{self.job.checkpoints}/step-{steps[0]:08d}/rank-*.safetensors')))
        try:
            with open(path, 'r+b') as file:
                at = self.random.randrange(os.path.getsize(path))
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 1 << self.random.randrange(8)]))
        except OSError:  # it was retired meanwhile
            pass
        self.own.add(steps[0])
        self.kill(self.rank(), signal.SIGKILL)

    def clear_away(self):
        """What this has damaged stays until somebody looks at it: here, once no step of it is the newest two."""
        for path in glob.glob(self.job.checkpoints + '/step-*'):
            step = re.match(r'step-(\d{8})', os.path.basename(path))
            aside = '.aside-' in path
            if step and int(step[1]) in self.own and (aside or int(step[1]) < min(self.job.newest()[:2] or [0])):
                shutil.rmtree(path, ignore_errors=True)

    def stray(self):
        names = ['notes.txt', 'step-latest', 'step-00000007.partial', f'step-{self.job.step() + 40:08d}', '.nfs0001',
                 'lost']
        name = self.random.choice(names)
        path = os.path.join(self.job.checkpoints, name)
        if os.path.exists(path):
            return
        try:
            if name.endswith('.partial') or name == 'lost':
                os.makedirs(path)
                path += '/thesis.txt'
            with open(path, 'w') as file:
                file.write('not a checkpoint\n')
            self.held.append(name)
        except OSError:  # a full or frozen disk
            pass

    def strangers(self):
        ports = [port for pid in [self.job.launcher.pid, *self.job.ranks()] for port in ports_of(pid)]
        open_now = []
        for _ in range(60 if ports else 0):
            try:
                peer = socket.create_connection(('127.0.0.1', self.random.choice(ports)), 1)
                open_now.append(peer)
                peer.setblocking(False)
                peer.send(self.random.randbytes(self.random.choice([1, 40, 248, 5000])))
            except OSError:  # pushed out, or its generation is over
                pass
        time.sleep(self.random.uniform(0, 1.5))
        for peer in open_now:
            peer.close()

    def fill(self):
        """Until a save has failed of it, also with what is freed meanwhile; or there was none in a while."""
        begin, filler = os.path.getsize(self.job.log), self.job.checkpoints + '/filler'
        until = time.monotonic() + 5

        def failed():
            return 'No space left' in read(self.job.log, begin)
        try:
            with open(filler, 'wb', buffering=0) as file:
                while time.monotonic() < until and not failed():
                    try:
                        file.write(b'x' * (1 << 20))  # as much of it as there is room for
                    except OSError:
                        time.sleep(0.01)
        finally:
            os.remove(filler)
        # Of those that were under way, too.
        now = os.path.getsize(self.job.log)
        self.comes('a save behind the full disk', lambda: failed() or read(self.job.log, now).count(' committed ') > 1)
        return 'restart' if failed() else 'none'

    def sample(self):
        """Of the launcher, and of a rank that has made steps and saved once: KiB, descriptors, threads."""
        begin = os.path.getsize(self.job.log)
        self.comes('a save', lambda: ' committed ' in read(self.job.log, begin))

        def of(pid):
            status = read(f'/proc/{pid}/status')
            kib, threads = (re.search(rf'{key}:\s+(\d+)', status) for key in ('VmRSS', 'Threads'))
            fds = len(os.listdir(f'/proc/{pid}/fd'))
            return (int(kib[1]), fds, int(threads[1]))
        try:
            rank, launcher = of(self.job.ranks()[0]), of(self.job.launcher.pid)
        except (OSError, TypeError, IndexError):
            return
        self.samples.append((*launcher, *rank))

    def run(self):
        self.again()
        self.progressed(0)
        due = time.monotonic()  # of the next fault; one that lasts longer is followed at once
        until, number, best = due + self.seconds, 0, 0
        while time.monotonic() < until or number < self.seconds / 6:
            trained = self.job.trained()
            name = self.first.pop() if self.first else self.random.choice(self.often)
            number += 1
            self.counts[name] = self.counts.get(name, 0) + 1
            best = max(best, self.job.step())
            follows = self.fault(name) or FAULTS[name][1]
            if follows in ('restart', 'start'):
                self.comes(f'training after "{name}"', lambda: self.job.trained() > trained)
            self.progressed(best)
            if follows == 'none' and self.job.trained() > trained:
                raise Failed(f'the job was started again after "{name}"')
            self.sample()
            due += self.random.uniform(3, 5)
            time.sleep(max(0.0, due - time.monotonic()))
        self.progressed(max(best, self.job.step()))
        self.job.launcher.send_signal(signal.SIGTERM)
        self.job.ended([75])
        return number

    def check_growth(self):
        names = ('launcher KiB', 'launcher descriptors', 'launcher threads', 'rank KiB', 'rank descriptors',
                 'rank threads')
        part = max(1, len(self.samples) // 4)
        for i, name in enumerate(names):
            first, last = (statistics.median(s[i] for s in some) for some in
                           (self.samples[:part], self.samples[-part:]))
            say(f'{name}: {first:g} in the first quarter, {last:g} in the last')
            if last > first * 1.1 + (1024 if 'KiB' in name else 2):
                raise Failed(f'{name} grow: {first:g} in the first quarter, {last:g} in the last')

    def check_left(self, before, twin):
        """Nothing but what others have put there, which is all there."""
        self.clear_away()
        for name in self.held:
            kept = [path for path in glob.glob(os.path.join(self.job.checkpoints, name) + '*')
                    if not os.path.exists(path + '/manifest.json')]
            if not kept:
                raise Failed(f'the stray {name} is gone')
            for path in kept:
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        left = sorted(self.job.files() ^ twin.files())
        left += processes_with(self.job.folder) + sorted(shared_memory() - before)
        if left:
            raise Failed(f'left: {left}')


def main():
    orrery = os.path.abspath(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 600 if os.environ.get('ORRERY_LONG') else 20
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 16
    if os.environ.get('ORRERY_LONG'):
        open(os.environ['ORRERY_LONG'], 'w').close()
    work = tempfile.mkdtemp(prefix='orrery-soak-')
    with open(os.path.join(work, 'text.txt'), 'w') as file:
        file.writelines(f'{i % 37} plus {i % 11} makes {i % 37 + i % 11} and so it is written\n' for i in range(1500))
    script = read(os.path.join(SCRIPTS, 'gpt.lua'))
    with open(os.path.join(work, 'soak.lua'), 'w') as file:  # no rate depends on where the run will end
        file.write(script.replace('cfg.train.steps', '1000000'))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and clean up
    before, soak = shared_memory(), Soak(orrery, work, seconds, seed)
    if soak.disk.why_not:
        say(f'skipped: disk frozen, disk full ({soak.disk.why_not})')
    try:
        began = time.monotonic()
        faults = soak.run()
        took, last = time.monotonic() - began, soak.job.newest()[0]
        say(', '.join(f'{name} {count}' for name, count in sorted(soak.counts.items())))
        say(f'{faults} faults in {took:.0f} s, {soak.job.starts} launchers, '
              f'{sum(e["event"] == "start" for e in soak.job.events())} generations, {last} steps')
        twin = Job(orrery, work, 'undisturbed')
        twin.start(last)
        if twin.launcher.wait() != 0:
            raise Failed('the undisturbed run:\n' + read(twin.log)[-2000:])
        mine, its = soak.job.losses(), twin.losses()
        if mine != its:
            other = [step for step in sorted(set(mine) | set(its)) if mine.get(step) != its.get(step)]
            raise Failed(f'{len(other)} steps have other losses, the first is {other[0]}: '
                         f'{mine.get(other[0])}, undisturbed {its.get(other[0])}')
        if soak.job.digest(last) != twin.digest(last):
            raise Failed(f'the weights of step {last} are others')
        say(f'losses of {len(its)} steps and the final digest are those of an undisturbed run: {twin.digest(last)}')
        soak.job.start(last)
        soak.job.ended([0])  # nothing is left to do
        soak.check_growth()
        soak.check_left(before, twin)
        say('nothing grows, nothing is left')
    except Failed as problem:
        say(f'FAILED: seed {seed}: {problem}')
        print(read(soak.job.folder + '/events.jsonl', -2000) + read(soak.job.log, -4000), file=sys.stderr)
        return 1
    finally:
        for pid in processes_with(work):
            if pid != os.getpid():
                soak.kill(pid, signal.SIGKILL)
        soak.disk.close()
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
