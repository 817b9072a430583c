"""The main finding of a run as one sentence: what the strategy did, and what its copies cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from copyscope.grouping import gathered, grouped
from copyscope.ledger import overhead, user_copies
from copyscope.ledger.attribution import SideTime, clocked, cpu_time, tied
from copyscope.ledger.checks.own_traffic import sends
from copyscope.ledger.checks.time import missed_at_ends_ns
from copyscope.ledger.flows import encrypts
from copyscope.ledger.rows import cell
from copyscope.ledger.share import (
    FEWEST_SAMPLES,
    WORTH_A_WARNING,
    WORTH_SAYING,
    Share,
    percent,
    share_of_all,
    too_few,
)
from copyscope.record.derived import AccountRow, Overhead, Sides, Spent, StageRow, Watching, Zerocopy
from copyscope.record.instruments import Sample
from copyscope.record.measured import Measured
from copyscope.record.segments import (
    measured,
    relays,
    select,
    spliced_total,
    total,
    why_no_ledger,
    zerocopy_total,
)
from copyscope.record.watched import (
    ONE_EACH,
    SOCKMAP,
    SPLICED_MEMORY,
    SPLICED_ON,
    SPLICED_WRITTEN,
    SendError,
    Volume,
    added,
    dropped,
    volume,
)
from copyscope.units import counted

# a copy below this share of the sends is a remark, above it is the finding
MOST_SENDS = 0.99
# Accounts of which the phrases below name the part of all CPU time.
SAID = ("gather", "copy_in", "copy_out", "pin", "completion", "deferred", "silent", "encrypt", "decrypt")
# What happened to what was sent -> how it is said.
PHRASES = {
    "encrypted": (
        "kTLS {tls}: the cipher takes {encrypt} to encrypt and {decrypt} to decrypt, the copies into "
        "the kernel and out of it {copy_in} and {copy_out} of all CPU time"
    ),
    "late": "the copy was made anyway, later and {where}{late_by}, {deferred} of all CPU time: {why}",
    "partly late": (
        "{copied_sends} of {completed_sends} sends were copied after all, {where}{late_by}, "
        "{deferred} of all CPU time: {why}"
    ),
    "on the way": (
        "completion notices say zero-copy, but the bytes were copied on the way{silent_by}, {silent} of all "
        "CPU time: {why}"
    ),
    "by reference": (
        "no copy on the way; page pinning and completion notices cost {reference} of all CPU time instead"
    ),
    "pages on the way": (
        "{pages} went into the socket by reference, but were copied on the way{silent_by}, {silent} "
        "of all CPU time"
    ),
    "pages": (
        "no copy into the kernel: {pages} by reference, {pin} of all CPU time; the copy to the receiver "
        "takes {copy_out}"
    ),
    "copied": (
        "the copy into the kernel takes {copy_in} and the copy to the receiver {copy_out} of all CPU time"
    ),
    "relayed": (
        "the copies out of one socket and into the other take {taken} and {copy_in}, the copy to the "
        "receiver {received} of all CPU time"
    ),
    "nothing": "nothing was sent: this is the cost of the loop and the clock{cost}",
}
GATHERED = "the program's gather copy takes {gather}, "
# On whose share it rests: what watching changed may not be more than that.
RESTS_ON = {
    **{"encrypted": "encrypt", "late": "deferred", "partly late": "deferred", "on the way": "silent"},
    **{"by reference": "reference", "pages on the way": "silent", "pages": "pin", "copied": "copy_in"},
    **{"relayed": "copy_in", "nothing": None},
}


@dataclass(frozen=True)
class Story:
    """What the sentence is about."""

    raw: Measured
    ledger: Sequence[AccountRow]
    sides: Sides
    zerocopy: Zerocopy | None


def find_sentence(
    raw: Measured,
    rows: Sequence[AccountRow | StageRow],
    sides: Sides,
    zerocopy: Zerocopy | None,
    cost: Overhead,
    *,
    times: Mapping[str, SideTime],
) -> str:
    """One sentence; it says so when watching changed more than what it shows."""
    if raw.target is not None:
        return _of_target(raw, rows, zerocopy, cost.watching, time=times["target"])
    accounts = [row for row in rows if isinstance(row, AccountRow)]
    return _of_own(Story(raw, accounts, sides, zerocopy), cost)


def _of_own(story: Story, cost: Overhead) -> str:
    opening = f"{story.raw.asked.impl} over {story.raw.topology.kind}"
    absent = why_no_ledger(story.raw.run)
    if absent:
        return f"{opening}: what its copies cost is not known: {absent}"
    text, share = _finding(story)
    told = f"{_few(story)}{_waiting(story.zerocopy)}{_refused(story.raw)}{_caution(cost, share)}"
    return f"{opening}: {text}{told}"


def _finding(story: Story) -> tuple[str, Share | None]:
    """The finding and the share of CPU time that it rests on."""
    found = which(story)
    shares = {account: account_share(story, account) for account in SAID}
    for side, name in (("sender", "taken"), ("receiver", "received")):
        shares[name] = account_share(story, "copy_out", side)
    shares["reference"] = joined((shares["pin"], shares["completion"]))
    said = {name: spoken(share) for name, share in shares.items()} | _facts(story)
    gather = shares["gather"]
    first = GATHERED.format(**said) if found == "copied" and gather and gather.high else ""
    rests_on = RESTS_ON[found]
    return first + PHRASES[found].format(**said), shares[rests_on] if rests_on else None


def which(story: Story) -> str:
    """What happened to what was sent: a row of PHRASES."""
    raw, zerocopy = story.raw, story.zerocopy
    silent = cell(story.ledger, "silent")
    if encrypts(raw):
        return "encrypted"
    if zerocopy is not None and zerocopy.sends:
        if zerocopy.copied:
            part = zerocopy.copied / (zerocopy.completions or 1)
            return "late" if part >= MOST_SENDS else "partly late"
        return "on the way" if zerocopy.bytes_silent else "by reference"
    if spliced_total(select(raw.run.segments, "ledger"), "bytes"):
        return "pages on the way" if silent else "pages"
    if relays(raw.run):
        return "relayed"
    return "copied" if sends(raw) else "nothing"


def _facts(story: Story) -> dict[str, str]:
    """What the phrases name beside shares."""
    raw, zerocopy = story.raw, story.zerocopy
    memory = any(s.sender.send_syscalls.get("vmsplice") for s in raw.run.segments)
    lent = "the program's memory" if memory else "a file"
    ledger = select(raw.run.segments, "ledger")
    sent, spent_ns = total(ledger, "sender", "messages"), cpu_time(raw, "sender").ns
    cause = zerocopy.cause if zerocopy else None
    context = main_context(story.ledger, "deferred") or ""
    return {
        "tls": raw.asked.tls or "",
        "pages": "pages of packets" if relays(raw.run) else f"pages of {lent}",
        "cost": f", {spent_ns / sent:,.0f} ns of CPU time per message" if sent and spent_ns else "",
        "copied_sends": f"{zerocopy.copied or 0:,}" if zerocopy else "",
        "completed_sends": f"{zerocopy.completions or 0:,}" if zerocopy else "",
        "where": {"softirq": "in softirq", "process": "in a system call"}.get(context, "in the kernel"),
        "late_by": doer(raw.samples, "deferred"),
        "silent_by": doer(raw.samples, "silent"),
        "why": cause.sentence if cause else "cause not known",
    }


def account_share(story: Story, account: str, of_side: str | None = None) -> Share | None:
    """An account's part of the CPU time of all sides, all contexts; None when a part is unknown.

    `of_side`: what of it is this side's.

    What is not known to be of this run is no part of it. A time without an interval was timed and is exact.
    """
    rows = [row for row in story.ledger if row.account == account and of_side in (None, row.side)]
    spent = [row.cpu_ns for row in rows if row.cpu_ns is not None]
    sides: list[Spent] = [*story.sides.processes().values(), story.sides.other]
    known_whole = [side.cpu_ns for side in sides if side.cpu_ns is not None]
    if not rows or len(spent) < len(rows) or len(known_whole) < len(sides) or not sum(known_whole):
        return None
    if samples_of(story.sides) < FEWEST_SAMPLES:
        return None
    whole = sum(known_whole)
    low = sum(row.ci.low_ns if row.ci else row.cpu_ns or 0.0 for row in rows)
    high = sum(row.ci.high_ns if row.ci else row.cpu_ns or 0.0 for row in rows)
    return Share(sum(spent) / whole, low / whole, min(1.0, high / whole))


def joined(shares: Iterable[Share | None]) -> Share | None:
    """Several accounts as one; None when one of them is unknown."""
    parts = list(shares)
    known = [one for one in parts if one is not None]
    if len(known) < len(parts):
        return None
    total_share = sum(one.share or 0.0 for one in known)
    return Share(total_share, sum(one.low for one in known), min(1.0, sum(one.high for one in known)))


def spoken(share: Share | None) -> str:
    """A share for reading, with its bounds where it is not certain."""
    return "an unknown part" if share is None else share.spoken()


def samples_of(sides: Sides) -> int:
    """All that were taken of the run."""
    every: list[Spent] = [*sides.processes().values(), sides.other]
    return sum(side.samples or 0 for side in every)


def _waiting(zerocopy: Zerocopy | None) -> str:
    """A sender that waits for each notice does little else."""
    share = zerocopy.waiting_share if zerocopy else None
    if share is None or share < WORTH_A_WARNING:
        return ""
    return f"; {percent(share)} of its time the sender waited for the kernel to release a buffer"


def _refused(raw: Measured) -> str:
    """Send calls that the kernel took nothing of, where they are many."""
    segments = measured(raw.run.segments)
    calls, full = total(segments, "sender", "calls"), total(segments, "sender", "eagain")
    beyond = zerocopy_total(segments, "enobufs") or 0
    share = (full + beyond) / calls if calls else 0.0
    if share < WORTH_A_WARNING:
        return ""
    return f"; {percent(share)} of its send calls were refused (EAGAIN {full:,}, ENOBUFS {beyond:,})"


def _few(story: Story) -> str:
    """Why no share is said, of a run that was sampled."""
    samples = samples_of(story.sides)
    if samples >= FEWEST_SAMPLES or not any(one.status == "sampled" for one in story.raw.sampler.events):
        return ""
    return f"; {counted(samples, 'sample')} of CPU time: too few to say more, run longer"


def main_context(ledger: Sequence[AccountRow], account: str) -> str | None:
    """The context in which most of an account's time ran."""
    return most_of((row.context, row.cpu_ns) for row in ledger if row.account == account and row.cpu_ns)


