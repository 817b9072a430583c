"""A program with one fault is told of that fault first."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from copyscope import paths
from namespaces import SINK, TAP, Hosts, veth, wait_until
from profiling import KERNEL, SLOW, in_all, is_root, record_of
from programs import Record, running, stretched

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]
MOVES, FAULTS, ACKS = (paths.OUTPUT / "tests" / name for name in ("moves", "faults", "acks"))
CANNOT = 77
OF_RINGS = ("unregistered", "registered", "ring_waits")
OPTMEM = "net.core.optmem_max"
# How often a peer acknowledges, in microseconds.
OFTEN = 50


def why(how: str, directory: Path) -> Record:
    """What `why` says of such a program, over loopback, where all zero-copy sends are copied."""
    words = ("--duration", "3", "--", str(MOVES), how, "4s", str(directory / how))
    record = record_of(*words, verb="why", check=None)
    if record["target"]["status"] == CANNOT:
        pytest.skip(f"this kernel cannot do {how}")
    return known(record)


def known(record: Record) -> Record:
    if record.get("buffers") and record["buffers"][0]["given_back_sends"] is None:
        pytest.skip("before 5.14 nobody sees notices")
    found: Record = record["why"]
    return found


@pytest.mark.all
def test_waiting_for_each_notice_is_named_with_the_time_that_it_takes(tmp_path: Path) -> None:
    found = {one["code"]: one for one in why("wait_each", tmp_path)["problems"]}
    # which of the two comes first depends on how busy the machine is
    assert 0.5 < found["waits"]["wall_share"] <= 1
    assert "copied" in found


@pytest.mark.all
def test_the_flag_without_the_option_is_named(tmp_path: Path) -> None:
    (only,) = why("flag_alone", tmp_path)["problems"]
    assert only["code"] == "no_option" and "SO_ZEROCOPY" in only["change"]


@pytest.mark.all
def test_a_copy_on_this_machine_and_a_peer_that_reads_slowly_are_named(tmp_path: Path) -> None:
    first, *others = why("wait_never", tmp_path)["problems"]
    assert first["code"] == "copied" and "local delivery" in first["evidence"]
    assert [one["code"] for one in others] == ["slow_peer"]


@pytest.mark.all
def test_a_protocol_without_zero_copy_is_named(tmp_path: Path) -> None:
    """And not the option, which it refuses."""
    (only,) = why("mptcp", tmp_path)["problems"]
    assert only["code"] == "protocol" and "MPTCP" in only["what"]


@contextlib.contextmanager
def acknowledging(hosts: Hosts, address: str, microseconds: int) -> Iterator[None]:
    """A peer in `far` that takes nothing: on the way to it no zero-copy send is copied."""
    argv = [*hosts.inside("far"), str(ACKS), address, "vb", str(microseconds)]
    with running(argv) as peer:
        time.sleep(0.3 * SLOW)
        assert peer.poll() is None
        yield


@contextlib.contextmanager
def reading(hosts: Hosts, address: str) -> Iterator[None]:
    """A peer in `far` whose driver copies each packet for an XDP program, and no notice says so."""
    hosts.ip("far", f"link set dev vb xdpdrv obj {paths.OUTPUT / 'xdp_pass.bpf.o'} sec xdp")
    hosts.start("far", SINK, address)
    listening = [*hosts.inside("far"), "ss", "-Hltn"]
    wait_until(lambda: bool(subprocess.run(listening, capture_output=True, check=True).stdout))
    yield


def listening(hosts: Hosts, address: str) -> contextlib.AbstractContextManager[None]:
    """As tcpdump does, to all that the sender sends."""
    hosts.start("near", TAP)
    return acknowledging(hosts, address, OFTEN)


def seldom(hosts: Hosts, address: str) -> contextlib.AbstractContextManager[None]:
    return acknowledging(hosts, address, 60_000)


def often(hosts: Hosts, address: str) -> contextlib.AbstractContextManager[None]:
    return acknowledging(hosts, address, OFTEN)


Peer = Callable[[Hosts, str], contextlib.AbstractContextManager[None]]


def set_optmem(hosts: Hosts, optmem_bytes: int) -> None:
    """Of `near`; before 6.8 of the whole machine, which is changed where that is a guest."""
    limit = ["sysctl", "-qw", f"{OPTMEM}={optmem_bytes}"]
    if not subprocess.run([*hosts.inside("near"), *limit], capture_output=True, check=False).returncode:
        return
    if SLOW == 1:
        pytest.skip(f"{OPTMEM} is not of a network namespace here")
    subprocess.run(limit, check=True)


def problems(how: str, report: Path, peer: Peer = often, optmem_bytes: int = 1 << 24) -> list[Record]:
    """What `why` finds in a sender of `near`, over veth."""
    if how in OF_RINGS and KERNEL < (6, 3):
        pytest.skip("before 6.3 nobody sees what io_uring sends")
    with contextlib.ExitStack() as held:
        hosts = Hosts(held)
        address = veth(hosts)
        set_optmem(hosts, optmem_bytes)
        held.enter_context(peer(hosts, address))
        argv = [*hosts.inside("near"), str(FAULTS), how, str(60 * SLOW), str(report), address]
        sender = held.enter_context(running(argv))
        time.sleep(0.3 * SLOW)
        if sender.poll() == CANNOT:
            pytest.skip(f"this kernel cannot do {how}")
        record = record_of(str(sender.pid), "--duration", stretched(3), verb="why", check=None)
    found: list[Record] = known(record)["problems"]
    return found


@pytest.mark.parametrize(
    ("how", "peer", "codes", "said"),
    [
        in_all("never_read", often, ["never_read"], "never read the notices of 100 % of its sends"),
        in_all("header_body", often, ["header_body"], "have a small buffer beside a large one"),
        ("none", listening, ["copied"], "the kernel copied 100 % of its zero-copy sends after all"),
        in_all("none", reading, ["silent"], "copied on the way, and notices do not say so"),
        in_all("rare", seldom, ["late_ack"], "buffers come back late"),
        in_all("memlock", often, ["enobufs"], "of its sends with the flag were refused"),
        in_all("small", often, ["small"], "half of its bytes go in calls of 1 KiB or less"),
        in_all("fields", often, ["fields"], "each send has 100.0 buffers of 200 B"),
        in_all("small_fields", often, ["small", "fields"], "its sends are small"),
        in_all("unregistered", often, ["unregistered"], "100 % of its SEND_ZC requests use memory that"),
        in_all("ring_waits", often, ["waits"], "of the wall time"),
    ],
)
def test_a_program_with_one_fault_is_told_of_it(
    how: str, peer: Peer, codes: list[str], said: str, tmp_path: Path
) -> None:
    found = problems(how, tmp_path / how, peer)
    assert [one["code"] for one in found] == codes, found
    assert said in found[0]["what"]
    assert peer is not listening or "a packet socket on any (" in found[0]["evidence"]


@pytest.mark.all
def test_a_program_that_is_refused_for_want_of_option_memory_is_told_the_limit(tmp_path: Path) -> None:
    (only,) = problems("optmem", tmp_path / "optmem", optmem_bytes=4096)
    assert only["code"] == "enobufs" and f"{OPTMEM} is 4 KiB" in only["evidence"]


@pytest.mark.all
@pytest.mark.parametrize("how", ["none", "paced", "header_apart", "plain_between", "registered"])
def test_a_program_without_a_fault_has_none(how: str, tmp_path: Path) -> None:
    """Among these are one that rests by a clock of its own, and what cures a fault of above."""
    assert problems(how, tmp_path / how) == []
