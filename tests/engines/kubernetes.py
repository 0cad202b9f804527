"""Jobs that `orrery submit --engine kubernetes --print` writes: typed models read them, a YAML parser reads back what
was meant, and pods that kubelet.py starts train, are preempted and resume, bit for bit. kubernetes.sh calls it."""

import json, os, random, re, subprocess, sys, time

import kubernetes_validate, yaml
from kubeflow_trainer_api import models

from kubelet import Cluster, Container, JobSet, Podman, expanded

orrery, source, folder = sys.argv[1:4]
claim = f"{folder}/claim"
script = f"{source}/scripts/gpt.lua"
table = []


def fail(text):
    sys.exit(f"FAILED: {text}")


def row(text):
    text = f"podman: {text}" if Container.podman else text
    print(text, flush=True)
    table.append(text)


def toml(text):
    """A text of TOML."""
    escaped = json.dumps(text, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f\u2028\u2029\ufeff]", lambda m: f"\\u{ord(m[0]):04x}", escaped)


COMMON = """[run]
seed = 5
threads_per_rank = 1
transport = "gloo"
join_timeout_s = 120
[data]
path = "text.txt"
tokens_per_sequence = 32
validation = 0.1
[train]
sequences_per_step = 4
steps = 600
[checkpoint]
every_steps = 50
[script]
layers = 2
embed = 48
heads = 3
warmup = 5
"""
SUBMIT = {"image": "orrery", "claim": "work", "mount": "/claim", "work": "/claim", "secret": "orrery"}


def configuration(ranks, nodes, submit, more=""):
    text = COMMON + f"[mesh]\ndp = {ranks}\n[submit]\nnodes = {nodes}\n{more}[submit.kubernetes]\n"
    return text + "".join(
        f"{key} = {value if isinstance(value, int) else toml(value)}\n" for key, value in submit.items()
    )


def submitted(*flags, config, expected=0, **more):
    open(f"{claim}/job.toml", "w").write(config)
    command = [orrery, "submit", script, "--config", "job.toml", "--engine", "kubernetes", *flags]
    end = subprocess.run(command, cwd=claim, capture_output=True, text=True, **more)
    if end.returncode != expected:
        fail(f"{command}: exit code {end.returncode}\n{end.stdout}{end.stderr}")
    return end


def printed(*flags, config):
    return list(yaml.safe_load_all(submitted("--print", *flags, config=config).stdout))


def same(read, meant, path=""):
    """Compares, as typed models leave out keys that they do not know."""
    if isinstance(meant, dict):
        for key in meant:
            if not isinstance(read, dict) or key not in read:
                fail(f"{path}.{key} is not a field")
            same(read[key], meant[key], f"{path}.{key}")
    elif isinstance(meant, list):
        if len(read) != len(meant):
            fail(f"{path}: {read}, not {meant}")
        for i, (one, other) in enumerate(zip(read, meant)):
            same(one, other, f"{path}[{i}]")
    elif read != meant:
        fail(f"{path} is {read}, not {meant}")


def validate(document):
    kinds = {
        "JobSet": models.JobsetV1alpha2JobSet,
        "TrainJob": models.TrainerV1alpha1TrainJob,
        "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
    }
    same(kinds[document["kind"]].from_dict(document).to_dict(), document, document["kind"])
    spec = document["spec"].get("template", document)["spec"]
    for replicated in spec.get("replicatedJobs", []):
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job"},
            "spec": replicated["template"]["spec"],
        }
        kubernetes_validate.validate(job, "1.31", strict=True)


def check_validation():
    rich = SUBMIT | {"namespace": "team", "shared_memory": "8Gi", "uid": 7001}
    more = 'time = "1:00:00"\nbefore = ["ulimit -c 0"]\nenvironment = { A = "yes" }\n'
    tail = '[submit.kubernetes.resources]\nmemory = "8Gi"\n"nvidia.com/gpu" = 2\n'
    tail += '[submit.kubernetes.node_selector]\na = "true"\n'
    for kind in ("jobset", "trainjob"):
        documents = 0
        for submit, extra, end in ((SUBMIT, "", ""), (rich, more, tail)):
            for document in printed(config=configuration(2, 2, submit | {"kind": kind}, extra) + end):
                validate(document)
                documents += 1
        row(f"{kind}: {documents} objects pass the typed models and kubernetes-validate 1.31 (strict)")
    damaged = printed(config=configuration(2, 2, SUBMIT))[0]
    damaged["spec"]["replicatedJobs"][0]["template"]["spec"]["completionsMode"] = "Indexed"
    try:
        validate(damaged)
    except (SystemExit, kubernetes_validate.ValidationError):
        return
    fail("a field that does not exist was taken")