def doer(samples: Sequence[Sample], category: str) -> str:
    """The function that most samples of a category name, in brackets; empty without samples."""
    symbol = most_of((row.symbol, row.samples) for row in tied(samples) if row.category == category)
    return f" ({symbol})" if symbol else ""


def most_of(counted: Iterable[tuple[str, float]]) -> str | None:
    """The name with the largest sum; None of nothing."""
    sums = {name: sum(counts) for name, counts in gathered(counted).items()}
    return max(sums, key=lambda name: sums[name], default=None)


def _caution(cost: Overhead, share: Share | None) -> str:
    """Of what watching changed, only what is certain: the end of the interval that is nearer to no effect."""
    low, high = cost.low, cost.high
    if low is None or high is None or share is None or share.share is None:
        return ""
    if overhead.found(low, high) == overhead.NOISY:
        return f"; too noisy to measure the overhead (goodput {change(low)} to {change(high)})"
    certain = max(0.0, 1 - high, low - 1)
    if certain <= share.share:
        return ""
    return (
        f"; watching changed goodput by at least {percent(certain)}, more than this finding: "
        "measure with fewer instruments"
    )


def change(ratio: float) -> str:
    """A ratio as what it changed, for reading."""
    return f"{(ratio - 1) * 100:+.0f} %"


