"""Two interfaces for a run: what is written, what is refused, what is given back. No interface is touched."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from copyscope.errors import UsageError
from copyscope.plan.arguments import parser
from copyscope.plan.options import check_usage
from copyscope.topology import LinkSettings, Topology, TopologyError, open_topology
from copyscope.topology.inspection import parse_json
from copyscope.topology.interface import make_interface, switched, why_not_taken

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


def test_the_first_is_the_senders() -> None:
    made = open_nics("nics:eth2,eth1")
    assert dict(made.devices) == {"sender": "eth2", "receiver": "eth1"}
    assert "dev eth2" in made.routes["sender"] and "src 198.18.0.1" in made.routes["sender"]
    assert made.local_delivery is False and made.kind == "nics"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("nics", "name two interfaces, sender first: nics:IFA,IFB"),
        ("nics:", "name two interfaces"),
        ("nics:eth1", "name two interfaces"),
        ("nics:eth1,", "name two interfaces"),
        ("nics:,eth1", "name two interfaces"),
        ("nics:eth1,eth2,eth3", "name two interfaces"),
        ("nics:eth1,eth1", "eth1: named twice"),
        ("nics:../eth1,eth2", "not the name of an interface"),
        ("nics:eth1,..", "not the name of an interface"),
        ("nics:eth1, eth2", "not the name of an interface"),
        ("nics:eth1,a-name-longer-than-any", "not the name of an interface"),
    ],
)
def test_wrong_writing_is_wrong_usage(written: str, words: str) -> None:
    args: argparse.Namespace = parser().parse_args(["--topology", written])
    with pytest.raises(UsageError) as caught:
        check_usage(args)
    line = str(caught.value)
    assert line.startswith("--topology: nics") and words in line and "\n" not in line


def test_right_writing_is_right() -> None:
    assert check_usage(parser().parse_args(["--topology", "nics:eth1,enp3s0f1np1"]))


def test_kept_namespaces_would_be_empty() -> None:
    with pytest.raises(TopologyError, match="given back at the end"):
        open_nics("nics:eth1,eth2").keep("mine")


def test_only_free_ports_of_real_cards_are_taken(tmp_path: Path) -> None:
    (tmp_path / "eth0" / "device").mkdir(parents=True)
    (tmp_path / "veth0").mkdir()
    (tmp_path / "eth1" / "device").mkdir(parents=True)
    (tmp_path / "eth1" / "upper_br0").mkdir()
    assert why_not_taken("eth0", tmp_path) is None
    assert "no such interface" in (why_not_taken("eth9", tmp_path) or "")
    assert "virtual interface" in (why_not_taken("veth0", tmp_path) or "")
    assert "br0 is built on it" in (why_not_taken("eth1", tmp_path) or "")


@pytest.mark.parametrize(
    "route",
    [
        {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0", "protocol": "dhcp"},
        {"dst": "default", "protocol": "ra", "dev": "eth0", "table": "7"},
        {"dst": "default", "nexthops": [{"dev": "eth1"}, {"dev": "eth0"}]},
    ],
)
def test_a_default_route_is_not_taken_away(route: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match=r"^topology: nics: eth0: the default route goes through it: use"):
        make_interface(BARE, FEATURES, [route], "e1000")


def test_what_is_taken_is_noted() -> None:
    elsewhere = {"dst": "default", "dev": "eth9"}
    unused = make_interface(BARE, FEATURES, [elsewhere], "e1000")
    assert (unused.note(), unused.address_lines(), unused.up, unused.mtu_bytes) == (None, "", False, 9000)
    routes = [
        {"dst": "192.0.2.0/24", "dev": "eth0", "protocol": "kernel"},
        {"dst": "203.0.113.0/24", "dev": "eth0", "gateway": "192.0.2.1"},
        elsewhere,
    ]
    used = make_interface(HOME, FEATURES, routes, "e1000")
    assert used.note() == (
        "eth0 was in use here (192.0.2.7/24, 10.0.0.1/32, 2001:db8::7/64; routes of others, not restored: 1)"
    )
    assert used.up and used.address_lines().splitlines() == [
        "addr replace 192.0.2.7/24 broadcast 192.0.2.255 scope global label eth0 valid_lft 3600 dev eth0",
        "addr replace 10.0.0.1 peer 10.0.0.2/32 scope link dev eth0",
        "addr replace 2001:db8::7/64 scope global dev eth0",
    ]


def test_offloads_go_back_by_the_names_that_ethtool_takes() -> None:
    after = FEATURES.replace("tx-tcp-segmentation: on", "tx-tcp-segmentation: off")
    after = after.replace("tcp-segmentation-offload: on", "tcp-segmentation-offload: off")
    after = after.replace("mangleid-segmentation: off", "mangleid-segmentation: on")
    after = after.replace("generic-receive-offload: on", "generic-receive-offload: off")
    after = after.replace("rx-checksumming: off", "rx-checksumming: on")
    assert switched(FEATURES, FEATURES) == []
    assert switched(FEATURES, after) == [
        *("rx", "off", "tx-tcp-segmentation", "on", "tx-tcp-mangleid-segmentation", "off", "gro", "on")
    ]


def test_no_rows_is_no_text() -> None:
    assert parse_json("") == [] and parse_json(json.dumps([BARE])) == [BARE]
