"""The settings of a run by the names of the options of `profile`, and how long and how much it ran."""

from __future__ import annotations

from collections.abc import Mapping

from copyscope.segments import Record, select, total

Scalar = str | int | float | bool | None

# option of `profile` -> key of the workload section
WORKLOAD = {
    "impl": "impl",
    "size": "size_bytes",
    "fields": "fields",
    "threads": "threads",
    "mode": "mode",
    "receiver": "receiver",
    "align": "align",
    "pages": "pages",
    "working_set": "working_set_messages",
    "touch": "touch",
    "placement": "placement",
    "nodelay": "nodelay",
}
# every name that `settings` returns
SETTINGS = (*WORKLOAD, "topology", "mtu", "tso", "gso", "gro")


def settings(record: Record) -> dict[str, Scalar]:
    """What the run was, from the record itself: every setting that decides its result."""
    found: dict[str, Scalar] = {name: record["workload"][key] for name, key in WORKLOAD.items()}
    path = record["topology"]
    found |= {"topology": path["kind"], "mtu": path["mtu_bytes"]}
    found |= {name: path["offloads"].get(name) for name in ("tso", "gso", "gro")}
    return found


def factors(record: Record) -> Mapping[str, Scalar]:
    """The factors of the run's experiment; outside an experiment all of its settings."""
    found: Mapping[str, Scalar] | None = record["run"].get("factors")
    return settings(record) if found is None else found


def delivered_bytes(record: Record) -> int:
    """Payload that arrived in the ledger segments, in bytes."""
    return total(select(record, "ledger"), "receiver", "bytes")
