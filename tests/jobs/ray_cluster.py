"""A Ray cluster of a head and three raylets on the address of the command line, until its input ends. `where NAME`
prints the id of the node that has the actor NAME; `kill NAME` also ends that raylet, and `add raylet` adds one."""
import itertools
import sys

import ray
from ray.cluster_utils import Cluster
from ray.util.state import list_actors

ports = itertools.count(10001)


def node(**more):
    # A raylet exits if it does not learn within 15 s which ports its agents chose (ray-project/ray#65983), as on a
    # busy machine: it gets them from here.
    chosen = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
    return {"object_store_memory": 80_000_000, "node_ip_address": sys.argv[1], **dict(zip(chosen, ports)), **more}


cluster = Cluster(initialize_head=True, head_node_args=node(
    num_cpus=0, include_dashboard=True, dashboard_host=sys.argv[1]))
raylets = [cluster.add_node(wait=False, **node(num_cpus=1)) for _ in range(3)]
cluster.wait_for_nodes(600)
ray.init(address=cluster.address, log_to_driver=False)
print("ready", cluster.head_node.webui_url, flush=True)
for line in sys.stdin:
    what, name = line.split()
    if what == "add":
        raylets.append(cluster.add_node(wait=False, **node(num_cpus=1)))
    actors = list_actors(filters=[("name", "=", name), ("state", "=", "ALIVE")])
    at = actors[0].node_id if actors else "nowhere"
    if what == "kill":
        cluster.remove_node(next(raylet for raylet in raylets if raylet.node_id == at), allow_graceful=False)
    print(what, name, at, flush=True)
