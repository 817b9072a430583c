"""A record as lines of a table: one for the run, one for each row of its ledger. Pure.

Every line has the columns of the run; `kind` tells them apart. The type of each column is fixed, so that
files of many hosts are one table, whatever is unknown in some of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from copyscope.fleet.answers import copied_share
from copyscope.record.check import typed
from copyscope.record.segments import delivered_bytes, select

Cell = str | int | float | bool | list[str] | None
Line = dict[str, Cell]
# Where bytes are copied; the other accounts refer to pages, or tell about them.
COPIES = ("file_read", "gather", "copy_in", "deferred", "silent", "copy_out")
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


def lines(record: Mapping[str, Any]) -> Iterator[Line]:
    """The lines of a whole record."""
    run = of_run(record)
    nothing = dict.fromkeys(OF_ROW)
    yield {**run, **nothing, "kind": "run"}
    for kind, section in (("account", record["ledger"]), ("stage", record["stages"])):
        for row in section:
            found = {key: row.get(key) for key in OF_ROW}
            yield {**run, **found, "kind": kind, "name": row[kind]}


def of_run(record: Mapping[str, Any]) -> Line:
    """What is the same in all lines of a record."""
    machine, topology, watched = record["machine"], record["topology"], "target" in record
    zerocopy, advice = record.get("zerocopy") or {}, record.get("advice") or {}
    save = advice.get("most_to_save") or {}
    drivers = sorted({device["driver"] for device in topology["devices"] if device["driver"]})
    copied = [row["bytes"] for row in record["ledger"] if row["account"] in COPIES]
    return {
        "started_at": record["run"]["started"],
        "run": record["run"]["id"],
        "subject": record["target"]["name"] if watched else record["workload"]["impl"],
        "watched": watched,
        "valid": record["verdict"]["valid"],
        "kernel": machine["kernel"],
        "arch": machine["arch"],
        "cpu": machine["cpu_model"],
        "cpus": machine["cpus_online"],
        "nic": "+".join(drivers) or None,
        "path": topology.get("kind"),
        "mtu_bytes": topology.get("mtu_bytes"),
        "size_bytes": record.get("workload", {}).get("size_bytes"),
        "goodput_gbps": record["throughput_gbps"]["unprobed"],
        "delivered_bytes": delivered_bytes(select(typed(dict(record)).run.segments, "ledger")),
        "copied_bytes": None if None in copied or not copied else sum(copied),
        "zero_copy_copied_share": copied_share(zerocopy),
        "cause": (zerocopy.get("cause") or {}).get("sentence"),
        "save_share": save.get("share"),
        "save_share_low": save.get("low"),
        "stoppers": "; ".join(advice["stoppers"]) if advice else None,
    }
