# SPDX-License-Identifier: GPL-2.0-only
"""Network path of a run: anonymous network namespaces and the link between them.

Example:

with open_topology("veth", LinkSettings(mtu_bytes=9000), xdp_object) as topology:
    argv = [*topology.command("sender"), ".output/traffic", "send", ...]
    record["topology"] = topology.describe()
"""

from copyscope.machine.topology.kinds import KINDS, TOPOLOGY_CHOICES, open_topology
from copyscope.machine.topology.namespace import (
    Namespace,
    TopologyError,
    WorkloadUser,
    environment_of,
    invoking_user,
    owner_of,
)
from copyscope.machine.topology.topology import SIDES, KeptNamespaces, LinkSettings, Side, Topology

__all__ = [
    "KINDS",
    "SIDES",
    "TOPOLOGY_CHOICES",
    "KeptNamespaces",
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
