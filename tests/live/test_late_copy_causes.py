# SPDX-License-Identifier: GPL-2.0-only
"""Causes of late copies: the path between two hosts decides which cause is right, and the record names it."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from namespaces import SINK, TAP, Hosts, veth, wait_until
from profiling import KERNEL, is_root
from programs import bytes_of, stretched, watch

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]
Record = dict[str, Any]

SENDER = """
import errno, select, socket, sys
peer = socket.create_connection((sys.argv[1], 7000))
SO_ZEROCOPY, MSG_ZEROCOPY, MSG_ERRQUEUE = 60, 0x4000000, 0x2000
peer.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
block = bytes(1 << 16)
while True:
    try:
        peer.send(block, MSG_ZEROCOPY)
    except OSError as error:
        assert error.errno == errno.ENOBUFS
        select.select([], [], [peer], 1)
    with __import__("contextlib").suppress(BlockingIOError):
        peer.recvmsg(1, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
"""


def veth6(hosts: Hosts) -> str:
    veth(hosts)
    hosts.ip("near", "address add fd77::1/64 dev va nodad")
    hosts.ip("far", "address add fd77::2/64 dev vb nodad")
    return "fd77::2"


def vxlan(hosts: Hosts) -> str:
    veth(hosts)
    for name, device, mine, its in (("near", "va", 1, 2), ("far", "vb", 2, 1)):
        ends = f"local 10.77.0.{mine} remote 10.77.0.{its}"
        hosts.ip(name, f"link add vx type vxlan id 7 {ends} dstport 4789 dev {device}")
        hosts.up(name, "vx", f"10.79.0.{mine}/24")
    return "10.79.0.2"


def geneve(hosts: Hosts) -> str:
    veth(hosts)
    for name, mine, its in (("near", 1, 2), ("far", 2, 1)):
        hosts.ip(name, f"link add gv type geneve id 7 remote 10.77.0.{its}")
        hosts.up(name, "gv", f"10.79.0.{mine}/24")
    return "10.79.0.2"


def bridge(hosts: Hosts) -> str:
    hosts.ip("hub", "link add br0 type bridge")
    hosts.ip("hub", "link set br0 up")
    for name, letter, number in (("near", "a", 1), ("far", "b", 2)):
        hosts.ip("hub", f"link add h{letter} type veth peer name v{letter} netns {name}")
        hosts.ip("hub", f"link set h{letter} master br0 up")
        hosts.up(name, f"v{letter}", f"10.77.0.{number}/24")
    return "10.77.0.2"


def stacked(kind: str) -> Callable[[Hosts], str]:
    def make(hosts: Hosts) -> str:
        hosts.ip("hub", "link add mp type veth peer name mq")
        hosts.ip("hub", "link set mp up")
        hosts.ip("hub", "link set mq up")
        for name, letter, number in (("near", "a", 1), ("far", "b", 2)):
            mode = "mode bridge" if kind == "macvlan" else "mode l2"
            hosts.ip("hub", f"link add link mp name v{letter} netns {name} type {kind} {mode}")
            hosts.up(name, f"v{letter}", f"10.77.0.{number}/24")
        return "10.77.0.2"

    return make


def route(hosts: Hosts) -> str:
    forward = [*hosts.inside("hub"), "sysctl", "-qw", "net.ipv4.ip_forward=1"]
    subprocess.run(forward, check=True)
    for name, letter, net in (("near", "a", 77), ("far", "b", 78)):
        hosts.ip(name, f"link add v{letter} type veth peer name r{letter} netns hub")
        hosts.up(name, f"v{letter}", f"10.{net}.0.2/24")
        hosts.up("hub", f"r{letter}", f"10.{net}.0.254/24")
        hosts.ip(name, f"route add default via 10.{net}.0.254")
    return "10.78.0.2"


def tun(hosts: Hosts) -> str:
    hosts.relay("near", "far")
    hosts.up("near", "tun0", "10.77.0.1/24")
    hosts.up("far", "tun0", "10.77.0.2/24")
    return "10.77.0.2"


def route_to_tun(hosts: Hosts) -> str:
    """Connect `near` to the router `hub`, which reaches `far` through a program between two tun devices."""
    subprocess.run([*hosts.inside("hub"), "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
    hosts.ip("near", "link add va type veth peer name ra netns hub")
    hosts.up("near", "va", "10.77.0.2/24")
    hosts.up("hub", "ra", "10.77.0.254/24")
    hosts.ip("near", "route add default via 10.77.0.254")
    hosts.relay("hub", "far")
    hosts.up("hub", "tun0", "10.78.0.254/24")
    hosts.up("far", "tun0", "10.78.0.2/24")
    hosts.ip("far", "route add default via 10.78.0.254")
    return "10.78.0.2"


@contextlib.contextmanager
def watched_sender(path: Callable[[Hosts], str], tapped: str | None = None) -> Iterator[Record]:
    """Watch a sender in `near` that sends to a sink in `far`. Yield the record.

    `tapped` is the host in which a packet socket listens to every packet.
    """
    with contextlib.ExitStack() as held:
        hosts = Hosts(held)
        address = path(hosts)
        hosts.start("far", SINK, address)
        listening = [*hosts.inside("far"), "ss", "-Hltn"]
        wait_until(lambda: bool(subprocess.run(listening, capture_output=True, check=True).stdout))
        if tapped is not None:
            hosts.start(tapped, TAP)
        pid = hosts.start("near", SENDER, address)
        yield watch(str(pid), "--duration", stretched(2), "--frequency", "997", check=None)


def late_copy_cause(record: Record) -> tuple[Record, str]:
    """Check that the copies were late copies, and return (cause, its sentence)."""
    zerocopy = record["zerocopy"]
    # The program keeps sending while the two counters are read one after the other.
    assert zerocopy["copied"] == pytest.approx(zerocopy["completions"], rel=0.01) and zerocopy["copied"]
    # A send in progress at the end of a segment has no completion in it.
    assert bytes_of(record, "deferred") > 1000 * bytes_of(record, "silent")
    samples_by_account = {row["account"]: 0 for row in record["ledger"]}
    for row in record["ledger"]:
        samples_by_account[row["account"]] += row["samples"] or 0
    # A packet socket copies the head of each packet, and a tunnel makes room for its header: both count as
    # hidden copies. Most copies of tun run in the program that reads the device, and are not known to belong
    # to this run.
    assert samples_by_account["deferred"] >= 4 * samples_by_account.get("silent", 0), samples_by_account
    return zerocopy["cause"], zerocopy["cause"]["sentence"]


PATHS: dict[str, Callable[[Hosts], str]] = {
    "macvlan": stacked("macvlan"),
    "veth": veth,
    "veth6": veth6,
    "vxlan": vxlan,
    "geneve": geneve,
    "bridge": bridge,
    "ipvlan": stacked("ipvlan"),
    "route": route,
}


@pytest.mark.parametrize(
    ("kind", "tapped"),
    [
        ("macvlan", "near"),
        *(pytest.param(name, None, marks=pytest.mark.all) for name in PATHS),
        *(pytest.param(name, "near", marks=pytest.mark.all) for name in PATHS if name != "macvlan"),
    ],
)
def test_late_copies_for_a_peer_on_this_machine_are_local_delivery(kind: str, tapped: str | None) -> None:
    with watched_sender(PATHS[kind], tapped) as record:
        cause, sentence = late_copy_cause(record)
    assert cause["code"] == "local_delivery" and "likely" not in sentence
    assert record["topology"]["local_delivery"] and record["portrait"]["local_share"] == 1
    assert "this path cannot show a gain" in sentence
    # Before 6.17 the receiver's copy may come first. Then the packet socket needs no copy of its own.
    if tapped:
        assert "a packet socket on any (" in sentence
    else:
        assert "packet socket" not in sentence


@pytest.mark.all
@pytest.mark.parametrize("path", [tun, route_to_tun])
def test_late_copies_for_a_peer_behind_a_tun_device_are_not_local_delivery(
    path: Callable[[Hosts], str],
) -> None:
    """A tun device computes no checksums, so skb_segment() copies the packets of zero-copy sends."""
    with watched_sender(path) as record:
        cause, sentence = late_copy_cause(record)
    if path is route_to_tun and "before 6.17" in sentence:  # the router receives the packets
        assert cause["code"] == "received" and KERNEL < (6, 17)
    else:
        assert cause["code"] == "no_offload", sentence
        assert ("tun0 has no checksum offload" if path is tun else "a device on the way") in sentence
    assert not record["topology"]["local_delivery"] and record["portrait"]["local_share"] == 0
    assert "on this machine" not in record["verdict"]["sentence"]


@pytest.mark.all
def test_a_program_behind_a_tun_device_copies_packets_and_receives_none() -> None:
    """QEMU does the same for a guest.

    Its copies are a row of their own, and none is counted for its sockets.
    """
    with contextlib.ExitStack() as held:
        hosts = Hosts(held)
        relay_pid = hosts.relay("near", "far")
        hosts.up("near", "tun0", "10.77.0.1/24")
        hosts.up("far", "tun0", "10.77.0.2/24")
        hosts.start("far", SINK, "10.77.0.2")
        listening = [*hosts.inside("far"), "ss", "-Hltn"]
        wait_until(lambda: bool(subprocess.run(listening, capture_output=True, check=True).stdout))
        hosts.start("near", SENDER, "10.77.0.2")
        record = watch(str(relay_pid), "--duration", stretched(2), "--frequency", "997")
    shares = {row["account"]: row["share"] or 0.0 for row in record["ledger"]}
    assert shares["tun"] > 0.2 and shares["tun"] == max(shares.values()), shares
    assert all(not row["bytes"] for row in record["ledger"])
    assert all(row["bytes"] == 0 for row in record.get("volume", []))


@pytest.mark.all
def test_with_a_packet_socket_at_the_receiver_the_cause_is_local_delivery() -> None:
    with watched_sender(veth, "far") as record:
        cause, sentence = late_copy_cause(record)
    assert cause["code"] == "local_delivery" and "this path cannot show a gain" in sentence
