# SPDX-License-Identifier: GPL-2.0-only
"""Two NICs with a cable (COPYSCOPE_NICS=IFA,IFB): on this path of one machine zero-copy sends are not copied.

copyscope moves the interfaces into namespaces, and must bring them back with their settings.
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
# Payload of a packet with an MTU of 1500, and an upper bound of all its headers.
PAYLOAD_BYTES, HEADERS_BYTES = 1448, 128
# Identities that fail in an emulated guest because its timer interrupts come late.
FAIL_IN_GUESTS = ("sender_time", "receiver_time")
pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to move interfaces"),
    pytest.mark.skipif(
        NICS.count(",") != 1, reason="COPYSCOPE_NICS=IFA,IFB names no two interfaces with a cable"
    ),
]

Record = dict[str, Any]


def interface_names() -> list[str]:
    return NICS.split(",")


def ip(*words: str) -> Any:
    shown = subprocess.run(["ip", "-j", *words], capture_output=True, text=True, check=True).stdout
    return json.loads(shown or "[]")


def state() -> list[Any]:
    """Return the settings of both interfaces by `ip` and ethtool, without counters."""
    settings: list[Any] = []
    for name in interface_names():
        (row,) = ip("addr", "show", "dev", name)
        addresses = [
            (address["local"], address["prefixlen"])
            for address in row["addr_info"]
            if address["scope"] != "link"
        ]
        features = subprocess.run(["ethtool", "-k", name], capture_output=True, text=True, check=True).stdout
        settings.append((name, row["mtu"], "UP" in row["flags"], row["address"], addresses, features))
    return settings


def interfaces_here() -> list[str]:
    return [name for name in interface_names() if Path("/sys/class/net", name).exists()]


@pytest.fixture(autouse=True)
def interfaces_come_back() -> Iterator[None]:
    before = state()
    yield
    deadline = time.monotonic() + 1
    while interfaces_here() != interface_names() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state() == before


def record_of(*options: str) -> Record:
    """Run copyscope over the cable.

    Return the record, in which identities must hold that a guest can fulfil.
    """
    done = profile("--json", "-", *OPTIONS, *options, check=None)
    assert done.stdout, done.stderr
    assert done.stderr == ""
    record: Record = json.loads(done.stdout)
    keep_figures(record)
    broken = [
        line for line in broken_identities(record) if not (SLOW > 1 and line.startswith(FAIL_IN_GUESTS))
    ]
    assert broken == [] and record["run"]["errors"] == []
    return record


def keep_figures(record: Record) -> None:
    """Print figures for readers of `pytest -s`."""
    zerocopy = record["zerocopy"] or {}
    bytes_by_account = {row["account"]: row["bytes"] for row in record["ledger"] if row["bytes"]}
    figures = {key: zerocopy.get(key) for key in ("sends", "completions", "copied", "cause")}
    print(
        f"\n{record['machine']['kernel']} {record['workload']['impl']}: {figures} {bytes_by_account}",
        f"{record['throughput_gbps']['unprobed']} Gb/s, broken: {broken_identities(record)}",
        f"listeners: {record['topology']['packet_sockets']}",
    )


def bytes_of(record: Record, account: str) -> int:
    """Return the bytes of an account in the ledger; 0 if the account has no row."""
    rows = [row for row in record["ledger"] if row["account"] == account]
    # Bytes that may belong to several rows are counted in one of them. No other row may have unknown bytes.
    assert all("counted once" in row["reasons"]["bytes"] for row in rows if row["bytes"] is None), account
    known_bytes = [row["bytes"] for row in rows if row["bytes"] is not None]
    assert known_bytes or not rows, account
    return sum(known_bytes)


def sent_in_ledger(record: Record) -> int:
    """Return the bytes that the sender reports for the ledger segments."""
    segments = [segment for segment in record["run"]["segments"] if segment["phase"] == "ledger"]
    return sum(segment["sides"]["sender"]["bytes"] for segment in segments)


def samples_under(record: Record, symbol: str) -> int:
    return sum(row["samples"] for row in record["samples"] if row["symbol"] == symbol)


def test_zero_copy_over_a_cable_is_not_copied() -> None:
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
    assert [row["name"] for row in topology["devices"]] == interface_names()
    for row in topology["devices"]:
        driver = Path("/sys/class/net", row["name"], "device/driver").readlink().name
        assert row["driver"] == driver and row["features"]["scatter_gather"] is True


def test_zero_copy_over_a_cable_is_not_copied_by_any_hooked_function() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    traffic = ("--messages", str(MESSAGES), "--size", str(SIZE))
    record = record_of("--impl", "zero_copy", *traffic, "--instruments", "functions")
    attached = {row["id"] for row in record["hooks"] if row["state"] == "attached"}
    assert {"pin", "deferred", "copy_bits", "copy_out", "zerocopy_drop"} <= attached
    assert cells(record, "pin", "bytes") == cells(record, "copy_out", "bytes") == MESSAGES * SIZE
    assert cells(record, "copy_in", "bytes") == cells(record, "deferred", "calls") == 0
    # Drivers and TCP copy headers to the linear part of packets.
    packets = MESSAGES * -(-SIZE // PAYLOAD_BYTES)
    assert cells(record, "silent", "bytes") <= packets * HEADERS_BYTES
    assert record["functions"]["completions"] == [{"side": "sender", "copied": 0, "zerocopied": MESSAGES}]
    assert record["functions"]["owners"] == []


def test_one_copy_copies_every_byte_once() -> None:
    record = record_of("--impl", "one_copy")
    assert bytes_of(record, "copy_in") == sent_in_ledger(record) == bytes_of(record, "copy_out") > 0
    assert bytes_of(record, "pin") == bytes_of(record, "deferred") == bytes_of(record, "silent") == 0


# Waits for the sender that a copyscope starts, enters its namespace and listens to every packet of a device.
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


def load_module(module: str) -> None:
    """Load a kernel module, because the kernel of a test guest loads none by itself."""
    subprocess.run(["modprobe", "--quiet", module], check=False)


@contextmanager
def running_copyscope(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Start copyscope, and kill it at the end, so that the next test finds the interfaces free."""
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


