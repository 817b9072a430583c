"""A cable, named by COPYSCOPE_NICS=IFA,IFB: the path of one machine on which a zero-copy send is not copied.

The interfaces are taken from the first namespace and must come back as they were, whatever happens.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from profiling import RUN, SLOW, broken_identities, child_named, is_root, profile
from test_functions import MESSAGES, SIZE, cells, why_not

NICS = os.environ.get("COPYSCOPE_NICS", "")
OPTIONS = ("--topology", f"nics:{NICS}", "--duration", "3")
# Of a packet with the MTU of 1500, and more than all of its headers.
PAYLOAD_BYTES, HEADERS_BYTES = 1448, 128
# What an emulated guest cannot do in time: its sampler's interrupts.
TOO_SLOW_FOR = ("sender_time", "receiver_time")
pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to move interfaces"),
    pytest.mark.skipif(
        NICS.count(",") != 1, reason="COPYSCOPE_NICS=IFA,IFB names no two interfaces with a cable"
    ),
]

Record = dict[str, Any]


def names() -> list[str]:
    return NICS.split(",")


def ip(*words: str) -> Any:
    shown = subprocess.run(["ip", "-j", *words], capture_output=True, text=True, check=True).stdout
    return json.loads(shown or "[]")


def state() -> list[Any]:
    """What `ip` and ethtool show of both, without what counts on by itself."""
    found: list[Any] = []
    for name in names():
        (row,) = ip("addr", "show", "dev", name)
        addresses = [(one["local"], one["prefixlen"]) for one in row["addr_info"] if one["scope"] != "link"]
        features = subprocess.run(["ethtool", "-k", name], capture_output=True, text=True, check=True).stdout
        found.append((name, row["mtu"], "UP" in row["flags"], row["address"], addresses, features))
    return found


def at_home() -> list[str]:
    return [name for name in names() if Path("/sys/class/net", name).exists()]


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    before = state()
    yield
    deadline = time.monotonic() + 1
    while at_home() != names() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state() == before


def record_of(*options: str) -> Record:
    """The record of one run, and nothing in it that breaks but what emulation is too slow for."""
    done = profile("--json", "-", *OPTIONS, *options, check=None)
    assert done.stdout, done.stderr
    assert done.stderr == ""
    record: Record = json.loads(done.stdout)
    keep_figures(record)
    broken = [line for line in broken_identities(record) if not (SLOW > 1 and line.startswith(TOO_SLOW_FOR))]
    assert broken == [] and record["run"]["errors"] == []
    return record


def keep_figures(record: Record) -> None:
    """For people who read the output of `pytest -s`."""
    zerocopy = record["zerocopy"] or {}
    bytes_by_account = {row["account"]: row["bytes"] for row in record["ledger"] if row["bytes"]}
    figures = {key: zerocopy.get(key) for key in ("sends", "completions", "copied", "cause")}
    print(
        f"\n{record['machine']['kernel']} {record['workload']['impl']}: {figures} {bytes_by_account}",
        f"{record['throughput_gbps']['unprobed']} Gb/s, broken: {broken_identities(record)}",
        f"listeners: {record['topology']['packet_sockets']}",
    )


def bytes_of(record: Record, account: str) -> int:
    """What the ledger says; an account without a row is one that nothing was seen in."""
    rows = [row for row in record["ledger"] if row["account"] == account]
    # Bytes that could be of several rows stand on one of them; nothing else may be unknown.
    assert all("counted once" in row["reasons"]["bytes"] for row in rows if row["bytes"] is None), account
    found = [row["bytes"] for row in rows if row["bytes"] is not None]
    assert found or not rows, account
    return sum(found)


def sent_in_ledger(record: Record) -> int:
    """What the sender itself says of the segments that the ledger is about."""
    segments = [one for one in record["run"]["segments"] if one["phase"] == "ledger"]
    return sum(one["sides"]["sender"]["bytes"] for one in segments)


def samples_under(record: Record, symbol: str) -> int:
    return sum(row["samples"] for row in record["samples"] if row["symbol"] == symbol)


def test_zero_copy_is_not_copied() -> None:
    record = record_of("--impl", "zero_copy")
    zerocopy, topology = record["zerocopy"], record["topology"]
    assert zerocopy["sends"] == zerocopy["completions"] > 100
    assert zerocopy["copied"] == 0 and zerocopy["cause"] is None
    assert bytes_of(record, "pin") == sent_in_ledger(record) > 0
    assert bytes_of(record, "deferred") == bytes_of(record, "silent") == bytes_of(record, "copy_in") == 0
    assert bytes_of(record, "copy_out") == sent_in_ledger(record)
    assert samples_under(record, "skb_copy_ubufs") == 0
    assert not [row for row in record["samples"] if row["category"] in ("deferred", "silent", "copy_in")]
    assert (topology["kind"], topology["local_delivery"], topology["xdp"]) == ("nics", False, None)
    assert topology["packet_sockets"] == [] and topology["notes"] == []
    assert [row["name"] for row in topology["devices"]] == names()
    for row in topology["devices"]:
        driver = Path("/sys/class/net", row["name"], "device/driver").readlink().name
        assert row["driver"] == driver and row["features"]["scatter_gather"] is True


def test_zero_copy_is_not_copied_and_the_hooks_count_none() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    known = ("--messages", str(MESSAGES), "--size", str(SIZE))
    record = record_of("--impl", "zero_copy", *known, "--instruments", "functions")
    attached = {row["id"] for row in record["hooks"] if row["state"] == "attached"}
    assert {"pin", "deferred", "copy_bits", "copy_out", "zerocopy_drop"} <= attached
    assert cells(record, "pin", "bytes") == cells(record, "copy_out", "bytes") == MESSAGES * SIZE
    assert cells(record, "copy_in", "bytes") == cells(record, "deferred", "calls") == 0
    # What drivers and TCP pull together to look at it: headers.
    packets = MESSAGES * -(-SIZE // PAYLOAD_BYTES)
    assert cells(record, "silent", "bytes") <= packets * HEADERS_BYTES
    assert record["functions"]["completions"] == [{"side": "sender", "copied": 0, "zerocopied": MESSAGES}]
    assert record["functions"]["owners"] == []


def test_one_copy_copies_every_byte_once() -> None:
    record = record_of("--impl", "one_copy")
    assert bytes_of(record, "copy_in") == sent_in_ledger(record) == bytes_of(record, "copy_out") > 0
    assert bytes_of(record, "pin") == bytes_of(record, "deferred") == bytes_of(record, "silent") == 0


# Waits for the sender of a profiler, goes to its namespace and listens to every packet of a device.
LISTENER = """
import ctypes, os, socket, sys
sys.path.append(sys.argv[1])
from profiling import child_named
libc = ctypes.CDLL(None, use_errno=True)
print("ready", flush=True)
profiler = int(sys.stdin.readline())
while not (pid := child_named(profiler, "--listen")):
    pass
