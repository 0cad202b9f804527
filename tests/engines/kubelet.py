"""Plays Kubernetes for one job: the controllers of JobSet, TrainJob and Job, and a kubelet that starts each pod in
namespaces of its own (mount, pid, net, uts, ipc), with its environment, names, volumes, limits, user, read-only root
and grace period. Needs root."""

import os, re, shutil, signal, subprocess, sys, threading, time, uuid

SETUP = r"""set -e
hostname "$HOST_NAME"
# The image: this host's root folder, and the tree of Orrery, which may be a mount.
mount -t overlay overlay -o "lowerdir=/,upperdir=$POD/upper,workdir=$POD/work" "$POD/root"
cd "$POD/root"
mkdir -p ".$IMAGE" .old
mount --bind -o ro "$IMAGE" ".$IMAGE"
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o size=64k,mode=755 dev dev
for device in null zero full random urandom tty; do touch dev/$device; mount --bind /dev/$device dev/$device; done
ln -s /proc/self/fd dev/fd
[ ! -e root ] || mount -t tmpfs -o size=4k,mode=700 root root
while IFS=$'\t' read -r kind from to options; do
    mkdir -p ".$to"
    case $kind in
    bind) mount --bind "$from" ".$to"; [ -z "$options" ] || mount -o "remount,bind,$options" ".$to" ;;
    memory) mount -t tmpfs -o "mode=1777$options" memory ".$to" ;;
    esac
done < "$POD/mounts"
for file in hosts resolv.conf; do mount --bind "$POD/$file" etc/$file; done
[ "$READ_ONLY" != 1 ] || mount -o remount,ro "$POD/root"
pivot_root . .old
umount -l /.old
cd "$WORK_DIR"
exec setpriv $PRIVILEGES env -i "$@"
"""


def expanded(text, variables):
    """Kubernetes' $(NAME), and $$ for $."""

    def one(match):
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^()$]*)\)", one, text)


def mebibytes(quantity):
    number, unit = re.fullmatch(r"([0-9.]+)(Mi|Gi)", quantity).groups()
    return float(number) * {"Mi": 1, "Gi": 1024}[unit]


class Limits:
    """A control group, of version 1 or 2, with the limits of a pod."""

    def __init__(self, name, limits):
        self.folders = []
        wanted = []
        if "memory" in limits:
            wanted.append(("memory", "memory.limit_in_bytes", "memory.max", int(mebibytes(limits["memory"]) * 2**20)))
        if "cpu" in limits:
            quota = int(float(limits["cpu"]) * 100000)
            wanted.append(("cpu", "cpu.cfs_quota_us", "cpu.max", quota))
        for controller, first, second, value in wanted:
            one = f"/sys/fs/cgroup/{controller}"
            if os.path.isdir(one):
                self.set(f"{one}/{name}", first, value)
            elif controller in open("/sys/fs/cgroup/cgroup.subtree_control").read():
                self.set(f"/sys/fs/cgroup/{name}", second, f"{value} 100000" if controller == "cpu" else value)

    def set(self, folder, file, value):
        os.makedirs(folder, exist_ok=True)
        open(f"{folder}/{file}", "w").write(str(value))
        if folder not in self.folders:
            self.folders.append(folder)

    def enter(self):
        for folder in self.folders:
            open(f"{folder}/cgroup.procs", "w").write(str(os.getpid()))

    def remove(self):
        for folder in self.folders:
            for _ in range(100):
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    time.sleep(0.05)


def run(*command):
    subprocess.run(command, check=True)


