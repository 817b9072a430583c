# SPDX-License-Identifier: GPL-2.0-only
"""Softirq work in the time of other programs is in a run's ledger only if it belongs to that run."""

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.machine.topology.namespace import network_of
from copyscope.run.child import Child
from copyscope.taxonomy.samples import PACKET_HANDLER_PREFIX
from profiling import SLOW, broken_identities, is_root, record_of
from programs import busy_cpus, bytes_of, free_port, running, stretched, wait_for_port, watch

Record = dict[str, Any]

TRAFFIC = str(paths.OUTPUT / "traffic")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]


@contextlib.contextmanager
def other_traffic(impl: str) -> Iterator[tuple[int, int]]:
    """Run traffic over lo that belongs to no run. Yield the pids of its sender and receiver.

    For zero_copy, lo copies everything in softirqs. Both processes use one CPU, because the kernel takes
        seconds to attach a program if softirqs occupy all CPUs.
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
    """Return the rows of ledger and stages for work in the time of other programs."""
    return [
        row for row in [*record["ledger"], *record["stages"]] if row["side"] == "other" and row["samples"]
    ]


def rows_of(record: Record, account: str) -> list[Record]:
    return [row for row in record["ledger"] if row["account"] == account and row["samples"]]


def part_of(record: Record, account: str) -> float:
    """Return the share of an account in the CPU time of sender, receiver and work in the time of others."""
    account_ns = sum(row["cpu_ns"] or 0 for row in record["ledger"] if row["account"] == account)
    return float(
        account_ns / sum(side["cpu_ns"] or 0 for name, side in record["sides"].items() if name != "elsewhere")
    )


def ties(record: Record) -> set[str | None]:
    return {row["tie"] for row in record["samples"] if row["side"] == "other"}


def needs_the_hook(record: Record) -> None:
    (hook,) = (row for row in record["hooks"] if row["id"] == "packet_owner")
    if hook["state"] != "attached":
        assert hook["reason"] in record["sides"]["elsewhere"]["cause"]
        pytest.skip(f"packet_owner: {hook['state']}: {hook['reason']}")


def report_of(*targets: int) -> Record:
    """Sample for a second with a collector for which `targets` are sender and receiver. Return its report."""
    collector = Child("collector", [str(paths.COLLECTOR)])
    try:
        collector.expect("ready", 30 * SLOW)
        for role, pid in zip(("sender", "receiver"), targets, strict=False):
            collector.ask(f"target {role} {pid}", "target")
            collector.ask(f"netns {role} {network_of(pid)}", "netns")
        collector.ask("symbols", "symbols", 30 * SLOW)
        collector.ask("open sampler", "opened", 30 * SLOW)
        time.sleep(1.0)
        collector.ask("close", "closed", 30 * SLOW)
        report: Record = dict(collector.ask("report", "report", 30 * SLOW))
    finally:
        collector.end()
    return report


@contextlib.contextmanager
def namespace() -> Iterator[int]:
    """Yield the pid of a sleeping process in a new network namespace with lo up."""
    with running(["unshare", "-n", "sh", "-c", "ip link set lo up; exec sleep 60"]) as holder:
        deadline = time.monotonic() + 10 * SLOW
        while Path(f"/proc/{holder.pid}/comm").read_text() != "sleep\n":
            assert time.monotonic() < deadline, "no namespace"
            time.sleep(0.01)
        yield holder.pid


@pytest.mark.all
def test_packets_belong_to_processes_of_their_namespace() -> None:
    """Packets of a namespace belong to a process that sleeps in it, not to one in another namespace."""
    with namespace() as holder, namespace() as other_holder:
        inside = ("nsenter", "-t", str(holder), "-n", TRAFFIC)
        with running([*inside, "send", "--impl", "one_copy", "--port", "7000", "--duration", "60"]):
            time.sleep(0.5 * SLOW)
            with running([*inside, "recv", "--connect", "127.0.0.1", "--port", "7000"]):
                reports = [report_of(pid) for pid in (holder, other_holder)]
    (hook,) = (row for row in reports[0]["hooks"] if row["id"] == "packet_owner")
    if hook["state"] != "attached":
        pytest.skip(f"packet_owner: {hook['state']}: {hook['reason']}")
    owners, owners_elsewhere = (
        {
            row["owner"]
            for row in report["samples"]
            if any(frame.startswith(PACKET_HANDLER_PREFIX) for frame in row["frames"])
        }
        for report in reports
    )
    assert "target" in owners
    assert "target" not in owners_elsewhere and "others" in owners_elsewhere


def test_every_cpu_is_sampled_at_the_requested_frequency() -> None:
    """All CPUs are busy, because an idle CPU need not get timer interrupts."""
    with busy_cpus():
        report = report_of()
    if {row["event"] for row in report["samples"]} != {"cpu-clock"}:
        pytest.skip("cycles are sampled, which stop on an idle CPU")
    samples = sum(row["samples"] for row in report["samples"])
    expected_samples = (
        report["sampler"]["enabled_ns"] / 1e9 * report["sampler"]["frequency_hz"] * (os.cpu_count() or 1)
    )
    # An emulated CPU stops at times, and a hypervisor takes time slices.
    assert (0.8 if SLOW == 1 else 0.1) * expected_samples < samples < 1.02 * expected_samples + 1


@pytest.mark.all
def test_an_idle_program_beside_zero_copy_has_no_softirq_work() -> None:
    """A sleeping program and a run that sends nothing have no rows for work in the time of others.

    The run uses another CPU, because softirqs leave it little of the CPU that they occupy.
    """
    cpu = str(max(os.sched_getaffinity(0)))
    placement = ("--sender-cpus", cpu, "--receiver-cpus", cpu)
    frequency = ("--frequency", "1000")
    with other_traffic("zero_copy"):
        sleep_record = watch(*frequency, "--", "sleep", stretched(1), check=None)
        null_record = record_of("--impl", "null", "--duration", stretched(1), *frequency, *placement)
    for record in (sleep_record, null_record):
        assert rows_beside(record) == []
        assert record["sides"]["other"]["samples"] == 0
        # The samples exist, and the record counts them as work of other programs.
        assert record["sides"]["elsewhere"]["samples"] > 0
    assert broken_identities(null_record) == []


def test_work_for_a_watched_socket_in_sends_of_others_is_counted() -> None:
    """Over lo, sends of other programs do the work of a receiving socket, which its packets identify."""
    with other_traffic("one_copy") as (_, receiver), other_traffic("zero_copy"):
        often = ("--frequency", "1000", "--duration", stretched(1))
        record = watch("--pid", str(receiver), *often, check=None)
    needs_the_hook(record)
    assert "packet" in ties(record)
    stages = {row["stage"] for row in record["stages"] if row["side"] == "other" and row["samples"]}
    assert "tcp_ip" in stages
    # The late copies of the other traffic belong to other sockets.
    assert [row for row in rows_beside(record) if row.get("account") == "deferred"] == []
    assert record["sides"]["elsewhere"]["samples"] > 0


@pytest.mark.all
def test_two_runs_side_by_side_have_the_same_ledgers_as_alone() -> None:
    """The first run copies at once, and the second has late copies.

    Bytes, calls and rows are exact, and none is of the other run.
    """
    options = {"copies": ("--impl", "one_copy"), "defers": ("--impl", "zerocopy")}
    times = ("--duration", stretched(2), "--placement", "none", "--frequency", "997")
    alone = {
        name: record_of(*impl_options, *times[2:], "--duration", stretched(1))
        for name, impl_options in options.items()
    }
    with ThreadPoolExecutor() as pool:
        futures = {
            name: pool.submit(record_of, *impl_options, *times, check=None)
            for name, impl_options in options.items()
        }
        beside = {name: future.result() for name, future in futures.items()}
    for name, record in beside.items():
        assert broken_identities(record) == [], name
        own_account, other_account = ("copy_in", "deferred") if name == "copies" else ("deferred", "copy_in")
        assert bytes_of(record, other_account) == bytes_of(alone[name], other_account) == 0
        assert rows_of(record, other_account) == [], name
        ledger = [row["sides"]["sender"] for row in record["run"]["segments"] if row["phase"] == "ledger"]
        assert bytes_of(record, own_account) == sum(sender["bytes"] for sender in ledger), name
        # The other run takes CPU time and caches, but does not move copies to other accounts: the share stays
        # about the same. Work of the other run would be added to it.
        assert 0.3 < part_of(record, own_account) / part_of(alone[name], own_account) < 2, name
        assert record["machine_state"]["sentence"].startswith("machine busy"), name
