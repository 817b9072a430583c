"""The main finding of a run as one sentence: what the strategy did, and what its copies cost."""

from __future__ import annotations

from collections import Counter

from copyscope.ledger import overhead
from copyscope.ledger.attribution import tied
from copyscope.ledger.cpu_time import cpu_time
from copyscope.ledger.identities.bytes import cell, sends_nothing
from copyscope.ledger.zerocopy_cause import device_without_gather
from copyscope.record.segments import Record, select, spliced_total, topology_name, total, why_no_ledger

# a copy below this share of the sends is a remark, above it is the finding
MOST_SENDS = 0.99


def find_sentence(record: Record) -> str:
    """One sentence; it says so when watching changed more than what it shows."""
    opening = f"{record['workload']['impl']} over {topology_name(record)}"
    absent = why_no_ledger(record)
    if absent:
        return f"{opening}: what its copies cost is not known: {absent}"
    text, share = _finding(record)
    return f"{opening}: {text}{_caution(record, share)}"


def _finding(record: Record) -> tuple[str, float | None]:
    """The finding and the share of CPU time that it rests on."""
    zerocopy = record["zerocopy"]
    if zerocopy is None or zerocopy["sends"] == 0:
        return _spliced(record) if spliced_total(select(record, "ledger"), "bytes") else _plain(record)
    copied = zerocopy["copied"] / zerocopy["completions"] if zerocopy["completions"] else 0.0
    if zerocopy["cause"] is not None and device_without_gather(record) is not None and copied >= MOST_SENDS:
        share = account_share(record, "copy_in")
        return f"the copy was made anyway, at the send call: {zerocopy['cause']['sentence']}", share
    if copied >= MOST_SENDS:
        return _deferred(record, "the copy was made anyway, later and ")
    if copied > 0:
        part = f"{zerocopy['copied']:,} of {zerocopy['completions']:,} sends were copied after all, "
        return _deferred(record, part)
    if zerocopy["bytes_silent"]:
        share = account_share(record, "silent")
        where = doer(record, "silent")
        return (
            f"completions say zero-copy, yet the bytes were copied on the way{where}, "
            f"{percent(share)} of all CPU time: {zerocopy['cause']['sentence']}"
        ), share
    pin, completion = account_share(record, "pin"), account_share(record, "completion")
    both = None if pin is None or completion is None else pin + completion
    return (
        "no copy on the way; taking the pages by reference and completing the sends costs "
        f"{percent(both)} of all CPU time instead"
    ), both


def _deferred(record: Record, opening: str) -> tuple[str, float | None]:
    share = account_share(record, "deferred")
    context = main_context(record, "deferred")
    place = {"softirq": "in softirq", "process": "in a system call"}.get(context or "", "in the kernel")
    sentence = record["zerocopy"]["cause"]["sentence"] if record["zerocopy"]["cause"] else "cause not known"
    return f"{opening}{place}{doer(record, 'deferred')}, {percent(share)} of all CPU time: {sentence}", share


def _spliced(record: Record) -> tuple[str, float | None]:
    if cell(record["ledger"], "copy_in", "bytes"):
        share = account_share(record, "copy_in")
        device = device_without_gather(record)
        return f"the copy was made anyway, at the send call: {device} has no scatter-gather", share
    if cell(record["ledger"], "silent", "bytes"):
        share = account_share(record, "silent")
        return (
            f"pages of a file went into the socket by reference, yet were copied on the way"
            f"{doer(record, 'silent')}, {percent(share)} of all CPU time"
        ), share
    share = account_share(record, "pin")
    out = account_share(record, "copy_out")
    return (
        f"no copy into the kernel: pages of a file by reference, {percent(share)} of all CPU time; the copy "
        f"out to the receiver takes {percent(out)}"
    ), share


def _plain(record: Record) -> tuple[str, float | None]:
    if sends_nothing(record):
        per_message = record["messages"] and _sender_ns_per_message(record)
        cost = f", {per_message:,.0f} ns of CPU time per message" if per_message else ""
        return f"nothing was sent: this is the price of the loop and the clock{cost}", None
    parts = []
    gather = account_share(record, "gather")
    if gather:
        parts.append(f"the program's gather copy takes {percent(gather)}")
    parts.append(f"the copy into the kernel takes {percent(account_share(record, 'copy_in'))}")
    parts.append(f"the copy out to the receiver {percent(account_share(record, 'copy_out'))}")
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) + " of all CPU time", account_share(
        record, "copy_in"
    )


def account_share(record: Record, account: str) -> float | None:
    """An account's part of the CPU time of all sides, all contexts (0..1); None when a part is unknown.

    What is not known to be of this run is no part of it.
    """
    rows = [row["cpu_ns"] for row in record["ledger"] if row["account"] == account]
    sides = [side["cpu_ns"] for name, side in record["sides"].items() if name != "elsewhere"]
    if not rows or None in rows or None in sides or not sum(sides):
        return None
    return float(sum(rows) / sum(sides))


def main_context(record: Record, account: str) -> str | None:
    """The context in which most of an account's time ran."""
    spent: Counter[str] = Counter()
    for row in record["ledger"]:
        if row["account"] == account and row["cpu_ns"]:
            spent[row["context"]] += row["cpu_ns"]
    return spent.most_common(1)[0][0] if spent else None


def doer(record: Record, category: str) -> str:
    """The function that most samples of a category name, in brackets; empty without samples."""
    symbols: Counter[str] = Counter()
    for row in tied(record["samples"]):
        if row["category"] == category:
            symbols[row["symbol"]] += row["samples"]
    return f" ({symbols.most_common(1)[0][0]})" if symbols else ""


def percent(share: float | None) -> str:
    """A share for reading."""
    return "an unknown part" if share is None else f"{share * 100:.0f} %"


def _sender_ns_per_message(record: Record) -> float | None:
    segments = select(record, "ledger")
    messages = total(segments, "sender", "messages")
    return cpu_time(record, "sender").ns / messages if messages else None


def _caution(record: Record, share: float | None) -> str:
    """Of what watching changed, only what is certain: the end of the interval that is nearer to no effect."""
    low, high = record["overhead"]["low"], record["overhead"]["high"]
    if low is None or high is None or share is None:
        return ""
    word = overhead.found(low, high)
    if word == "too noisy to tell":
        return f"; too noisy to tell what watching changed (goodput {change(low)} to {change(high)})"
    certain = max(0.0, 1 - high, low - 1)
    if certain <= share:
        return ""
    return (
        f"; watching changed goodput by at least {percent(certain)}, more than this finding: "
        "measure with fewer instruments"
    )


def change(ratio: float) -> str:
    """A ratio as what it changed, for reading."""
    return f"{(ratio - 1) * 100:+.0f} %"