PIECES = [
    ": ",
    " #",
    "\n",
    "\t",
    "'",
    '"',
    "\\",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "&a",
    "*a",
    "!t",
    "|",
    ">",
    "%",
    "@",
    "`",
    "-",
    "- ",
    "? ",
    "~",
    "null",
    "yes",
    "No",
    "on",
    "0x1F",
    "1e3",
    "0o17",
    "017",
    "12:30:45",
    "2026-11-30",
    "=",
    "<<",
    ".inf",
    "$",
    "$$",
    "$(HOME)",
    "$(ORRERY_NODES)",
    "${X}",
    "\u00e9",
    "\u2028",
    "\u0085",
    "\u00a0",
    "\ufeff",
    "\U0001f600",
    "\x7f",
    "\x01",
    "---",
    "...",
    " ",
    "\r",
    "a",
    "Z",
    "7",
    "/",
    ".",
]


def check_texts(rounds):
    draw = random.Random(7)
    text = lambda: "".join(draw.choice(PIECES) for _ in range(draw.randrange(1, 9)))
    values = 0
    for turn in range(rounds):
        submit = SUBMIT | {
            "image": text(),
            "claim": text(),
            "secret": text(),
            "namespace": text(),
            "work": "/claim/" + text(),
            "kind": draw.choice(["jobset", "trainjob"]),
        }
        before, variables, selector = [text() for _ in range(3)], {f"V{i}": text() for i in range(3)}, {text(): text()}
        lists = f"before = [{', '.join(map(toml, before))}]\n"
        tables = "[submit.environment]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in variables.items())
        tables += "[submit.kubernetes.node_selector]\n" + "".join(
            f"{toml(key)} = {toml(value)}\n" for key, value in selector.items()
        )
        path = text()
        if os.path.exists(f"{claim}/{path}"):  # submit refuses a folder as data.path
            path += "?"
        documents = printed("--set", f"data.path={toml(path)}", config=configuration(2, 2, submit, lists) + tables)
        first = documents[0]
        spec = first["spec"].get("template", first)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        container = spec["containers"][0]
        found = {one["name"]: expanded(one.get("value", ""), {}) for one in container["env"]}
        command = [expanded(word, {}) for word in container["command"]]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        pairs = [
            (container["image"], submit["image"]),
            (first["metadata"]["namespace"], submit["namespace"]),
            (volumes["work"]["persistentVolumeClaim"]["claimName"], submit["claim"]),
            (volumes["token"]["secret"]["secretName"], submit["secret"]),
            (container["workingDir"], submit["work"]),
            (command[2], "".join(line + "\n" for line in before) + 'exec "$@"'),
            (spec["nodeSelector"], selector),
            (command[-1], f"data.path={toml(path)}"),
        ]
        pairs += [(found[key], value) for key, value in variables.items()]
        for read, meant in pairs:
            if read != meant:
                fail(f"round {turn}: YAML gives {read!r}, not {meant!r}")
        values += len(pairs)
    row(f"texts: a YAML parser reads back {values} of {values} texts from {rounds} manifests")


def losses(run):
    with open(f"{claim}/{run}/metrics.jsonl") as lines:
        rows = [json.loads(line) for line in lines]
    return [(one["step"], one["loss"], one["grad_norm"]) for one in rows if "loss" in one]


def steps(run):
    try:
        return len(losses(run))
    except (FileNotFoundError, json.JSONDecodeError):
        return 0


def alone(ranks, *flags):
    run = f"alone{ranks}{''.join(flags)}"
    open(f"{claim}/alone.toml", "w").write(COMMON + f"[mesh]\ndp = {ranks}\n")
    end = subprocess.run(
        [orrery, "run", script, "--config", "alone.toml", "--set", f"run.folder={run}", *flags],
        cwd=claim,
        capture_output=True,
        text=True,
    )
    if end.returncode != 0:
        fail(f"{run}: {end.stdout}{end.stderr}")
    return losses(run)


def token():
    return {"token": os.urandom(32).hex()}


