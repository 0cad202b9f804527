"""Starts a job's agents (orrery run --nodes ...) on a Ray cluster: an actor for each node, placed on nodes of its own
and placed again by Ray when a node is lost. It is the entrypoint of the Ray jobs that `orrery submit --engine ray`
makes, which have a description in the variable ORRERY_RAY, and, with "stop", of what `orrery stop` makes."""
import json
import os
import secrets
import signal
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(max_restarts=-1, max_task_retries=-1, max_concurrency=4)
class Node:
    agent = None

    def address(self):
        return ray.util.get_node_ip_address()

    def run(self, number, meeting, token, job):
        """Runs the agent to its end and returns its exit code; None if node 0 is not where the others look for it."""
        if number == 0 and self.address() != meeting:
            return None
        command = ["setpriv", "--pdeathsig", "KILL", "env", "--default-signal=INT"]  # Ray's processes ignore SIGINT
        command += ["sh", "-c", job["shell"], "agent", *job["command"]]
        if job["nodes"] + job["spares"] > 1:
            host = f"[{meeting}]" if ":" in meeting else meeting
            command += ["--nodes", str(job["nodes"]), "--node-rank", str(number)]
            command += ["--rendezvous", f"{host}:{job['port']}"]
        environment = {**os.environ, **job["environment"], "ORRERY_TOKEN": token}
        self.agent = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        return self.agent.wait()

    def stop(self, number):
        if self.agent and self.agent.poll() is None:
            self.agent.send_signal(number)


def start_nodes(job):
    bundle = {"CPU": job["cpus"], "GPU": job["gpus"]} if job["gpus"] else {"CPU": job["cpus"]}
    group = placement_group([bundle] * (job["nodes"] + job["spares"]), strategy="STRICT_SPREAD")
    while not group.wait(30):
        print(f"{job['folder']} waits for {group.bundle_count} free nodes with {bundle} each; the whole cluster has "
              f"{ray.cluster_resources()}")
    places = [PlacementGroupSchedulingStrategy(group, i) for i in range(group.bundle_count)]
    options = {"num_cpus": job["cpus"], "num_gpus": job["gpus"]}
    return [Node.options(name=f"node{i}", scheduling_strategy=at, **options).remote() for i, at in enumerate(places)]


def run(job):
    name = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["metadata"]["job_submission_id"]
    job["environment"]["ORRERY_RAY_JOB"] = name
    ray.init(namespace=name)
    nodes, token = start_nodes(job), secrets.token_hex(32)
    while True:
        meeting = ray.get(nodes[0].address.remote())
        first, *others = [node.run.remote(i, meeting, token, job) for i, node in enumerate(nodes)]
        code = ray.get(first)
        if code is not None:
            ray.wait([*others, first], num_returns=len(nodes), timeout=60)
            return code
        print("node 0 is on another host: all agents start again")
        ray.get([node.stop.remote(signal.SIGKILL) for node in nodes[1:]] + others)


def stop(name):
    ray.init(namespace=name)
    ray.get(ray.get_actor("node0").stop.remote(signal.SIGINT))
    print(f"node 0 of {name} gets SIGINT: its ranks save and end")


if __name__ == "__main__":
    described = json.loads(os.environ["ORRERY_RAY"])
    sys.exit(stop(described["name"]) if sys.argv[1:] == ["stop"] else run(described))
