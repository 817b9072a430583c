"""May the ledger of a watched program be believed, and what does it say. Pure."""

from __future__ import annotations

from typing import Any

from copyscope.ledger.headline import percent
from copyscope.ledger.verdict import (
    below_the_shortest,
    broken_identities,
    heavy_losses,
    interrupted,
    judged,
    missing_hooks,
)
from copyscope.record.program.volume import BY_REFERENCE, SPLICED_MEMORY, added, volume
from copyscope.record.segments import Record, counted_whole, cut_short

SATURATED = 0.90
MOSTLY = 0.50
WORTH_SAYING = 0.005
WORTH_A_WARNING = 0.05
WORDS = {
    "copy_in": "the copy into the kernel",
    "pin": "taking pages by reference",
    "deferred": "the deferred copy",
    "silent": "copies on the way",
    "completion": "completions",
    "copy_out": "the copy out to the program",
    "mapped": "mapping what it received",
}
# The kernel's copy from the page cache to a program that reads a file in order to send it; the last is tmpfs.
FILE_READS = ("filemap_read", "generic_file_read_iter", "generic_file_buffered_read", "shmem_file_read_iter")


def find_verdict(record: Record) -> dict[str, Any]:
    """The verdict section of a record whose other derived sections are filled in."""
    reasons = (
        interrupted(record)
        + silence(record)
        + broken_identities(record)
        + heavy_losses(record)
        + too_short(record)
        + missing_hooks(record)
    )
    return judged(record, reasons, find_sentence(record), find_limit(record))


def silence(record: Record) -> list[str]:
    """A program that moved nothing has no ledger."""
    if any(row["bytes"] for row in record["volume"]):
        return []
    return [
        f"nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by {record['target']['name']} in "
        f"{record['run']['measured_s']:.1f} s"
    ]


def too_short(record: Record) -> list[str]:
    """No time with instruments, or too little of it, unless all that it moved was counted."""
    if cut_short(record) or counted_whole(record):
        return []
    ways = ", or count all of it with --whole" if record["target"]["how"] == "command" else ""
    return below_the_shortest(record, f"for a ledger: let the program run longer{ways}")


def find_sentence(record: Record) -> str:
    """What the copies of this program cost, the dearest first, and what it spares itself."""
    name = record["target"]["name"]
    shares = {account: share for account in WORDS if (share := account_share(record, account)) is not None}
    if not shares:
        text = f"what its copies cost is not known: {why_unpriced(record)}"
        return f"{name}: {text}{''.join(ways_of_its_own(record))}"
    told = sorted((a for a in shares if shares[a] >= WORTH_SAYING), key=lambda a: -shares[a])
    parts = [f"{WORDS[account]} takes {percent(shares[account])}" for account in told]
    reads = file_read_share(record)
    if reads is not None and reads >= WORTH_SAYING:
        parts.append(f"reading files into the program takes {percent(reads)}")
    text = ", ".join(parts) + " of its CPU time" if parts else "no copy takes 0.5 % of its CPU time"
    zerocopy = record["zerocopy"]
    if zerocopy is not None and zerocopy["completions"]:
        copied = zerocopy["copied"] / zerocopy["completions"]
        text += f"; {percent(copied)} of its zero-copy sends were copied after all"
        if zerocopy["cause"] is not None:
            text += f": {zerocopy['cause']['sentence']}"
    return f"{name}: {text}{''.join(ways_of_its_own(record))}{cost_of_watching(record)}"


def ways_of_its_own(record: Record) -> list[str]:
    """Which of its bytes went in a way that the shares of its time do not show."""
    sent, found = volume(record, "send"), []
    whole, both = record["tx_bytes"], record["tx_bytes"] + record["rx_bytes"]
    memory = added([row for row in sent if row["syscall"] == SPLICED_MEMORY], "bytes")
    pages = added([row for row in sent if row["syscall"] in BY_REFERENCE], "bytes") - memory
    if pages:
        found.append(f"; {percent(pages / whole)} of its bytes went out by reference to pages")
    if memory:
        found.append(
            f"; {percent(memory / whole)} of its bytes went out by reference to its own memory (vmsplice), "
            "and nothing tells it when that may be written again"
        )
    local, mptcp = (
        added([row for row in (*sent, *volume(record, "receive")) if row["protocol"] in names], "bytes")
        for names in (("unix_stream", "unix_dgram"), ("mptcp",))
    )
    if local:
        found.append(f"; {percent(local / both)} of its bytes went through UNIX sockets")
    if mptcp:
        found.append(
            f"; {percent(mptcp / both)} of its bytes went over MPTCP, where the kernel ignores MSG_ZEROCOPY "
            "(it refuses SO_ZEROCOPY)"
        )
    return found


def why_unpriced(record: Record) -> str:
    """The first reason that a row of its ledger gives."""
    rows = [*record["ledger"], *record["stages"]]
    reasons = (row["reasons"].get("share") for row in rows if row["side"] == "target")
    return next((reason for reason in reasons if reason), "no copy was seen")


def cost_of_watching(record: Record) -> str:
    """Said only where it is certain that watching cost more than it should."""
    attached = record["overhead"]["attached"]
    if attached["high"] is None or attached["high"] > 1 - WORTH_A_WARNING:
        return ""
    return f"; being watched cost it about {percent(attached['effect'])} of its goodput"


def account_share(record: Record, account: str) -> float | None:
    """An account's part of the program's CPU time, all contexts."""
    rows = [r for r in record["ledger"] if r["account"] == account and r["side"] == "target"]
    shares = [row["share"] for row in rows]
    return None if not shares or None in shares else float(sum(shares))


def file_read_share(record: Record) -> float | None:
    """The part of the program's samples that read files: where it does not use sendfile, a copy more."""
    rows = [row for row in record["samples"] if row["side"] == "target"]
    whole = sum(row["weight"] for row in rows if row["event"] in ("cpu-clock", "cycles"))
    reading = sum(
        row["weight"]
        for row in rows
        if row["symbol"] in FILE_READS and row["event"] in ("cpu-clock", "cycles")
    )
    return reading / whole if whole else None


def find_limit(record: Record) -> dict[str, str]:
    """Who kept it from being faster: the program's CPU, its peer or the path, by TCP's own account."""
    cpus = record["sides"]["target"]["cpus_used"]
    evidence = "CPU time not known" if cpus is None else f"on CPU {cpus * 100:.0f} % of the time"
    threads = max((s["target"]["threads"] for s in record["run"]["segments"]), default=1)
    if cpus is not None and threads == 1 and cpus >= SATURATED:
        return {"who": "target", "evidence": f"{evidence}, with one thread"}
    machine_cpus = int(record["machine"]["cpus_online"])
    if cpus is not None and cpus >= SATURATED * machine_cpus:
        return {"who": "target", "evidence": f"{evidence}, of {machine_cpus} CPUs"}
    rows = record["connections"]
    busy_ms = added(rows, "busy_ms")
    if not busy_ms:
        return {"who": "unknown", "evidence": f"{evidence}; no connection that lasted was busy sending"}
    window = added(rows, "rwnd_limited_ms") / busy_ms
    buffer = added(rows, "sndbuf_limited_ms") / busy_ms
    evidence += (
        f"; of its connections' busy time {percent(window)} waited for the peer's window and "
        f"{percent(buffer)} for the send buffer"
    )
    who = "peer" if window >= MOSTLY else "path" if buffer >= MOSTLY else "unknown"
    return {"who": who, "evidence": evidence}
