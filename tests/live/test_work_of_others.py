"""Softirq work on the time of others: what is tied to a run is in its ledger, and nothing else is."""

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from copyscope.run.child import Child
from copyscope.taxonomy.samples import ONE_PACKET
from copyscope.topology.namespace import network_of
from profiling import SLOW, broken_identities, is_root, record_of
from programs import busy_cpus, bytes_of, free_port, running, stretched, wait_for_port, watch

Record = dict[str, Any]

TRAFFIC = str(paths.OUTPUT / "traffic")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]


@contextlib.contextmanager
def somebody(impl: str) -> Iterator[tuple[int, int]]:
    """(sender, receiver): traffic over lo, of nobody's run. Of zero_copy, lo copies all, in softirq.

    On one CPU: where all are busy in softirq the kernel takes seconds to attach or detach a program.
    """
    port = free_port()
    cpu = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    send = [*cpu, TRAFFIC, "send", "--impl", impl, "--port", str(port), "--duration", "60"]
    receive = [*cpu, TRAFFIC, "recv", "--connect", "127.0.0.1", "--port", str(port)]
    with running(send) as sender:
        wait_for_port(port)
        with running(receive) as receiver:
            yield sender.pid, receiver.pid


def rows_beside(record: Record) -> list[Record]:
    """Rows of the ledger and of the stages that are work on the time of others."""
    return [
        row for row in [*record["ledger"], *record["stages"]] if row["side"] == "other" and row["samples"]
    ]


def rows_of(record: Record, account: str) -> list[Record]:
    return [row for row in record["ledger"] if row["account"] == account and row["samples"]]


def part_of(record: Record, account: str) -> float:
    """CPU time of an account over that of both sides and what is done beside them."""
    spent = sum(row["cpu_ns"] or 0 for row in record["ledger"] if row["account"] == account)
    return float(
        spent / sum(side["cpu_ns"] or 0 for name, side in record["sides"].items() if name != "elsewhere")
    )


def ties(record: Record) -> set[str | None]:
    return {row["tie"] for row in record["samples"] if row["side"] == "other"}


def needs_the_hook(record: Record) -> None:
    (hook,) = (row for row in record["hooks"] if row["id"] == "packet_owner")
    if hook["state"] != "attached":
        assert hook["reason"] in record["sides"]["elsewhere"]["cause"]
        pytest.skip(f"packet_owner: {hook['state']}: {hook['reason']}")


def report_of(*targets: int) -> Record:
    """What a collector of our own traffic says after a second of sampling; the sides are these processes."""
    collector = Child("collector", [str(paths.COLLECTOR)])
    try:
        collector.expect("ready", 30 * SLOW)
        for side, pid in zip(("sender", "receiver"), targets, strict=False):
            collector.ask(f"target {side} {pid}", "target")
            collector.ask(f"netns {side} {network_of(pid)}", "netns")
        collector.ask("symbols", "symbols", 30 * SLOW)
        collector.ask("open sampler", "opened", 30 * SLOW)
        time.sleep(1.0)
        collector.ask("close", "closed", 30 * SLOW)
        report: Record = collector.ask("report", "report", 30 * SLOW)
    finally:
        collector.end()
    return report


@contextlib.contextmanager
def namespace() -> Iterator[int]:
    """A process that sleeps in a network namespace of its own, where lo is up."""
    with running(["unshare", "-n", "sh", "-c", "ip link set lo up; exec sleep 60"]) as holder:
        deadline = time.monotonic() + 10 * SLOW
        while Path(f"/proc/{holder.pid}/comm").read_text() != "sleep\n":
            assert time.monotonic() < deadline, "no namespace"
            time.sleep(0.01)
        yield holder.pid


def test_packets_of_a_namespace_are_whose_processes_are_in_it() -> None:
    """Traffic in one namespace: what a process that sleeps there has of it, and one that sleeps elsewhere."""
    with namespace() as here, namespace() as elsewhere:
        inside = ("nsenter", "-t", str(here), "-n", TRAFFIC)
        with running([*inside, "send", "--impl", "one_copy", "--port", "7000", "--duration", "60"]):
            time.sleep(0.5 * SLOW)
            with running([*inside, "recv", "--connect", "127.0.0.1", "--port", "7000"]):
                reports = [report_of(pid) for pid in (here, elsewhere)]
    (hook,) = (row for row in reports[0]["hooks"] if row["id"] == "packet_owner")
    if hook["state"] != "attached":
        pytest.skip(f"packet_owner: {hook['state']}: {hook['reason']}")
    mine, theirs = (
        {row["owner"] for row in report["samples"] if any(f.startswith(ONE_PACKET) for f in row["frames"])}
        for report in reports
    )
    assert "target" in mine
    assert "target" not in theirs and "others" in theirs


