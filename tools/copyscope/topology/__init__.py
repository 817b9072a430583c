"""Where a run takes place: anonymous network namespaces and the link between them.

with open_topology("veth", LinkSettings(mtu_bytes=9000), xdp_object) as topology:
    argv = [*topology.command("sender"), ".output/traffic", "send", ...]
    record["topology"] = topology.describe()
"""

from copyscope.topology.hosts import Hosts
from copyscope.topology.kinds import KINDS, WRITTEN, open_topology
from copyscope.topology.namespace import Namespace
from copyscope.topology.shell import TopologyError
from copyscope.topology.topology import SIDES, Kept, LinkSettings, Side, Topology
from copyscope.topology.workload_user import WorkloadUser, environment_of, invoking_user, owner_of

__all__ = [
    "KINDS",
    "SIDES",
    "WRITTEN",
    "Hosts",
    "Kept",
    "LinkSettings",
    "Namespace",
    "Side",
    "Topology",
    "TopologyError",
    "WorkloadUser",
    "environment_of",
    "invoking_user",
    "open_topology",
    "owner_of",
]
