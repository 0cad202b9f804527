"""A Ray cluster of a head and three raylets on the address of the command line, until its input ends. `where NAME`
prints the id of the node that has the actor NAME; `kill NAME` also ends that raylet, and `add raylet` adds one."""
import itertools
import sys

import ray
from ray.cluster_utils import Cluster
from ray.util.state import list_actors

ports = itertools.count(8265)


def started(start, **more):
    # On a busy machine a raylet ends because its agents have not written their ports within 15 s
    # (ray-project/ray#65983): it is started again, ten times at most.
    for left in range(9, -1, -1):
        try:
            return start(object_store_memory=80_000_000, node_ip_address=sys.argv[1], **more)
        except Exception as late:
            if not left:
                raise
            print(late, "and is started again", file=sys.stderr, flush=True)


def head(**more):
    return Cluster(initialize_head=True, head_node_args={"dashboard_port": next(ports), **more})


cluster = started(head, num_cpus=0, include_dashboard=True, dashboard_host=sys.argv[1])
raylets = [started(cluster.add_node, num_cpus=1, wait=False) for _ in range(3)]
cluster.wait_for_nodes(600)
ray.init(address=cluster.address, log_to_driver=False)
print("ready", cluster.head_node.webui_url, flush=True)
for line in sys.stdin:
    what, name = line.split()
    if what == "add":
        raylets.append(started(cluster.add_node, num_cpus=1, wait=False))
    actors = list_actors(filters=[("name", "=", name), ("state", "=", "ALIVE")])
    at = actors[0].node_id if actors else "nowhere"
    if what == "kill":
        cluster.remove_node(next(raylet for raylet in raylets if raylet.node_id == at), allow_graceful=False)
    print(what, name, at, flush=True)