def test_every_cpu_is_sampled_as_often_as_asked() -> None:
    """Whoever runs there. An idle one need not be: this kernel's second CPU gets no timer then."""
    with busy_cpus():
        report = report_of()
    if {row["event"] for row in report["samples"]} != {"cpu-clock"}:
        pytest.skip("cycles are sampled, which stand still in idle")
    taken = sum(row["samples"] for row in report["samples"])
    due = report["sampler"]["enabled_ns"] / 1e9 * report["sampler"]["frequency_hz"] * (os.cpu_count() or 1)
    # An emulated processor stands still at times, and a hypervisor takes slices.
    assert (0.8 if SLOW == 1 else 0.1) * due < taken < 1.02 * due + 1


@pytest.mark.all
def test_who_does_nothing_beside_zero_copy_has_no_softirq_work() -> None:
    """Neither a program that sleeps nor a run that sends nothing has a row of somebody else's.

    The run is on another CPU: softirqs are done in the time of whoever has theirs, and hardly leave it any.
    """
    cpu = str(max(os.sched_getaffinity(0)))
    apart = ("--sender-cpus", cpu, "--receiver-cpus", cpu)
    often = ("--frequency", "1000")
    with somebody("zero_copy"):
        slept = watch(*often, "--", "sleep", stretched(1), check=None)
        null = record_of("--impl", "null", "--duration", stretched(1), *often, *apart)
    for record in (slept, null):
        assert rows_beside(record) == []
        assert record["sides"]["other"]["samples"] == 0
        # It was seen, and is said once.
        assert record["sides"]["elsewhere"]["samples"] > 0
    assert broken_identities(null) == []


def test_work_of_others_for_my_socket_is_mine() -> None:
    """Over lo, what a receiving socket needs is done in the sends of somebody else: its packets tie it."""
    with somebody("one_copy") as (_, receiver), somebody("zero_copy"):
        often = ("--frequency", "1000", "--duration", stretched(1))
        record = watch("--pid", str(receiver), *often, check=None)
    needs_the_hook(record)
    assert "packet" in ties(record)
    stages = {row["stage"] for row in record["stages"] if row["side"] == "other" and row["samples"]}
    assert "tcp_ip" in stages
    # The copies beside it are made for other sockets.
    assert [row for row in rows_beside(record) if row.get("account") == "deferred"] == []
    assert record["sides"]["elsewhere"]["samples"] > 0


@pytest.mark.all
def test_two_runs_side_by_side_have_the_ledgers_that_they_have_alone() -> None:
    """One that copies at once and one whose copies are deferred. Exact: bytes, calls, rows, and that neither
    has anything of the other.
    """
    options = {"copies": ("--impl", "one_copy"), "defers": ("--impl", "zerocopy")}
    times = ("--duration", stretched(2), "--placement", "none", "--frequency", "997")
    alone = {
        name: record_of(*which, *times[2:], "--duration", stretched(1)) for name, which in options.items()
    }
    with ThreadPoolExecutor() as pool:
        made = {name: pool.submit(record_of, *which, *times, check=None) for name, which in options.items()}
        beside = {name: future.result() for name, future in made.items()}
    for name, record in beside.items():
        assert broken_identities(record) == [], name
        own, other = ("copy_in", "deferred") if name == "copies" else ("deferred", "copy_in")
        assert bytes_of(record, other) == bytes_of(alone[name], other) == 0
        assert rows_of(record, other) == [], name
        ledger = [row["sides"]["sender"] for row in record["run"]["segments"] if row["phase"] == "ledger"]
        assert bytes_of(record, own) == sum(sender["bytes"] for sender in ledger), name
        # Others take the CPU and the caches, not the place where copies are made: their part of the time
        # stays about the same. Work of the other run would come on top of it.
        assert 0.3 < part_of(record, own) / part_of(alone[name], own) < 2, name
        assert record["machine_state"]["sentence"].startswith("machine busy"), name
