"""A record as lines of a table: one for the run, one for each row of its ledger. Pure.

Every line has the columns of the run; `kind` tells them apart. The type of each column is fixed, so that
files of many hosts are one table, whatever is unknown in some of them.
"""

from collections.abc import Iterator, Sequence

from copyscope.fleet.answers import copied_share
from copyscope.record.check import Whole
from copyscope.record.derived import AccountRow, StageRow
from copyscope.record.segments import delivered_bytes, select

Cell = str | int | float | bool | list[str] | None
Line = dict[str, Cell]
# Where bytes are copied; the other accounts refer to pages, or tell about them.
COPIES = ("file_read", "gather", "copy_in", "deferred", "silent", "copy_out", "tun")
# column -> type of Arrow. Host and date are the names of the directories.
OF_RUN = {
    "started_at": "timestamp[us]",  # UTC
    "run": "string",
    "subject": "string",  # the strategy, or the name of the watched program
    "watched": "bool",
    "valid": "bool",
    "kernel": "string",
    "arch": "string",
    "cpu": "string",
    "cpus": "int64",
    "nic": "string",  # the drivers of the devices that the bytes went through
    "path": "string",
    "mtu_bytes": "int64",
    "size_bytes": "int64",
    "goodput_gbps": "double",
    "delivered_bytes": "int64",  # while the ledger was counted
    "copied_bytes": "int64",  # by all copies of that time
    "zero_copy_copied_share": "double",
    "cause": "string",
    "save_share": "double",  # of its CPU time, at most, if it copied less
    "save_share_low": "double",
    "stoppers": "string",
}
OF_ROW = {
    "kind": "string",  # run, account, stage
    "name": "string",
    "side": "string",
    "context": "string",
    "bytes": "int64",
    "calls": "int64",
    "cpu_ns": "double",
    "ns_per_kib": "double",
    "method": "string",
}
COLUMNS = {**OF_RUN, **OF_ROW}


def lines(whole: Whole) -> Iterator[Line]:
    """The lines of a record."""
    run = of_run(whole)
    yield {**run, **dict.fromkeys(OF_ROW), "kind": "run"}
    for row in whole.derived.ledger:
        yield {**run, **_cells(row), "kind": "account", "name": row.account}
    for stage in whole.derived.stages:
        yield {**run, **_cells(stage), "kind": "stage", "name": stage.stage}


def _cells(row: AccountRow | StageRow) -> Line:
    return {key: getattr(row, key, None) for key in OF_ROW}


def of_run(run: Whole) -> Line:
    """What is the same in all lines of a record."""
    raw, derived = run
    machine, topology, watched = raw.machine, raw.topology, raw.target is not None
    zerocopy, advice = derived.zerocopy, derived.advice
    save = advice.most_to_save if advice else None
    cause = zerocopy.cause if zerocopy else None
    drivers = sorted({device.driver for device in topology.devices if device.driver})
    return {
        "started_at": raw.run.started,
        "run": raw.run.id,
        "subject": raw.watched.name if watched else raw.asked.impl,
        "watched": watched,
        "valid": derived.verdict.valid,
        "kernel": machine.kernel,
        "arch": machine.arch,
        "cpu": machine.cpu_model,
        "cpus": machine.cpus_online,
        "nic": "+".join(drivers) or None,
        "path": topology.kind,
        "mtu_bytes": topology.mtu_bytes,
        "size_bytes": None if raw.workload is None else raw.workload.size_bytes,
        "goodput_gbps": derived.throughput_gbps.unprobed,
        "delivered_bytes": delivered_bytes(select(raw.run.segments, "ledger")),
        "copied_bytes": _copied_bytes(derived.ledger),
        "zero_copy_copied_share": copied_share(zerocopy) if zerocopy else None,
        "cause": cause.sentence if cause else None,
        "save_share": save.share if save else None,
        "save_share_low": save.low if save else None,
        "stoppers": "; ".join(advice.stoppers) if advice else None,
    }


def _copied_bytes(ledger: Sequence[AccountRow]) -> int | None:
    """By all copies together; None: of one of them it is not known.

    An account has a row for each side and context that its time was spent in; its bytes stand in one of them.
    """
    copies = [row for row in ledger if row.account in COPIES]
    known = [row for row in copies if row.bytes is not None]
    whole = {row.account for row in copies} == {row.account for row in known}
    return sum(row.bytes or 0 for row in known) if whole else None
