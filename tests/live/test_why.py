# SPDX-License-Identifier: GPL-2.0-only
"""copyscope why names the fault of a program that has one (faults.c, moves.c)."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from copyscope.base import paths
from namespaces import SINK, TAP, Hosts, veth, wait_until
from profiling import KERNEL, SLOW, in_all, is_root, record_of
from programs import Record, running, stretched

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]
MOVES, FAULTS, ACKS = (paths.OUTPUT / "tests" / name for name in ("moves", "faults", "acks"))
UNSUPPORTED_STATUS = 77
USES_IO_URING = ("unregistered", "registered", "ring_waits")
OPTMEM = "net.core.optmem_max"
# Interval in which a peer acknowledges, in microseconds.
OFTEN_US = 50


def why(how: str, directory: Path) -> Record:
    """Run `why` on `moves HOW` over loopback, where all zero-copy sends are copied late."""
    words = ("--duration", "3", "--", str(MOVES), how, "4s", str(directory / how))
    record = record_of(*words, verb="why", check=None)
    if record["target"]["status"] == UNSUPPORTED_STATUS:
        pytest.skip(f"this kernel cannot do {how}")
    return section_why(record)


def section_why(record: Record) -> Record:
    """Return the section `why` of a record. Skip the test if the kernel hides notifications."""
    if record.get("buffers") and record["buffers"][0]["given_back_sends"] is None:
        pytest.skip("before 5.14 no hook sees notifications")
    section: Record = record["why"]
    return section


@pytest.mark.all
def test_why_names_waiting_for_notifications_with_its_time(tmp_path: Path) -> None:
    problems_by_code = {problem["code"]: problem for problem in why("wait_each", tmp_path)["problems"]}
    # The order of the two problems depends on how busy the machine is.
    assert 0.5 < problems_by_code["waits"]["wall_share"] <= 1
    assert "copied" in problems_by_code


@pytest.mark.all
def test_why_names_a_missing_so_zerocopy(tmp_path: Path) -> None:
    (only,) = why("flag_alone", tmp_path)["problems"]
    assert only["code"] == "no_option" and "SO_ZEROCOPY" in only["change"]


@pytest.mark.all
def test_why_names_late_copies_and_a_slow_peer(tmp_path: Path) -> None:
    first, *others = why("wait_never", tmp_path)["problems"]
    assert first["code"] == "copied" and "on the same machine" in first["evidence"]
    assert [problem["code"] for problem in others] == ["slow_peer"]


@pytest.mark.all
def test_why_names_a_protocol_without_zero_copy(tmp_path: Path) -> None:
    """The missing option is not named, because MPTCP refuses it."""
    (only,) = why("mptcp", tmp_path)["problems"]
    assert only["code"] == "protocol" and "MPTCP" in only["what"]


@contextlib.contextmanager
def acknowledging(hosts: Hosts, address: str, microseconds: int) -> Iterator[None]:
    """Run a peer in `far` that acknowledges and reads nothing, so that zero-copy sends are never copied."""
    argv = [*hosts.inside("far"), str(ACKS), address, "vb", str(microseconds)]
    with running(argv) as peer:
        time.sleep(0.3 * SLOW)
        assert peer.poll() is None
        yield


@contextlib.contextmanager
def reading(hosts: Hosts, address: str) -> Iterator[None]:
    """Run a peer in `far` whose driver copies each packet for an XDP program.

    No notification reports that copy.
    """
    hosts.ip("far", f"link set dev vb xdpdrv obj {paths.OUTPUT / 'xdp_pass.bpf.o'} sec xdp")
    hosts.start("far", SINK, address)
    listening = [*hosts.inside("far"), "ss", "-Hltn"]
    wait_until(lambda: bool(subprocess.run(listening, capture_output=True, check=True).stdout))
    yield


def listening(hosts: Hosts, address: str) -> contextlib.AbstractContextManager[None]:
    """Listen to all packets of the sender, as tcpdump does."""
    hosts.start("near", TAP)
    return acknowledging(hosts, address, OFTEN_US)


def seldom(hosts: Hosts, address: str) -> contextlib.AbstractContextManager[None]:
    return acknowledging(hosts, address, 60_000)


def often(hosts: Hosts, address: str) -> contextlib.AbstractContextManager[None]:
    return acknowledging(hosts, address, OFTEN_US)


Peer = Callable[[Hosts, str], contextlib.AbstractContextManager[None]]


def set_optmem(hosts: Hosts, optmem_bytes: int) -> None:
    """Set the limit of option memory in `near`.

    Before 6.8 it is set for the whole machine, in guests only.
    """
    limit = ["sysctl", "-qw", f"{OPTMEM}={optmem_bytes}"]
    if not subprocess.run([*hosts.inside("near"), *limit], capture_output=True, check=False).returncode:
        return
    if SLOW == 1:
        pytest.skip(f"{OPTMEM} is not a setting of a network namespace here")
    subprocess.run(limit, check=True)


def problems(how: str, report: Path, peer: Peer = often, optmem_bytes: int = 1 << 24) -> list[Record]:
    """Run `why` on `faults HOW`, which sends from `near` over veth. Return its problems."""
    if how in USES_IO_URING and KERNEL < (6, 3):
        pytest.skip("before 6.3 no hook sees what io_uring sends")
    with contextlib.ExitStack() as held:
        hosts = Hosts(held)
        address = veth(hosts)
        set_optmem(hosts, optmem_bytes)
        held.enter_context(peer(hosts, address))
        argv = [*hosts.inside("near"), str(FAULTS), how, str(60 * SLOW), str(report), address]
        sender = held.enter_context(running(argv))
        time.sleep(0.3 * SLOW)
        if sender.poll() == UNSUPPORTED_STATUS:
            pytest.skip(f"this kernel cannot do {how}")
        record = record_of(str(sender.pid), "--duration", stretched(3), verb="why", check=None)
    rows: list[Record] = section_why(record)["problems"]
    return rows


@pytest.mark.parametrize(
    ("how", "peer", "codes", "message"),
    [
        in_all("never_read", often, ["never_read"], "never read the notifications of 100 % of its sends"),
        in_all("header_body", often, ["header_body"], "have a small buffer beside a large one"),
        ("none", listening, ["copied"], "the kernel copied 100 % of its zero-copy sends after all"),
        in_all("none", reading, ["silent"], "copied on the way, and notifications do not report it"),
        in_all("rare", seldom, ["late_ack"], "the kernel releases buffers late"),
        in_all("memlock", often, ["enobufs"], "of its sends with the flag ("),
        in_all("small", often, ["small"], "half of its bytes are sent in calls of 1 KiB or less"),
        in_all("fields", often, ["fields"], "each send has 100.0 buffers of 200 B"),
        in_all("small_fields", often, ["small", "fields"], "its sends are small"),
        in_all("unregistered", often, ["unregistered"], "100 % of its SEND_ZC requests use memory that"),
        in_all("ring_waits", often, ["waits"], "of the elapsed time"),
    ],
)
def test_why_names_the_fault_of_a_program(
    how: str, peer: Peer, codes: list[str], message: str, tmp_path: Path
) -> None:
    rows = problems(how, tmp_path / how, peer)
    assert [row["code"] for row in rows] == codes, rows
    assert message in rows[0]["what"]
    assert peer is not listening or "a packet socket on any (" in rows[0]["evidence"]


@pytest.mark.all
def test_why_names_the_limit_of_option_memory(tmp_path: Path) -> None:
    (only,) = problems("optmem", tmp_path / "optmem", optmem_bytes=4096)
    assert only["code"] == "enobufs" and f"{OPTMEM} is 4 KiB" in only["evidence"]


@pytest.mark.all
@pytest.mark.parametrize("how", ["none", "paced", "header_apart", "plain_between", "registered"])
def test_why_finds_no_problem_in_a_correct_program(how: str, tmp_path: Path) -> None:
    """`paced` pauses by its own clock; the other programs have the cure of a fault above."""
    assert problems(how, tmp_path / how) == []