# Samples that stand for so many times the time of the clocks.
MUCH_MORE = 1.1
# What is said of each account.
WORDS = {
    "file_read": "the copy from the page cache takes",
    "gather": "its own memcpy takes",
    "user_encrypt": "its own cipher takes",
    "copy_in": "the copy into the kernel takes",
    "pin": "page pinning takes",
    "encrypt": "encrypting (kTLS) takes",
    "deferred": "the late copy takes",
    "silent": "hidden copies on the way take",
    "completion": "completion notices take",
    "decrypt": "decrypting (kTLS) takes",
    "copy_out": "the copy to the program takes",
    "mapped": "mapping received pages takes",
    "tun": "copying packets to and from a tun device takes",
}


def _of_target(
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
    if not shares.keys() - set(user_copies.OWN):
        why = few.sentence() if few else why_unpriced(rows)
        return f"what its copies cost is not known: {why}"
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
        f"; {raw.watched.exits:,} of its processes ended before their CPU time was read: its CPU time is "
        "more than shown, the shares are right"
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
            "of its bytes went out by reference to its own memory (vmsplice), and it gets no notice when "
            "that may be rewritten",
        ),
        (thrown_away, "of what it received was dropped without a copy (MSG_TRUNC)"),
        (local, "of its bytes went through UNIX sockets"),
        (
            redirected,
            "of its bytes went through sockets in a sockmap: its BPF programs may redirect them past TCP",
        ),
        (
            mptcp,
            "of its bytes went over MPTCP, where the kernel ignores MSG_ZEROCOPY (it refuses SO_ZEROCOPY)",
        ),
    )
    said = "".join(f"; {percent(share)} {what}" for share, what in ways if share >= WORTH_SAYING)
    if raw.watched.uncounted:
        said += f"; traffic of its {', '.join(raw.watched.uncounted)} sockets is not counted"
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
    """Each account's part of all that the program cost, where it or its bounds are known."""
    rows = grouped(ledger, lambda row: row.account)
    return {
        account: found for account, some in rows.items() if (found := share_of_rows(some, time)) is not None
    }


def share_of_accounts(ledger: Iterable[AccountRow], accounts: Sequence[str], time: SideTime) -> Share | None:
    """Some accounts' part of all CPU time, all sides and contexts; None where that is not known."""
    return share_of_rows([row for row in ledger if row.account in accounts], time)


def share_of_rows(rows: Sequence[AccountRow | StageRow], time: SideTime) -> Share | None:
    """Of one row nothing but the interval may be known. Softirq work of others has none: it is as sampled."""
    if not rows or not time.all_ns or not time.weights.all_samples:
        return None
    if any(row.share is None for row in rows):
        only = rows[0].ci if len(rows) == 1 else None
        if only is None:
            return None
        return Share(None, only.low_ns / time.all_ns, min(1.0, only.high_ns / time.all_ns))
    own, others = (sum(row.share or 0.0 for row in rows if row.side == side) for side in ("target", "other"))
    found = share_of_all(time, own)
    return Share((found.share or 0.0) + others, found.low + others, found.high + others)
