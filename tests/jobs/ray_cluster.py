"""A Ray cluster of a head and three raylets on the address of the command line, until its input ends. `where NAME`
prints the id of the node that has the actor NAME; `kill NAME` also ends that raylet, and `add raylet` adds one."""
import sys

import ray
from ray.cluster_utils import Cluster
from ray.util.state import list_actors

memory = {"object_store_memory": 80_000_000, "node_ip_address": sys.argv[1]}
cluster = Cluster(initialize_head=True, head_node_args={
    "num_cpus": 0, "include_dashboard": True, "dashboard_host": sys.argv[1], **memory})
raylets = [cluster.add_node(num_cpus=1, **memory) for _ in range(3)]
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
print("ready", cluster.head_node.webui_url, flush=True)
for line in sys.stdin:
    what, name = line.split()
    if what == "add":
        raylets.append(cluster.add_node(num_cpus=1, **memory))
    actors = list_actors(filters=[("name", "=", name), ("state", "=", "ALIVE")])
    at = actors[0].node_id if actors else "nowhere"
    if what == "kill":
        cluster.remove_node(next(raylet for raylet in raylets if raylet.node_id == at), allow_graceful=False)
    print(what, name, at, flush=True)