class Played:
    """A job of a cluster."""

    def __init__(
        self, run, *flags, ranks=2, nodes=2, submit=None, more="", tail="", secret=None, late_s=0.0, edit=None
    ):
        config = configuration(ranks, nodes, SUBMIT | (submit or {}), more) + tail
        documents = printed(*flags, "--set", f"run.folder={run}", config=config)
        os.rename(f"{claim}/job.toml", f"{claim}/{run}.toml")
        documents = json.loads(json.dumps(documents).replace('"job.toml"', f'"{run}.toml"'))
        if edit:
            edit(documents)
        self.run = run
        self.cluster = Cluster(folder, source, {"work": claim}, {"orrery": secret or token()}, late_s)
        self.jobset = JobSet(self.cluster, documents)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.jobset.close()
        self.cluster.close()

    def trained(self, count):
        self.jobset.wait(lambda: steps(self.run) >= count or self.jobset.over())
        if self.jobset.over():
            fail(f"{self.run} ended before step {count}\n{self.jobset.report()}")

    def complete(self, expected):
        self.jobset.wait(self.jobset.over)
        if self.jobset.state != "complete":
            fail(f"{self.run}: {self.jobset.report()}")
        found = losses(self.run)
        if found != expected:
            first = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
            fail(
                f"{self.run}: other losses than those of an undisturbed run: {len(found)} of {len(expected)}, from row "
                f"{first}: {found[first:first + 2]}, expected {expected[first:first + 2]}"
            )

    def replaced(self, index, before):
        self.jobset.wait(lambda: index in self.jobset.pods and self.jobset.pods[index].number > before)

    def failed(self, *words):
        self.jobset.wait(self.jobset.over)
        text = self.jobset.report()
        for word in words:
            if word not in text:
                fail(f'{self.run} does not say "{word}":\n{text}')


def check_ranks(expected, kind):
    """A pod for each rank: a preemption of one pod, then of the pod of node 0, which gets another address."""
    limits = '[submit.kubernetes.resources]\ncpu = 1\nmemory = "4Gi"\n'
    name = f"{kind}-ranks{'-podman' * bool(Container.podman)}"
    with Played(name, submit={"kind": kind, "shared_memory": "64Mi"}, tail=limits, late_s=1.5) as job:
        for index, count in ((1, 60), (0, 200)):
            job.trained(count)
            before = {i: pod.number for i, pod in job.jobset.pods.items()}
            job.jobset.evict(index)
            for i, number in before.items():
                job.replaced(i, number)
        job.complete(expected)
        codes = [code for _, code in job.jobset.codes()]
        if codes != [75, 75, 75, 75, 0, 0] or job.jobset.failures:
            fail(f"exit codes {job.jobset.codes()}, {job.jobset.failures} counted")
        row(
            f"{kind}, 2 pods of a rank: the notice reaches pod 1, then pod 0, which comes back at another address: "
            f"exit codes 75 75, 75 75, 0 0; none counted; {len(expected)} losses bit for bit"
        )


AGENTS = ("--restarts", "3", "--wait-node", "120")


def undisturbed():
    """The same pods as in check_agents: over two hosts sums over four ranks are not in the order of one host."""
    with Played("undisturbed", *AGENTS, ranks=4) as job:
        job.jobset.wait(job.jobset.over)
        return losses(job.run)


def check_agents(expected, kind):
    """A pod for each node: a preemption, and the loss of node 0: its pod comes back at another address."""
    name = f"{kind}-agents{'-podman' * bool(Container.podman)}"
    with Played(name, *AGENTS, ranks=4, submit={"kind": kind}, late_s=1.5) as job:
        addresses = []
        for index, count, how in ((1, 60, "evict"), (0, 200, "lose")):
            job.trained(count)
            before = job.jobset.pods[index].number
            addresses.append(job.jobset.pods[0].address)
            getattr(job.jobset, how)(index)
            job.replaced(index, before)
        job.complete(expected)
        if job.jobset.failures or len(set(addresses + [job.jobset.ended[-1][2].address])) < 2:
            fail(job.jobset.report())
        row(
            f"{kind}, 2 pods of 2 ranks, --restarts: the notice reaches pod 1; the machine of pod 0 is lost, it comes "
            f"back at another address: exit codes {' '.join(str(code) for _, code in job.jobset.codes())}; "
            f"none counted; {len(expected)} losses bit for bit"
        )


