# SPDX-License-Identifier: GPL-2.0-only
"""Topology nics: how it is written, which interfaces it refuses, and which settings it restores."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from copyscope.base.errors import UsageError
from copyscope.machine.topology import LinkSettings, Topology, TopologyError, open_topology
from copyscope.machine.topology.links import features_to_restore, parse_interface, parse_json, why_not_usable
from copyscope.plan.arguments import parser
from copyscope.plan.options import check_usage

FEATURES = """\
Features for eth0:
rx-checksumming: off
tx-checksumming: on
\ttx-checksum-ip-generic: on
\ttx-checksum-sctp: off [fixed]
tcp-segmentation-offload: on
\ttx-tcp-segmentation: on
\ttx-tcp-mangleid-segmentation: off
generic-segmentation-offload: on
generic-receive-offload: on
large-receive-offload: off [fixed]
"""
HOME: dict[str, Any] = {
    "ifname": "eth0",
    "mtu": 1500,
    "flags": ["BROADCAST", "UP", "LOWER_UP"],
    "addr_info": [
        {
            "family": "inet",
            "local": "192.0.2.7",
            "prefixlen": 24,
            "broadcast": "192.0.2.255",
            "scope": "global",
            "label": "eth0",
            "valid_life_time": 3600,
            "preferred_life_time": 0xFFFFFFFF,
        },
        {"family": "inet", "local": "10.0.0.1", "address": "10.0.0.2", "prefixlen": 32, "scope": "link"},
        {"family": "inet6", "local": "2001:db8::7", "prefixlen": 64, "scope": "global"},
        {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
        {"family": "inet6", "local": "2001:db8::9", "prefixlen": 64, "scope": "global", "mngtmpaddr": True},
        {},
    ],
}
BARE: dict[str, Any] = {"ifname": "eth0", "mtu": 9000, "flags": ["BROADCAST"], "addr_info": []}


def open_nics(written: str) -> Topology:
    return open_topology(written, LinkSettings(), Path("x"))


def test_the_first_interface_is_the_senders() -> None:
    topology = open_nics("nics:eth2,eth1")
    assert dict(topology.devices) == {"sender": "eth2", "receiver": "eth1"}
    assert "dev eth2" in topology.routes["sender"] and "src 198.18.0.1" in topology.routes["sender"]
    assert topology.local_delivery is False and topology.kind == "nics"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("nics", "name two interfaces, the sender's first"),
        ("nics:", "name two interfaces"),
        ("nics:eth1", "name two interfaces"),
        ("nics:eth1,", "name two interfaces"),
        ("nics:,eth1", "name two interfaces"),
        ("nics:eth1,eth2,eth3", "name two interfaces"),
        ("nics:eth1,eth1", "eth1: named twice"),
        ("nics:../eth1,eth2", "not an interface name"),
        ("nics:eth1,..", "not an interface name"),
        ("nics:eth1, eth2", "not an interface name"),
        ("nics:eth1,a-name-longer-than-any", "not an interface name"),
    ],
)
def test_a_malformed_topology_nics_is_a_usage_error(written: str, words: str) -> None:
    args: argparse.Namespace = parser().parse_args(["--topology", written])
    with pytest.raises(UsageError) as caught:
        check_usage(args)
    line = str(caught.value)
    assert line.startswith("--topology nics") and words in line and "\n" not in line


def test_a_well_formed_topology_nics_is_accepted() -> None:
    assert check_usage(parser().parse_args(["--topology", "nics:eth1,enp3s0f1np1"]))


def test_nics_cannot_be_kept_because_they_are_given_back() -> None:
    with pytest.raises(TopologyError, match="given back at the end"):
        open_nics("nics:eth1,eth2").keep("mine")


def test_only_unused_ports_of_hardware_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "eth0" / "device").mkdir(parents=True)
    (tmp_path / "veth0").mkdir()
    (tmp_path / "eth1" / "device").mkdir(parents=True)
    (tmp_path / "eth1" / "upper_br0").mkdir()
    assert why_not_usable("eth0", tmp_path) is None
    assert "no such interface" in (why_not_usable("eth9", tmp_path) or "")
    assert "virtual interface" in (why_not_usable("veth0", tmp_path) or "")
    assert "br0 uses this interface" in (why_not_usable("eth1", tmp_path) or "")


@pytest.mark.parametrize(
    "route",
    [
        {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0", "protocol": "dhcp"},
        {"dst": "default", "protocol": "ra", "dev": "eth0", "table": "7"},
        {"dst": "default", "nexthops": [{"dev": "eth1"}, {"dev": "eth0"}]},
    ],
)
def test_an_interface_of_the_default_route_is_refused(route: dict[str, Any]) -> None:
    with pytest.raises(
        TopologyError, match=r"^--topology nics: eth0: the default route uses this interface;"
    ):
        parse_interface(BARE, FEATURES, [route], "e1000")


def test_settings_of_a_used_interface_are_noted_and_restored() -> None:
    other_route = {"dst": "default", "dev": "eth9"}
    unused = parse_interface(BARE, FEATURES, [other_route], "e1000")
    assert (unused.note(), unused.address_lines(), unused.up, unused.mtu_bytes) == (None, "", False, 9000)
    routes = [
        {"dst": "192.0.2.0/24", "dev": "eth0", "protocol": "kernel"},
        {"dst": "203.0.113.0/24", "dev": "eth0", "gateway": "192.0.2.1"},
        other_route,
    ]
    used = parse_interface(HOME, FEATURES, routes, "e1000")
    assert used.note() == (
        "eth0 was in use here (192.0.2.7/24, 10.0.0.1/32, 2001:db8::7/64; routes that are not restored: 1)"
    )
    assert used.up and used.address_lines().splitlines() == [
        "addr replace 192.0.2.7/24 broadcast 192.0.2.255 scope global label eth0 valid_lft 3600 dev eth0",
        "addr replace 10.0.0.1 peer 10.0.0.2/32 scope link dev eth0",
        "addr replace 2001:db8::7/64 scope global dev eth0",
    ]


def test_offloads_are_restored_by_the_names_that_ethtool_takes() -> None:
    after = FEATURES.replace("tx-tcp-segmentation: on", "tx-tcp-segmentation: off")
    after = after.replace("tcp-segmentation-offload: on", "tcp-segmentation-offload: off")
    after = after.replace("mangleid-segmentation: off", "mangleid-segmentation: on")
    after = after.replace("generic-receive-offload: on", "generic-receive-offload: off")
    after = after.replace("rx-checksumming: off", "rx-checksumming: on")
    assert features_to_restore(FEATURES, FEATURES) == []
    assert features_to_restore(FEATURES, after) == [
        *("rx", "off", "tx-tcp-segmentation", "on", "tx-tcp-mangleid-segmentation", "off", "gro", "on")
    ]


def test_empty_output_of_ip_has_no_rows() -> None:
    assert parse_json("") == [] and parse_json(json.dumps([BARE])) == [BARE]
