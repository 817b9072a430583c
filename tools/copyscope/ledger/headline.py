"""The main finding of a run as one sentence: what the strategy did, and what its copies cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from copyscope.grouping import gathered
from copyscope.ledger import overhead, target_headline
from copyscope.ledger.attribution import SideTime, tied
from copyscope.ledger.checks.own_traffic import sends
from copyscope.ledger.cpu_time import cpu_time
from copyscope.ledger.encrypted import encrypts
from copyscope.ledger.rows import cell
from copyscope.ledger.share import FEWEST_SAMPLES, WORTH_A_WARNING, Share, percent
from copyscope.record.derived import AccountRow, Overhead, Sides, Spent, StageRow, Zerocopy
from copyscope.record.instruments import Sample
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import measured, select, spliced_total, total, why_no_ledger, zerocopy_total
from copyscope.units import counted

# a copy below this share of the sends is a remark, above it is the finding
MOST_SENDS = 0.99


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
        return target_headline.find_sentence(raw, rows, zerocopy, cost.watching, time=times["target"])
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


def _probed(raw: Measured) -> list[Segment]:
    return select(raw.run.segments, "ledger")


def _finding(story: Story) -> tuple[str, Share | None]:
    """The finding and the share of CPU time that it rests on."""
    zerocopy = story.zerocopy
    if encrypts(story.raw):
        return _encrypted(story)
    if zerocopy is None or zerocopy.sends == 0:
        return _spliced(story) if spliced_total(_probed(story.raw), "bytes") else _plain(story)
    copied = (zerocopy.copied or 0) / zerocopy.completions if zerocopy.completions else 0.0
    why = zerocopy.cause.sentence if zerocopy.cause else "cause not known"
    if copied > 0:
        opening = "the copy was made anyway, later and "
        if copied < MOST_SENDS:
            opening = f"{zerocopy.copied:,} of {zerocopy.completions:,} sends were copied after all, "
        share = account_share(story, "deferred")
        context = main_context(story.ledger, "deferred")
        place = {"softirq": "in softirq", "process": "in a system call"}.get(context or "", "in the kernel")
        who = doer(story.raw.samples, "deferred")
        return f"{opening}{place}{who}, {spoken(share)} of all CPU time: {why}", share
    if zerocopy.bytes_silent:
        share = account_share(story, "silent")
        return (
            f"completions say zero-copy, yet the bytes were copied on the way"
            f"{doer(story.raw.samples, 'silent')}, {spoken(share)} of all CPU time: {why}"
        ), share
    pin, completion = account_share(story, "pin"), account_share(story, "completion")
    both = added((pin, completion))
    return (
        "no copy on the way; taking the pages by reference and completing the sends costs "
        f"{spoken(both)} of all CPU time instead"
    ), both


def _encrypted(story: Story) -> tuple[str, Share | None]:
    encrypt, decrypt = account_share(story, "encrypt"), account_share(story, "decrypt")
    return (
        f"kTLS {story.raw.asked.tls}: the cipher takes {spoken(encrypt)} to encrypt and "
        f"{spoken(decrypt)} to decrypt, the copies into the kernel and out of it "
        f"{spoken(account_share(story, 'copy_in'))} and {spoken(account_share(story, 'copy_out'))} "
        "of all CPU time"
    ), encrypt


def _spliced(story: Story) -> tuple[str, Share | None]:
    memory = any(s.sender.send_syscalls.get("vmsplice") for s in story.raw.run.segments)
    pages = "pages of the program's memory" if memory else "pages of a file"
    if cell(story.ledger, "silent"):
        share = account_share(story, "silent")
        return (
            f"{pages} went into the socket by reference, yet were copied on the way"
            f"{doer(story.raw.samples, 'silent')}, {spoken(share)} of all CPU time"
        ), share
    share = account_share(story, "pin")
    out = account_share(story, "copy_out")
    return (
        f"no copy into the kernel: {pages} by reference, {spoken(share)} of all CPU time; the copy "
        f"out to the receiver takes {spoken(out)}"
    ), share


def _plain(story: Story) -> tuple[str, Share | None]:
    if not sends(story.raw):
        messages, spent_ns = total(_probed(story.raw), "sender", "messages"), cpu_time(story.raw, "sender").ns
        cost = f", {spent_ns / messages:,.0f} ns of CPU time per message" if messages and spent_ns else ""
        return f"nothing was sent: this is the price of the loop and the clock{cost}", None
    copy_in, gather = account_share(story, "copy_in"), account_share(story, "gather")
    first = f"the program's gather copy takes {spoken(gather)}, " if gather and gather.high else ""
    return (
        f"{first}the copy into the kernel takes {spoken(copy_in)} and the copy out to the receiver "
        f"{spoken(account_share(story, 'copy_out'))} of all CPU time"
    ), copy_in


def account_share(story: Story, account: str) -> Share | None:
    """An account's part of the CPU time of all sides, all contexts; None when a part is unknown.

    What is not known to be of this run is no part of it. A time without an interval was timed and is exact.
    """
    rows = [row for row in story.ledger if row.account == account]
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


def added(shares: Iterable[Share | None]) -> Share | None:
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
    return f"; {percent(share)} of its time the sender waited until the kernel gave a buffer back"


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
        return f"; too noisy to tell what watching changed (goodput {change(low)} to {change(high)})"
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