def check_podman(expected2, expected4):
    """check_ranks and check_agents with pods that are containers of podman; kubernetes.sh makes their base system."""
    base = os.environ.get("ORRERY_PODS_BASE")
    if not base:
        return row("skipped: pods that are containers: podman, runc or mmdebstrap is not installed")
    podman = Podman(folder, base)
    if podman.problem:
        return row(f"skipped: pods that are containers: podman cannot run one here: {podman.problem}")
    Container.podman = podman
    check_ranks(expected2, "jobset")
    check_agents(expected4, "trainjob")
    Container.podman = None


def check_suspend(expected):
    with Played("suspended", more='before = ["export MARK=1"]\n') as job:
        job.trained(60)
        job.jobset.suspend()
        job.jobset.wait(lambda: not job.jobset.pods)
        if [code for _, code in job.jobset.codes()] != [75, 75]:
            fail(job.jobset.report())
        job.jobset.resume()
        job.complete(expected)
        row("suspend, as orrery stop does: both pods save and exit with 75; resumed: bit for bit")


def container_of(documents):
    return documents[0]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]


def with_variables(documents, variables):
    """Returns the container, whose environment is now these variables alone."""
    container = container_of(documents)
    container["env"] = [{"name": key, "value": value} for key, value in variables.items()]
    return container


def check_by_hand():
    """Pods that get their places from PyTorchJob, old and new, or from Kubeflow's runtime for torch."""
    short = ("--set", "train.steps=40")
    expected = alone(2, *short)
    index, address = "$(JOB_COMPLETION_INDEX)", "by-hand-node-0-0.by-hand"
    pytorch = {"MASTER_ADDR": address, "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": index}
    counts = {"PET_NNODES": "2", "PET_NODE_RANK": index, "PET_NPROC_PER_NODE": "1"}
    local = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    token_file = {"ORRERY_TOKEN_FILE": "/etc/orrery/token"}
    places = {
        "PyTorchJob of older versions": pytorch | local,
        "PyTorchJob with PET_*": pytorch | counts | {"PET_MASTER_ADDR": address},
        "TrainJob for torch": counts | {"PET_MASTER_ADDR": address, "PET_MASTER_PORT": "29400"},
    }
    for number, (name, variables) in enumerate(places.items()):

        def edit(documents):
            container = with_variables(documents, variables | token_file)
            container["command"][:0] = ["env", "-u", "JOB_COMPLETION_INDEX"]
            documents[0]["metadata"]["name"] = "by-hand"

        with Played(f"by-hand{number}", *short, edit=edit) as job:
            job.complete(expected)
        row(f"{name}, a pod for each of 2 ranks: {', '.join(variables)}: bit for bit")

    def indexed(documents):
        with_variables(documents, {"ORRERY_NODES": "2", "MASTER_ADDR": address} | token_file)
        documents[0]["metadata"]["name"] = "by-hand"

    with Played("indexed", *short, edit=indexed, late_s=1.5) as job:
        job.complete(expected)
    row("an Indexed Job, a pod for each of 2 ranks: ORRERY_NODES, MASTER_ADDR, ORRERY_TOKEN_FILE: bit for bit")

    def of_one(documents):
        variables = {"MASTER_ADDR": "localhost", "MASTER_PORT": "23456", "WORLD_SIZE": "1", "RANK": "0"}
        container = with_variables(documents, variables)
        container["command"][:0] = ["env", "-u", "JOB_COMPLETION_INDEX"]

    with Played("of-one", *short, nodes=1, edit=of_one) as job:
        job.complete(expected)
        text = job.jobset.ended[0][2].text()
        if "they start on this host" not in text:
            fail(text)
    row("a PyTorchJob's pod of one, 2 ranks: both start in it, with a note: bit for bit")


def check_limits():
    """What a pod may use: what the run says of it, or that it trains in spite of it."""
    short = ("--set", "train.steps=40")
    probe = "id -u; touch /probe || echo read-only; echo HOME=${HOME:-none}; orrery check " + script
    probe += " --config limits.toml | grep -A1 this.host:"
    limits = '[submit.kubernetes.resources]\ncpu = "0.5"\nmemory = "4Gi"\n'
    more = f"before = [{toml(probe)}]\n"
    with Played("limits", *short, nodes=1, submit={"uid": 7001}, more=more, tail=limits) as job:
        job.complete(alone(2, *short))
        text = job.jobset.ended[0][2].text()
        for word in ("7001", "read-only", "HOME=none", "allows 0.5 of", "4.0 GiB of"):
            if word not in text:
                fail(f'limits: the pod does not say "{word}":\n{text}')
    first = next(line for line in text.splitlines() if "allows 0.5 of" in line)
    row(f"half a processor, 4 GiB of memory (control groups), user 7001, read-only root, no HOME: {first[:300]}")


