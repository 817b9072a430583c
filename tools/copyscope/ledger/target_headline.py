"""The main finding of a run beside a program: what its copies cost, and which it does without. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from copyscope.grouping import grouped
from copyscope.ledger.attribution import SideTime, clocked
from copyscope.ledger.checks.time import missed_at_ends_ns
from copyscope.ledger.cpu_time import cpu_time
from copyscope.ledger.enough import too_few
from copyscope.ledger.share import WORTH_A_WARNING, WORTH_SAYING, Share, percent, share_of_samples
from copyscope.record.derived import AccountRow, StageRow, Watching, Zerocopy
from copyscope.record.instruments import Sample
from copyscope.record.measured import Measured
from copyscope.record.segments import total
from copyscope.record.volume import (
    ONE_EACH,
    SOCKMAP,
    SPLICED_MEMORY,
    SPLICED_ON,
    SPLICED_WRITTEN,
    added,
    dropped,
    volume,
)
from copyscope.record.watched import SendError, Volume

# Samples that stand for so many times the time of the clocks.
MUCH_MORE = 1.1
# What is said of each account; of the last, which is a part of a stage, too.
WORDS = {
    "gather": "its own memcpy takes",
    "copy_in": "the copy into the kernel takes",
    "pin": "taking pages by reference takes",
    "encrypt": "encrypting (kTLS) takes",
    "deferred": "the deferred copy takes",
    "silent": "copies on the way take",
    "completion": "completions take",
    "decrypt": "decrypting (kTLS) takes",
    "copy_out": "the copy out to the program takes",
    "mapped": "mapping what it received takes",
    "file reads": "reading files into the program takes",
}
# The kernel's copy from the page cache to a program that reads a file in order to send it; the last is tmpfs.
FILE_READS = ("filemap_read", "generic_file_read_iter", "generic_file_buffered_read", "shmem_file_read_iter")


def find_sentence(
    raw: Measured,
    rows: Sequence[AccountRow | StageRow],
    zerocopy: Zerocopy | None,
    watching: Watching | None,
    *,
    time: SideTime,
) -> str:
    """What the copies of this program cost, the dearest first, and which it does without.

    time: of its samples.
    """
    text = what_copies_cost(raw, rows, time)
    if zerocopy is not None and zerocopy.completions and zerocopy.copied is not None:
        copied = percent(zerocopy.copied / zerocopy.completions)
        text += f"; {copied} of its zero-copy sends were copied after all"
        text += f": {zerocopy.cause.sentence}" if zerocopy.cause else ""
    text += ways_of_its_own(raw) + unseen_ends(raw, time)
    return f"{raw.watched.name}: {text}{cost_of_watching(watching)}"


def what_copies_cost(raw: Measured, rows: Sequence[AccountRow | StageRow], time: SideTime) -> str:
    """Of its CPU time; or why that is not known."""
    few = too_few(raw, time)
    accounts = [row for row in rows if isinstance(row, AccountRow)]
    shares = {} if few else account_shares(accounts, time)
    if not shares.keys() - {"gather"}:
        why = few.sentence() if few else why_unpriced(rows)
        return f"what its copies cost is not known: {why}"
    if (reads := file_reads(raw.samples, time)) is not None:
        shares["file reads"] = reads
    return f"{', '.join(told(shares)) or none_above(shares)} of its CPU time"


def told(shares: Mapping[str, Share]) -> list[str]:
    """Those that are certain to be worth it, the largest first; then those of which only bounds are known."""
    certain = {name: one for name, one in shares.items() if one.low >= WORTH_SAYING}
    found = sorted(certain, key=lambda name: -(certain[name].low + certain[name].high))
    if found:
        found += [
            name
            for name, one in shares.items()
            if one.share is None and name not in certain and one.high >= WORTH_SAYING
        ]
    return [f"{WORDS[name]} {shares[name].spoken()}" for name in found]


def none_above(shares: Mapping[str, Share]) -> str:
    """Of nothing that is certain to be worth saying: what the largest may be."""
    largest = max(shares.values(), key=lambda one: one.high)
    if largest.high < WORTH_SAYING:
        return "no copy takes as much as 0.5 %"
    return f"no copy takes more than {largest.at_most()}"


def unseen_ends(raw: Measured, time: SideTime) -> str:
    """Where processes ended between two looks at their clocks, and samples say that these miss much."""
    missed_ns = missed_at_ends_ns(raw, "target")
    spent_ns = cpu_time(raw, "target").ns
    seen_ns = clocked(time.weights, raw, "target")
    if time.event != "cpu-clock" or not missed_ns or seen_ns <= MUCH_MORE * spent_ns:
        return ""
    return (
        f"; {raw.watched.exits:,} of its processes ended between two looks at their clocks: its CPU time is "
        "more than is shown, its shares are right"
    )


def ways_of_its_own(raw: Measured) -> str:
    """Which of its bytes went in a way that the shares of its time do not show."""
    sent = volume(raw.volume, "send")
    both = [*sent, *volume(raw.volume, "receive")]
    tx, rx = (total(raw.run.segments, "target", f"bytes_{done}") for done in ("sent", "received"))
    memory = part([row for row in sent if row.syscall == SPLICED_MEMORY], tx)
    pages = part([row for row in sent if row.syscall in ("sendfile", "splice")], tx)
    relayed = part([row for row in sent if row.syscall == SPLICED_ON], tx)
    redirected = part([row for row in both if row.protocol == SOCKMAP], tx + rx)
    written = part([row for row in sent if row.syscall == SPLICED_WRITTEN], tx)
    local = part([row for row in both if row.protocol in ("unix_stream", "unix_dgram")], tx + rx)
    thrown_away = min(1.0, part(dropped(raw.volume), rx))  # some may have been looked at before
    mptcp = part([row for row in both if row.protocol == "mptcp"], tx + rx)
    ways = (
        (pages, "of its bytes went out by reference to pages"),
        (relayed, "of its bytes it spliced from socket to socket, by reference"),
        (written, "of its bytes it wrote into a pipe, which copied them once, and spliced them from there"),
        (
            memory,
            "of its bytes went out by reference to its own memory (vmsplice), and nothing tells it when that "
            "may be written again",
        ),
        (thrown_away, "of what it received was dropped without a copy (MSG_TRUNC)"),
        (local, "of its bytes went through UNIX sockets"),
        (
            redirected,
            "of its bytes went through sockets in a sockmap, whose BPF programs may redirect them past TCP",
        ),
        (
            mptcp,
            "of its bytes went over MPTCP, where the kernel ignores MSG_ZEROCOPY (it refuses SO_ZEROCOPY)",
        ),
    )
    said = "".join(f"; {percent(share)} {what}" for share, what in ways if share >= WORTH_SAYING)
    if raw.watched.uncounted:
        said += f"; what goes through its {', '.join(raw.watched.uncounted)} sockets is not counted"
    return said + refused_sends(raw)


def refused_sends(raw: Measured) -> str:
    """Calls of which the socket took nothing, where they are many, by their error."""
    errors = raw.send_errors or []
    refused = added(errors, "calls")
    made = refused + added([row for row in volume(raw.volume, "send") if row.syscall in ONE_EACH], "calls")
    if not made or refused / made < WORTH_A_WARNING:
        return ""
    return f"; {percent(refused / made)} of its send calls were refused ({by_error(errors)})"


def by_error(errors: Iterable[SendError]) -> str:
    """`EAGAIN 60,000, ENOBUFS 17`: the most frequent first."""
    found = {error: added(rows, "calls") for error, rows in grouped(errors, lambda row: row.error).items()}
    return ", ".join(f"{error} {found[error]:,}" for error in sorted(found, key=lambda one: -found[one]))


def part(rows: Sequence[Volume], whole: int) -> float:
    """Their share of so many bytes; 0 of nothing."""
    moved = added(rows, "bytes")
    return moved / whole if moved else 0.0


def why_unpriced(rows: Iterable[AccountRow | StageRow]) -> str:
    """The first reason that a row of its ledger gives."""
    reasons = (row.reasons.get("share") for row in rows if row.side == "target")
    return next((reason for reason in reasons if reason), "no copy was seen")


def cost_of_watching(watching: Watching | None) -> str:
    """Said only where it is certain that watching cost more than it should."""
    if watching is None or watching.high is None or watching.high > 1 - WORTH_A_WARNING:
        return ""
    return f"; being watched cost it about {percent(watching.effect)} of its goodput"


def account_shares(ledger: Iterable[AccountRow], time: SideTime) -> dict[str, Share]:
    """Each account's part of the program's CPU time, all contexts, where it or its bounds are known."""
    rows = grouped((row for row in ledger if row.side == "target"), lambda row: row.account)
    return {
        account: found for account, some in rows.items() if (found := share_of_rows(some, time)) is not None
    }


def share_of_rows(rows: Sequence[AccountRow | StageRow], time: SideTime) -> Share | None:
    """Of one row nothing but the interval may be known."""
    shares = [row.share for row in rows if row.share is not None]
    if rows and len(shares) == len(rows):
        return share_of_samples(time, sum(shares)) if time.weights.all_samples else None
    if len(rows) == 1 and rows[0].ci is not None and time.cpu_ns:
        return Share(None, rows[0].ci.low_ns / time.cpu_ns, min(1.0, rows[0].ci.high_ns / time.cpu_ns))
    return None


def file_reads(samples: Iterable[Sample], time: SideTime) -> Share | None:
    """The part of its time in which it reads files: where it does not use sendfile, a copy more."""
    rows = [row for row in samples if row.side == "target" and row.event == time.event]
    whole = sum(row.weight for row in rows)
    if not whole or not time.weights.all_samples:
        return None
    return share_of_samples(time, sum(row.weight for row in rows if row.symbol in FILE_READS) / whole)