class Pod:
    """One start of a pod."""

    def __init__(self, cluster, spec, host_name, subdomain, index, variables, fields):
        cluster.started += 1
        self.cluster, self.spec, self.index = cluster, spec, index
        self.number, self.host_name = cluster.started, host_name
        self.address = f"10.88.{self.number // 250}.{self.number % 250 + 2}"
        self.name = f"{host_name}.{subdomain}"
        self.folder = f"{cluster.folder}/pods/{self.number}-{host_name}"
        for part in ("upper", "work", "root"):
            os.makedirs(f"{self.folder}/{part}")
        self.log = f"{self.folder}/log"
        self.container = spec["containers"][0]
        self.limits = self.limited(self.container.get("resources", {}).get("limits", {}))
        self.net = f"{cluster.tag}-{self.number}"
        self.mounts()
        open(f"{self.folder}/resolv.conf", "w").close()
        self.write_names({})
        self.variables, self.fields = variables, fields
        self.started_at = time.monotonic()
        self.start()

    def limited(self, limits):
        return Limits(f"{self.cluster.tag}-{self.number}", limits)

    def mounts(self):
        cluster, spec = self.cluster, self.spec
        group = spec["securityContext"]["fsGroup"]
        lines = []
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "persistentVolumeClaim" in volume:
                folder = cluster.claims[volume["persistentVolumeClaim"]["claimName"]]
                run("chgrp", "-R", str(group), folder)
                run("chmod", "-R", "g+rwX", folder)
                lines.append(("bind", folder, mount["mountPath"], ""))
            elif "secret" in volume:
                folder = self.secret(volume["secret"], group)
                lines.append(("bind", folder, mount["mountPath"], "ro"))
            elif volume["emptyDir"].get("medium") == "Memory":
                size = volume["emptyDir"].get("sizeLimit")
                lines.append(
                    ("memory", "tmpfs", mount["mountPath"], f",size={int(mebibytes(size) * 1024)}k" if size else "")
                )
            else:
                folder = f"{self.folder}/volume-{mount['name']}"
                os.mkdir(folder)
                os.chmod(folder, 0o1777)
                lines.append(("bind", folder, mount["mountPath"], ""))
        self.lines = lines
        open(f"{self.folder}/mounts", "w").write("".join("\t".join(line) + "\n" for line in lines))

    def secret(self, volume, group):
        """As the kubelet writes it: a tmpfs, where ..data names a folder of a date; files of the group of the pod."""
        folder = f"{self.folder}/secret"
        dated = f"{folder}/..2026_11_30_00_00_00.1"
        os.mkdir(folder)
        run("mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "secret", folder)
        self.cluster.unmounted.append(folder)
        os.mkdir(dated)
        os.symlink(os.path.basename(dated), f"{folder}/..data")
        data = self.cluster.secrets[volume["secretName"]]
        if callable(data):
            data = data(self)
        for item in volume["items"]:
            path = f"{dated}/{item['path']}"
            open(path, "w").write(data[item["key"]])
            os.chown(path, 0, group)
            os.chmod(path, volume["defaultMode"])
            os.symlink(f"..data/{item['path']}", f"{folder}/{item['path']}")
        return folder

    def write_names(self, names):
        """In place: the file is a mount of the pod."""
        lines = ["127.0.0.1 localhost", f"{self.address} {self.host_name}"]
        lines += [f"{address} {name}" for name, address in names.items()]
        open(f"{self.folder}/hosts", "w").write("\n".join(lines) + "\n")

    def start(self):
        hub = self.cluster.hub
        run("ip", "netns", "add", self.net)
        run("ip", "-n", self.net, "link", "set", "lo", "up")
        run(
            "ip",
            "link",
            "add",
            f"v{self.number}",
            "netns",
            hub,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.net,
        )
        run("ip", "-n", hub, "link", "set", f"v{self.number}", "master", "pods", "up")
        run("ip", "-n", self.net, "addr", "add", f"{self.address}/16", "dev", "eth0")
        run("ip", "-n", self.net, "link", "set", "eth0", "up")
        variables = {"PATH": f"{self.cluster.image}/build:/usr/bin:/bin"} | self.variables
        for one in self.container["env"]:
            field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            variables[one["name"]] = self.fields[field] if field else expanded(one["value"], variables)
        words = [expanded(word, variables) for word in self.container["command"]]
        command, environment = self.command(variables, words)
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=open(self.log, "w"),
            stderr=subprocess.STDOUT,
            preexec_fn=self.limits.enter,
        )

    def command(self, variables, words):
        pod, own = self.spec["securityContext"], self.container["securityContext"]
        privileges = f"--reuid={pod['runAsUser']} --regid={pod['runAsGroup']} --groups={pod['fsGroup']}"
        if not own["allowPrivilegeEscalation"]:
            privileges += " --no-new-privs"
        if own["capabilities"]["drop"] == ["ALL"]:
            privileges += " --inh-caps=-all --bounding-set=-all"
        environment = {
            "PATH": os.environ["PATH"],
            "HOST_NAME": self.host_name,
            "POD": self.folder,
            "IMAGE": self.cluster.image,
            "WORK_DIR": self.container["workingDir"],
            "PRIVILEGES": privileges,
            "READ_ONLY": str(int(own["readOnlyRootFilesystem"])),
        }
        command = [
            "nsenter",
            f"--net=/run/netns/{self.net}",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--uts",
            "--ipc",
            "--kill-child=SIGKILL",
            "bash",
            "-c",
            SETUP,
            "setup",
        ]
        return command + [f"{name}={value}" for name, value in variables.items()] + words, environment

    def first_process(self):
        """Of this host's numbers, that of process 1 of the pod."""
        children = open(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read().split()
        return int(children[0]) if children else None

    def signal(self, number):
        try:
            if self.process.poll() is None and (first := self.first_process()):
                os.kill(first, number)
        except (ProcessLookupError, FileNotFoundError):
            pass

    def terminate(self):
        """SIGTERM, and SIGKILL after the grace period."""
        self.signal(signal.SIGTERM)
        grace = self.spec["terminationGracePeriodSeconds"]
        timer = threading.Timer(grace, self.signal, [signal.SIGKILL])
        timer.daemon = True
        timer.start()

    def code(self):
        """The exit code; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        return 128 - code if code < 0 else code

    def text(self):
        return open(self.log, errors="replace").read()

    def remove(self):
        self.signal(signal.SIGKILL)
        self.process.wait()
        subprocess.run(["ip", "netns", "del", self.net], check=False)
        self.limits.remove()


class Podman:
    """An image of a base system, in a store of its own, and its containers."""

    def __init__(self, folder, base):
        self.folder = f"{folder}/podman"
        os.makedirs(self.folder)
        self.settings = f"{self.folder}/containers.conf"
        open(self.settings, "w").write("[containers]\ndefault_ulimits = []\n")
        self.image = "localhost/base"
        self.words = ["podman", "--root", f"{self.folder}/store", "--runroot", f"{self.folder}/run"]
        # vfs: nothing is mounted that would outlive a test.
        self.words += ["--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager=cgroupfs"]
        if problem := self.call("import", base, self.image):
            sys.exit(f"FAILED: podman import {base}: {problem}")
        # Why no container runs here; "": one does.
        self.problem = self.call("run", "--rm", "--ulimit", "host", "--network", "none", self.image, "true")

    def environment(self):
        return os.environ | {"CONTAINERS_CONF": self.settings}

    def call(self, *words):
        """Returns the end of what it prints if it fails, else ""."""
        end = subprocess.run([*self.words, *words], env=self.environment(), capture_output=True, text=True)
        return (end.stderr.strip() or str(end.returncode))[-300:] if end.returncode else ""


class Container(Pod):
    """A pod that is a container of podman."""

    podman = None

    def limited(self, limits):
        self.flags = [f"--cpus={limits['cpu']}"] if "cpu" in limits else []
        if "memory" in limits:
            self.flags.append(f"--memory={int(mebibytes(limits['memory']) * 2**20)}")
        return Limits("", {})

    def command(self, variables, words):
        pod, own = self.spec["securityContext"], self.container["securityContext"]
        command = [*self.podman.words, "run", "--rm", "--ulimit", "host", "--no-hosts", *self.flags]
        command += ["--network", f"ns:/run/netns/{self.net}", "--hostname", self.host_name]
        command += ["--pidfile", f"{self.folder}/pid", "--workdir", self.container["workingDir"]]
        command += ["--user", f"{pod['runAsUser']}:{pod['runAsGroup']}", "--group-add", str(pod["fsGroup"])]
        command += [f"--cap-drop={name}" for name in own["capabilities"]["drop"]]
        if not own["allowPrivilegeEscalation"]:
            command.append("--security-opt=no-new-privileges")
        if own["readOnlyRootFilesystem"]:
            command += ["--read-only", "--read-only-tmpfs=false"]
        image = self.cluster.image
        for path, to in ((image, image), (f"{self.folder}/hosts", "/etc/hosts")):
            command += ["-v", f"{path}:{to}:ro"]
        command += ["-v", f"{self.folder}/resolv.conf:/etc/resolv.conf:ro"]
        for kind, path, to, options in self.lines:
            if kind == "memory":
                size = options.replace(",size=", ",tmpfs-size=")
                command += ["--mount", f"type=tmpfs,destination={to},tmpfs-mode=1777{size}"]
            else:
                command += ["-v", f"{path}:{to}" + (f":{options}" if options else "")]
        for name, value in variables.items():
            command += ["--env", f"{name}={value}"]
        return command + ["--entrypoint", "[]", self.podman.image, *words], self.podman.environment()

    def first_process(self):
        while self.process.poll() is None:  # podman has not started it yet
            try:
                return int(open(f"{self.folder}/pid").read())
            except (FileNotFoundError, ValueError):
                time.sleep(0.05)


class Cluster:
    """The network, claims and secrets; `late_s`: time until the headless service has a new pod's address."""

    def __init__(self, folder, image, claims, secrets, late_s=0.0):
        self.tag = f"ok{os.getpid()}"
        self.folder, self.image, self.claims, self.secrets, self.late_s = folder, image, claims, secrets, late_s
        self.started, self.hub, self.name_space, self.unmounted = 0, f"{self.tag}-hub", "team", []
        run("ip", "netns", "add", self.hub)
        run("ip", "-n", self.hub, "link", "add", "pods", "type", "bridge")
        run("ip", "-n", self.hub, "link", "set", "pods", "up")

    def close(self):
        for folder in self.unmounted:
            subprocess.run(["umount", "-l", folder], check=False)
        subprocess.run(["ip", "netns", "del", self.hub], check=False)
        shutil.rmtree(f"{self.folder}/pods", ignore_errors=True)


def jobset_of(documents):
    """Returns the JobSet of a manifest; the controller of TrainJob makes it from the runtime."""
    by_kind = {document["kind"]: document for document in documents}
    if "JobSet" in by_kind:
        return by_kind["JobSet"]
    train, runtime = by_kind["TrainJob"], by_kind["TrainingRuntime"]
    assert train["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    jobset = {"metadata": train["metadata"], "spec": runtime["spec"]["template"]["spec"]}
    job = jobset["spec"]["replicatedJobs"][0]["template"]
    assert job["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    job["spec"]["parallelism"] = job["spec"]["completions"] = train["spec"]["trainer"]["numNodes"]
    return jobset


class JobSet:
    """The Indexed Job of a JobSet. `step()` does what its controllers do next."""

    def __init__(self, cluster, documents):
        jobset = jobset_of(documents)
        (replicated,) = jobset["spec"]["replicatedJobs"]
        assert replicated["replicas"] == 1
        self.pod = Container if Container.podman else Pod
        self.cluster, self.name, self.job = cluster, jobset["metadata"]["name"], replicated["template"]["spec"]
        self.prefix, self.uid = f"{self.name}-{replicated['name']}-0", str(uuid.uuid4())
        self.pods, self.done, self.ended, self.disrupted = {}, set(), [], set()
        self.state, self.failures, self.names = "running", 0, {}
        self.suspended = False
        for index in range(self.job["parallelism"]):
            self.make(index)

    def make(self, index):
        variables = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{self.prefix}-{index}"}
        fields = {
            "metadata.namespace": self.cluster.name_space,
            "metadata.labels['batch.kubernetes.io/controller-uid']": self.uid,
        }
        self.pods[index] = self.pod(
            self.cluster, self.job["template"]["spec"], f"{self.prefix}-{index}", self.name, index, variables, fields
        )

    def publish(self):
        """The headless service has the address of a pod some time after its start, and until then the one before."""
        names = dict(self.names)
        for pod in self.pods.values():
            if time.monotonic() - pod.started_at >= self.cluster.late_s:
                names[pod.name] = pod.address
        changed, self.names = names != self.names, names
        for pod in self.pods.values():
            if changed or not getattr(pod, "knows", False):
                pod.write_names(names)
                pod.knows = True

    def rule(self, pod, code):
        for rule in self.job["podFailurePolicy"]["rules"]:
            codes = rule.get("onExitCodes")
            if codes and codes["operator"] == "In" and code in codes["values"]:
                return rule["action"]
            if "onPodConditions" in rule and pod in self.disrupted:
                return rule["action"]
        return "Count"

    def fail(self):
        self.state = "failed"
        for pod in self.pods.values():
            pod.terminate()

    def step(self):
        self.publish()
        for index, pod in list(self.pods.items()):
            code = pod.code()
            if code is None:
                continue
            del self.pods[index]
            self.ended.append((index, code, pod))
            pod.remove()
            if code == 0:
                self.done.add(index)
                continue
            action = self.rule(pod, code)
            self.failures += action == "Count"
            if self.state == "running" and (action == "FailJob" or self.failures > self.job["backoffLimit"]):
                self.fail()
            if self.state == "running" and not self.suspended:
                self.make(index)
        if len(self.done) == self.job["completions"]:
            self.state = "complete"

    def wait(self, what, limit_s=240):
        """Steps until what() is true."""
        until = time.monotonic() + limit_s
        while not what():
            if time.monotonic() > until:
                raise TimeoutError(self.report())
            self.step()
            time.sleep(0.05)

    def over(self):
        return self.state != "running" and not self.pods

    def suspend(self):
        self.suspended = True
        for pod in self.pods.values():
            pod.terminate()

    def resume(self):
        self.suspended = False
        for index in range(self.job["parallelism"]):
            if index not in self.pods and index not in self.done:
                self.make(index)

    def evict(self, index):
        """The notice of a preemption reaches one pod."""
        self.disrupted.add(self.pods[index])
        self.pods[index].terminate()

    def lose(self, index):
        """The machine of a pod is lost."""
        self.disrupted.add(self.pods[index])
        self.pods[index].signal(signal.SIGKILL)

    def codes(self):
        return [(index, code) for index, code, _ in self.ended]

    def report(self):
        parts = [f"{self.state}, ended: {self.codes()}, names: {self.names}"]
        for pod in [pod for _, _, pod in self.ended] + list(self.pods.values()):
            parts.append(f"--- {pod.number} {pod.host_name} {pod.address}\n" + "\n".join(pod.text().splitlines()[-15:]))
        return "\n".join(parts)

    def close(self):
        for pod in self.pods.values():
            pod.remove()
        self.pods = {}