def without_token(documents):
    env = container_of(documents)["env"]
    env.remove(next(one for one in env if one["name"] == "ORRERY_TOKEN_FILE"))


def check_mistakes():
    with Played("usage", "--set", "data.path=nowhere.txt") as job:
        job.failed("nowhere.txt")
        if (
            job.jobset.state != "failed"
            or 2 not in [code for _, code in job.jobset.codes()]
            or job.cluster.started != 2
        ):
            fail(job.jobset.report())
        row("mistake: a data file that is not on the claim: exit code 2, the job fails at once")
    with Played("differ", "--set", "run.join_timeout_s=10", secret=lambda pod: token()) as job:
        job.jobset.wait(lambda: len(job.jobset.ended) >= 2)
        job.jobset.fail()
        job.failed("the job token does not match", "ORRERY_TOKEN")
        row("mistake: tokens that differ: " + said(job, "the job token"))
    with Played("no-token", edit=without_token) as job:
        job.failed("ORRERY_TOKEN_FILE")
        if job.cluster.started != 2:
            fail(job.jobset.report())
        row("mistake: no token in the pods: exit code 2, asks for ORRERY_TOKEN_FILE")
    small = {"nodes": 1, "submit": {"shared_memory": "1Mi"}}
    if os.path.exists(f"{os.path.dirname(orrery)}/plugins/liborrery_transport_ucx.so"):
        with Played("small-ucx", "--set", "run.transport=ucx", **small) as job:
            job.jobset.wait(lambda: job.jobset.ended)
            job.jobset.fail()
            job.failed("/dev/shm has", 'transports = "tcp"')
            row("mistake: a /dev/shm of 1 MiB, for ucx: " + said(job, "/dev/shm has"))
    short = ("--set", "train.steps=40")
    with Played("small-shm", "--set", "run.transport=shm", *short, **small) as job:
        job.complete(alone(2, *short))
        row("a /dev/shm of 1 MiB, for shm, which needs none: bit for bit")
    empty = os.environ | {"PATH": f"{folder}/none"}
    end = submitted(config=configuration(2, 2, SUBMIT), expected=2, env=empty)
    if "kubectl" not in end.stderr or "--print" not in end.stderr:
        fail(end.stderr)
    row("mistake: kubectl is not installed: exit code 2, names it and --print")
    lacks = {"image": "mistake: no image", "claim": "mistake: no claim", "secret": "mistake: no secret"}
    for key, name in lacks.items():
        config = configuration(2, 2, {one: value for one, value in SUBMIT.items() if one != key})
        end = submitted("--print", config=config, expected=2)
        if f"submit.kubernetes.{key}" not in end.stderr:
            fail(end.stderr)
        row(f"{name}: exit code 2, names submit.kubernetes.{key}")


def said(job, word):
    """The first line of a pod that has a word, and the pods' exit codes."""
    lines = [line for line in job.jobset.report().splitlines() if word in line]
    return f"{lines[0][:170]}; exit codes {' '.join(str(code) for _, code in job.jobset.codes())}"


def main():
    rounds = 300 if os.environ.get("ORRERY_LONG") else 10
    begin = time.monotonic()
    check_validation()
    check_texts(rounds)
    expected2 = alone(2)
    check_ranks(expected2, "jobset")
    check_limits()
    check_suspend(expected2)
    expected4 = undisturbed()
    for kind in ("jobset", "trainjob"):
        check_agents(expected4, kind)
    check_ranks(expected2, "trainjob")
    check_by_hand()
    check_podman(expected2, expected4)
    check_mistakes()
    print(f"{time.monotonic() - begin:.0f} s")
    if os.environ.get("ORRERY_LONG"):
        open(os.environ["ORRERY_LONG"], "w").write("\n".join(table) + "\n")


if len(sys.argv) > 4:
    for name in sys.argv[4:]:  # for one part: check_texts 5
        eval(name)
else:
    main()