if libc.setns(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), 0x40000000):
    sys.exit(os.strerror(ctypes.get_errno()))
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.bind((sys.argv[2], 3))
sys.stdin.read()
"""


def load(module: str) -> None:
    """Before it is needed: the kernel of a test guest finds no modprobe of its own."""
    subprocess.run(["modprobe", "--quiet", module], check=False)


@contextmanager
def started(*options: str) -> Iterator[subprocess.Popen[str]]:
    """A run that is over at the end, so that no test finds the interfaces taken by the one before."""
    argv = [*RUN, "--quiet", *OPTIONS, *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


def wait_for_child(parent: subprocess.Popen[str], word: str) -> int:
    deadline = time.monotonic() + 20 * SLOW
    while time.monotonic() < deadline:
        if pid := child_named(parent.pid, word):
            return pid
        time.sleep(0.02)
    raise AssertionError(f"no traffic with {word} was started")


def test_a_listener_turns_sends_into_copies_and_is_named() -> None:
    load("af_packet")
    argv = [sys.executable, "-P", "-c", LISTENER, str(Path(__file__).parent), names()[0]]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        try:
            assert listener.stdin is not None and listener.stdout is not None
            assert listener.stdout.readline() == "ready\n"
            with started("--impl", "zero_copy", "--json", "-") as run:
                listener.stdin.write(f"{run.pid}\n")
                listener.stdin.flush()
                shown, said = run.communicate(timeout=60 * SLOW)
        finally:
            listener.kill()
    record: Record = json.loads(shown)
    keep_figures(record)
    assert said == ""
    zerocopy = record["zerocopy"]
    assert zerocopy["copied"] == zerocopy["sends"] == zerocopy["completions"] > 100
    assert bytes_of(record, "deferred") == bytes_of(record, "pin") == sent_in_ledger(record) > 0
    tap = {"side": "sender", "device": names()[0], "protocol": "ETH_P_ALL", "pid": listener.pid}
    assert record["topology"]["packet_sockets"] == [{**tap, "comm": Path(sys.executable).name}]
    assert zerocopy["cause"]["code"] == "packet_socket"
    assert f"pid {listener.pid}" in zerocopy["cause"]["sentence"]


def test_sigkill_brings_them_home() -> None:
    mac = [row[3] for row in state()]
    with started("--impl", "zero_copy", "--duration", "60") as run:
        wait_for_child(run, "--connect")
        time.sleep(1.0 * SLOW)
        assert at_home() == []
        run.kill()
        run.wait(10)
        began = time.monotonic()
        while at_home() != names() and time.monotonic() < began + 10:
            time.sleep(0.01)
        took_s = time.monotonic() - began
    print(f"\nback after {took_s:.2f} s")
    assert took_s < 1.0
    assert [row[3] for row in state()] == mac
    assert [row["addr_info"] for name in names() for row in ip("addr", "show", "dev", name)] == [[], []]


def test_ctrl_c_brings_them_home() -> None:
    with started("--impl", "one_copy", "--duration", "60") as run:
        wait_for_child(run, "--connect")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=30 * SLOW)
    assert at_home() == names()


def test_settings_hold_for_the_run_only() -> None:
    """MTU, offloads, an address and up: all there during the run or after it, as it should be."""
    first, second = names()
    before = state()
    for words in (
        ("link", "set", first, "mtu", "1400"),
        ("link", "set", first, "up"),
        ("addr", "add", "198.18.7.1/30", "broadcast", "+", "dev", first),
    ):
        ip(*words)
    lent = state()
    try:
        options = ("--impl", "one_copy", "--mtu", "3000", "--tso", "off", "--gro", "off", "--messages", "200")
        done = profile("--json", "-", *OPTIONS, *options, check=None)
        topology = json.loads(done.stdout)["topology"]
        assert [row["mtu_bytes"] for row in topology["devices"]] == [3000, 3000]
        assert (topology["offloads"]["tso"], topology["offloads"]["gro"]) == (False, False)
        (note,) = topology["notes"]
        assert f"{first} was in use here (198.18.7.1/30" in note
        assert done.stderr == ""
        assert state() == lent
    finally:
        ip("addr", "del", "198.18.7.1/30", "dev", first)
        ip("link", "set", first, *([] if before[0][2] else ["down"]), "mtu", str(before[0][1]))
        assert second in at_home()


@pytest.mark.parametrize("kind", ["macvlan", "route"])
def test_what_others_need_is_not_taken(kind: str) -> None:
    first = names()[0]
    was_up = state()[0][2]
    load("macvlan")
    try:
        ip("link", "set", first, "up")
        if kind == "route":
            ip("route", "add", "default", "dev", first, "metric", "4000")
            words = "the default route goes through it"
        else:
            ip("link", "add", "link", first, "name", "above0", "type", "macvlan")
            words = "above0 is built on it"
        done = profile(*OPTIONS, check=1)
    finally:
        undo = ["route", "del", "default", "dev", first] if kind == "route" else ["link", "del", "above0"]
        subprocess.run(["ip", *undo], check=False)
        ip("link", "set", first, "up" if was_up else "down")
    assert done.stderr.startswith(f"copyscope: topology: nics: {first}: {words}")
    assert done.stderr.count("\n") == 1