def test_a_packet_socket_causes_late_copies_and_is_named() -> None:
    load_module("af_packet")
    argv = [sys.executable, "-P", "-c", LISTENER, str(Path(__file__).parent), interface_names()[0]]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        try:
            assert listener.stdin is not None and listener.stdout is not None
            assert listener.stdout.readline() == "ready\n"
            with running_copyscope("--impl", "zero_copy", "--json", "-") as run:
                listener.stdin.write(f"{run.pid}\n")
                listener.stdin.flush()
                output, errors = run.communicate(timeout=60 * SLOW)
        finally:
            listener.kill()
    record: Record = json.loads(output)
    keep_figures(record)
    assert errors == ""
    zerocopy = record["zerocopy"]
    assert zerocopy["copied"] == zerocopy["sends"] == zerocopy["completions"] > 100
    assert bytes_of(record, "deferred") == bytes_of(record, "pin") == sent_in_ledger(record) > 0
    tap = {"side": "sender", "device": interface_names()[0], "protocol": "ETH_P_ALL", "pid": listener.pid}
    assert record["topology"]["packet_sockets"] == [{**tap, "comm": Path(sys.executable).name}]
    assert zerocopy["cause"]["code"] == "packet_socket"
    assert f"pid {listener.pid}" in zerocopy["cause"]["sentence"]


def test_interfaces_come_back_after_sigkill() -> None:
    mac = [row[3] for row in state()]
    with running_copyscope("--impl", "zero_copy", "--duration", "60") as run:
        wait_for_child(run, "--connect")
        time.sleep(1.0 * SLOW)
        assert interfaces_here() == []
        run.kill()
        run.wait(10)
        began = time.monotonic()
        while interfaces_here() != interface_names() and time.monotonic() < began + 10:
            time.sleep(0.01)
        took_s = time.monotonic() - began
    print(f"\nback after {took_s:.2f} s")
    assert took_s < 1.0
    assert [row[3] for row in state()] == mac
    assert [row["addr_info"] for name in interface_names() for row in ip("addr", "show", "dev", name)] == [
        [],
        [],
    ]


def test_interfaces_come_back_after_ctrl_c() -> None:
    with running_copyscope("--impl", "one_copy", "--duration", "60") as run:
        wait_for_child(run, "--connect")
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=30 * SLOW)
    assert interfaces_here() == interface_names()


def test_settings_of_interfaces_are_restored_after_the_run() -> None:
    """MTU, offloads, an address and the state "up" are set for the run and restored after it."""
    first, second = interface_names()
    before = state()
    for words in (
        ("link", "set", first, "mtu", "1400"),
        ("link", "set", first, "up"),
        ("addr", "add", "198.18.7.1/30", "broadcast", "+", "dev", first),
    ):
        ip(*words)
    changed_state = state()
    try:
        options = ("--impl", "one_copy", "--mtu", "3000", "--tso", "off", "--gro", "off", "--messages", "200")
        done = profile("--json", "-", *OPTIONS, *options, check=None)
        topology = json.loads(done.stdout)["topology"]
        assert [row["mtu_bytes"] for row in topology["devices"]] == [3000, 3000]
        assert (topology["offloads"]["tso"], topology["offloads"]["gro"]) == (False, False)
        (note,) = topology["notes"]
        assert f"{first} was in use here (198.18.7.1/30" in note
        assert done.stderr == ""
        assert state() == changed_state
    finally:
        ip("addr", "del", "198.18.7.1/30", "dev", first)
        ip("link", "set", first, *([] if before[0][2] else ["down"]), "mtu", str(before[0][1]))
        assert second in interfaces_here()


@pytest.mark.parametrize("kind", ["macvlan", "route"])
def test_an_interface_in_use_is_refused(kind: str) -> None:
    first = interface_names()[0]
    was_up = state()[0][2]
    load_module("macvlan")
    try:
        ip("link", "set", first, "up")
        if kind == "route":
            ip("route", "add", "default", "dev", first, "metric", "4000")
            words = "the default route uses this interface"
        else:
            ip("link", "add", "link", first, "name", "above0", "type", "macvlan")
            words = "above0 uses this interface"
        done = profile(*OPTIONS, check=1)
    finally:
        undo_words = (
            ["route", "del", "default", "dev", first] if kind == "route" else ["link", "del", "above0"]
        )
        subprocess.run(["ip", *undo_words], check=False)
        ip("link", "set", first, "up" if was_up else "down")
    assert done.stderr.startswith(f"copyscope run: --topology nics: {first}: {words}")
    assert done.stderr.count("\n") == 1
