"""The settings of a run by the names of the options of `run`, and how long and how much it ran."""

from collections.abc import Iterable, Mapping

from copyscope.record import segments
from copyscope.record.segments import Record, segments_of, select

Scalar = str | int | float | bool | None

# option of `run` -> key of the workload section
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
# likewise, and what the runs were whose records do not have the key
LATER: dict[str, tuple[str, Scalar]] = {
    "sender": ("sender", "threads"),
    "coalesce": ("coalesce_us", 0),
    "file": ("file", None),
    "issue": ("issue", None),
    "registered": ("registered", False),
    "push": ("push", "none"),
    "call": ("call", "sendmsg"),
    "via": ("via", "sendfile"),
    "batch": ("batch_sends", 1),
    "header": ("header_bytes", None),
    "wait": ("wait", "batch"),
    "touch_received": ("touch_received", False),
    "tls": ("tls", "off"),
}
# every name that `settings` returns
SETTINGS = (*WORKLOAD, *LATER, "topology", "mtu", "tso", "gso", "gro")


def settings(record: Record) -> dict[str, Scalar]:
    """What the run was, from the record itself: every setting that decides its result."""
    found: dict[str, Scalar] = {name: record["workload"][key] for name, key in WORKLOAD.items()}
    found |= {name: record["workload"].get(key, then) for name, (key, then) in LATER.items()}
    path = record["topology"]
    found |= {"topology": path["kind"], "mtu": path["mtu_bytes"]}
    found |= {name: path["offloads"].get(name) for name in ("tso", "gso", "gro")}
    return found


def left_alone(records: Iterable[Record]) -> frozenset[str]:
    """Of the later settings, those that no run has changed: a table of these runs need not show them."""
    found = [settings(record) for record in records]
    changed = {name for name, (_, then) in LATER.items() if any(one[name] != then for one in found)}
    return frozenset(LATER) - changed


def factors(record: Record) -> Mapping[str, Scalar]:
    """The factors of the run's experiment; outside an experiment all of its settings."""
    found: Mapping[str, Scalar] | None = record["run"].get("factors")
    return settings(record) if found is None else found


def delivered_bytes(record: Record) -> int:
    """Payload that moved in the ledger segments, in bytes."""
    return segments.delivered_bytes(select(segments_of(record), "ledger"))
