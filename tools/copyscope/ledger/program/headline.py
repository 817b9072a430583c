"""The main finding of a run beside a program: what its copies cost, and which it does without. Pure."""

from collections.abc import Iterable, Sequence

from copyscope.ledger.headline import percent
from copyscope.record.derived import AccountRow, StageRow
from copyscope.record.instruments import Sample
from copyscope.record.program.derived import ProgramZerocopy, Watching
from copyscope.record.program.raw import RawProgramRun, Volume
from copyscope.record.program.volume import BY_REFERENCE, SPLICED_MEMORY, added, dropped, volume
from copyscope.record.segments import total

WORTH_SAYING = 0.005
WORTH_A_WARNING = 0.05
WORDS = {
    "gather": "its own memcpy",
    "copy_in": "the copy into the kernel",
    "pin": "taking pages by reference",
    "encrypt": "encrypting (kTLS)",
    "deferred": "the deferred copy",
    "silent": "copies on the way",
    "completion": "completions",
    "decrypt": "decrypting (kTLS)",
    "copy_out": "the copy out to the program",
    "mapped": "mapping what it received",
}
# The kernel's copy from the page cache to a program that reads a file in order to send it; the last is tmpfs.
FILE_READS = ("filemap_read", "generic_file_read_iter", "generic_file_buffered_read", "shmem_file_read_iter")


def find_sentence(
    raw: RawProgramRun,
    ledger: Sequence[AccountRow],
    stages: Sequence[StageRow],
    zerocopy: ProgramZerocopy | None,
    watching: Watching,
) -> str:
    """What the copies of this program cost, the dearest first, and which it does without."""
    name, own_ways = raw.target.name, ways_of_its_own(raw)
    shares = {account: share for account in WORDS if (share := account_share(ledger, account)) is not None}
    if not shares.keys() - {"gather"}:
        return f"{name}: what its copies cost is not known: {why_unpriced([*ledger, *stages])}{own_ways}"
    told = sorted((a for a in shares if shares[a] >= WORTH_SAYING), key=lambda a: -shares[a])
    parts = [f"{WORDS[account]} takes {percent(shares[account])}" for account in told]
    reads = file_read_share(raw.samples)
    if reads is not None and reads >= WORTH_SAYING:
        parts.append(f"reading files into the program takes {percent(reads)}")
    text = f"{', '.join(parts) or 'no copy takes as much as 0.5 %'} of its CPU time"
    if zerocopy is not None and zerocopy.completions and zerocopy.copied is not None:
        copied = percent(zerocopy.copied / zerocopy.completions)
        text += f"; {copied} of its zero-copy sends were copied after all"
        text += f": {zerocopy.cause.sentence}" if zerocopy.cause else ""
    return f"{name}: {text}{own_ways}{cost_of_watching(watching)}"


def ways_of_its_own(raw: RawProgramRun) -> str:
    """Which of its bytes went in a way that the shares of its time do not show."""
    sent = volume(raw.volume, "send")
    both = [*sent, *volume(raw.volume, "receive")]
    tx, rx = (total(raw.run.segments, "target", f"bytes_{done}") for done in ("sent", "received"))
    memory = part([row for row in sent if row.syscall == SPLICED_MEMORY], tx)
    pages = part([row for row in sent if row.syscall in BY_REFERENCE and row.syscall != SPLICED_MEMORY], tx)
    local = part([row for row in both if row.protocol in ("unix_stream", "unix_dgram")], tx + rx)
    thrown_away = min(1.0, part(dropped(raw.volume), rx))  # some may have been looked at before
    mptcp = part([row for row in both if row.protocol == "mptcp"], tx + rx)
    ways = (
        (pages, "of its bytes went out by reference to pages"),
        (
            memory,
            "of its bytes went out by reference to its own memory (vmsplice), and nothing tells it when that "
            "may be written again",
        ),
        (thrown_away, "of what it received was dropped without a copy (MSG_TRUNC)"),
        (local, "of its bytes went through UNIX sockets"),
        (
            mptcp,
            "of its bytes went over MPTCP, where the kernel ignores MSG_ZEROCOPY (it refuses SO_ZEROCOPY)",
        ),
    )
    return "".join(f"; {percent(share)} {what}" for share, what in ways if share)


def part(rows: Sequence[Volume], whole: int) -> float:
    """Their share of so many bytes; 0 of nothing."""
    moved = added(rows, "bytes")
    return moved / whole if moved else 0.0


def why_unpriced(rows: Iterable[AccountRow | StageRow]) -> str:
    """The first reason that a row of its ledger gives."""
    reasons = (row.reasons.get("share") for row in rows if row.side == "target")
    return next((reason for reason in reasons if reason), "no copy was seen")


def cost_of_watching(watching: Watching) -> str:
    """Said only where it is certain that watching cost more than it should."""
    if watching.high is None or watching.high > 1 - WORTH_A_WARNING:
        return ""
    return f"; being watched cost it about {percent(watching.effect)} of its goodput"


def account_share(ledger: Iterable[AccountRow], account: str) -> float | None:
    """An account's part of the program's CPU time, all contexts."""
    shares = [row.share for row in ledger if row.account == account and row.side == "target"]
    known = [share for share in shares if share is not None]
    return sum(known) if shares and len(known) == len(shares) else None


def file_read_share(samples: Iterable[Sample]) -> float | None:
    """The part of the program's samples that read files: where it does not use sendfile, a copy more."""
    rows = [row for row in samples if row.side == "target" and row.event in ("cpu-clock", "cycles")]
    whole = sum(row.weight for row in rows)
    return sum(row.weight for row in rows if row.symbol in FILE_READS) / whole if whole else None
