# SPDX-License-Identifier: GPL-2.0-only
"""The main finding of a run as one sentence: what happened to the bytes, and what the copies cost. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from copyscope.base.stats import gathered, grouped
from copyscope.ledger import machine_state
from copyscope.ledger.attribution import SideTime, clocked_weight, cpu_time, samples_of_run
from copyscope.ledger.checks.own_traffic import sends
from copyscope.ledger.checks.time import unread_at_exit_ns
from copyscope.ledger.exact import why_nothing_exact
from copyscope.ledger.flows import uses_ktls
from copyscope.ledger.rows import account_bytes
from copyscope.ledger.share import (
    MENTIONED_SHARE_MIN,
    WARNED_SHARE_MIN,
    Share,
    few_samples,
    percent,
    share_of_all,
    too_few,
)
from copyscope.ledger.watched_program import path_remarks
from copyscope.record.derived import AccountRow, Overhead, Sides, Spent, StageRow, Watching, Zerocopy
from copyscope.record.instruments import Sample
from copyscope.record.measured import Measured
from copyscope.record.segments import (
    is_relay,
    measured,
    select,
    sender_sum,
    spliced_sum,
    why_no_ledger,
    zerocopy_sum,
)
from copyscope.record.watched import (
    CALLS_WITH_ONE_SEND,
    SendError,
    added,
    volume,
)
from copyscope.taxonomy.accounts import ACCOUNTS, IN_USER_MODE, ZEROCOPY_PRICE

# Minimum fraction (0..1) of copied sends for which the finding says that all sends were copied. Below it, the
# finding gives the number of copied sends.
ALL_SENDS_SHARE = 0.99
# Outcome of our own sends -> text of the main finding.
PHRASES = {
    "encrypted": (
        "kTLS {tls}: the cipher takes {encrypt} to encrypt and {decrypt} to decrypt, the copies into "
        "the kernel and out of it {copy_in} and {copy_out} of all CPU time"
    ),
    "late": (
        "the kernel copied the data after all, later, {where}{late_by}, {deferred} of all CPU time: {why}"
    ),
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
# Beginning of the finding for copied bytes, if the strategy gathers fields by a copy.
GATHERED = "the program's gather copy takes {gather}"
# Outcome -> placeholder of the share of CPU time that the finding rests on. If watching changed goodput by
# more than that share, the sentence contains a warning.
DECISIVE_SHARE = {
    "encrypted": "encrypt",
    "late": "deferred",
    "partly late": "deferred",
    "on the way": "silent",
    "by reference": "reference",
    "pages on the way": "silent",
    "pages": "pin",
    "copied": "copy_in",
    "relayed": "copy_in",
    "nothing": None,
}


def find_sentence(
    raw: Measured,
    rows: Sequence[AccountRow | StageRow],
    sides: Sides,
    zerocopy: Zerocopy | None,
    cost: Overhead,
    *,
    times: Mapping[str, SideTime],
) -> str:
    """Return the main finding. It includes a warning if watching changed more than the finding shows.

    rows: rows of the ledger and of the stages
    cost: what the instruments cost
    times: CPU time by side
    """
    if raw.target is not None:
        return _target_sentence(raw, rows, zerocopy, cost.watching, time=times["target"])
    accounts = [row for row in rows if isinstance(row, AccountRow)]
    return _own_sentence(OwnRun(raw, accounts, sides, zerocopy), cost)


# Findings about our own traffic.


@dataclass(frozen=True)
class OwnRun:
    """A run of our own traffic with the derived sections that the sentence needs."""

    raw: Measured
    ledger: Sequence[AccountRow]
    sides: Sides
    zerocopy: Zerocopy | None


def _own_sentence(run: OwnRun, cost: Overhead) -> str:
    """Return the main finding of our own traffic, with remarks.

    cost: what the instruments cost
    """
    opening = f"{run.raw.asked.impl} over {run.raw.topology.kind}"
    no_ledger = why_no_ledger(run.raw.run)
    if no_ledger:
        return f"{opening}: what its copies cost is not known: {no_ledger}"
    finding, share = _own_finding(run)
    remarks = [
        _few_samples_remark(run),
        _waiting_remark(run.zerocopy),
        _refused_remark(run.raw),
        _overhead_remark(cost, share),
    ]
    return f"{opening}: {_with_remarks(finding, remarks)}"


def _with_remarks(finding: str, remarks: Iterable[str]) -> str:
    """Return a finding followed by its remarks. An empty remark is left out."""
    return "; ".join([finding, *(remark for remark in remarks if remark)])


def _own_finding(run: OwnRun) -> tuple[str, Share | None]:
    """Return the finding and the share of CPU time that it is based on."""
    outcome = outcome_of(run)
    shares = {account: account_share(run, account) for account in ACCOUNTS}
    shares["taken"] = account_share(run, "copy_out", "sender")
    shares["received"] = account_share(run, "copy_out", "receiver")
    shares["reference"] = sum_of_shares(shares[account] for account in ZEROCOPY_PRICE)
    words = {name: percent(None) if share is None else share.spoken() for name, share in shares.items()}
    words |= _facts(run)
    gather = shares["gather"]
    finding = PHRASES[outcome].format(**words)
    if outcome == "copied" and gather and gather.high:
        finding = f"{GATHERED.format(**words)}, {finding}"
    decisive = DECISIVE_SHARE[outcome]
    return finding, shares[decisive] if decisive else None


def outcome_of(run: OwnRun) -> str:
    """Return what happened to the bytes that were sent: a key of PHRASES."""
    raw, zerocopy = run.raw, run.zerocopy
    if uses_ktls(raw):
        return "encrypted"
    if zerocopy is not None and zerocopy.sends:
        if zerocopy.copied:
            copied_share = zerocopy.copied / (zerocopy.completions or 1)
            return "late" if copied_share >= ALL_SENDS_SHARE else "partly late"
        return "on the way" if zerocopy.bytes_silent else "by reference"
    if spliced_sum(select(raw.run.segments, "ledger"), lambda spliced: spliced.bytes):
        return "pages on the way" if account_bytes(run.ledger, "silent") else "pages"
    if is_relay(raw.run):
        return "relayed"
    return "copied" if sends(raw) else "nothing"


def _facts(run: OwnRun) -> dict[str, str]:
    """Return {placeholder: text} for the placeholders in PHRASES that are not shares of CPU time."""
    raw, zerocopy = run.raw, run.zerocopy
    from_memory = any(s.sender.send_syscalls.get("vmsplice") for s in raw.run.segments)
    source = "packets" if is_relay(raw.run) else "the program's memory" if from_memory else "a file"
    messages = sender_sum(select(raw.run.segments, "ledger"), lambda sender: sender.messages)
    spent_ns = cpu_time(raw, "sender").ns
    per_message = f"{spent_ns / messages:,.0f} ns of CPU time per message" if messages and spent_ns else ""
    cause = zerocopy.cause if zerocopy else None
    context = main_context(run.ledger, "deferred") or ""
    return {
        "tls": raw.asked.tls or "",
        "pages": f"pages of {source}",
        "cost": f", {per_message}" if per_message else "",
        "copied_sends": f"{zerocopy.copied or 0:,}" if zerocopy else "",
        "completed_sends": f"{zerocopy.completions or 0:,}" if zerocopy else "",
        "where": {"softirq": "in softirq", "process": "in a system call"}.get(context, "in the kernel"),
        "late_by": main_function(raw.samples, "deferred"),
        "silent_by": main_function(raw.samples, "silent"),
        "why": cause.sentence if cause else "cause not known",
    }


def account_share(run: OwnRun, account: str, side: str | None = None) -> Share | None:
    """Return an account's share of the CPU time of all sides, in all contexts, or None if a part is unknown.

    Samples that are not known to belong to this run are left out. A row without an interval was timed, so its
    CPU time is exact.

    side: side whose rows are added up; None for the rows of all sides
    """
    rows = [row for row in run.ledger if row.account == account and side in (None, row.side)]
    rows_ns = [row.cpu_ns for row in rows if row.cpu_ns is not None]
    sides: list[Spent] = [*run.sides.processes().values(), run.sides.other]
    sides_ns = [spent.cpu_ns for spent in sides if spent.cpu_ns is not None]
    if not rows or len(rows_ns) < len(rows) or len(sides_ns) < len(sides) or not sum(sides_ns):
        return None
    if few_samples(run.raw, run.sides):
        return None
    all_ns = sum(sides_ns)
    low = sum(row.ci.low_ns if row.ci else row.cpu_ns or 0.0 for row in rows)
    high = sum(row.ci.high_ns if row.ci else row.cpu_ns or 0.0 for row in rows)
    return Share(sum(rows_ns) / all_ns, low / all_ns, min(1.0, high / all_ns))


def sum_of_shares(shares: Iterable[Share | None]) -> Share | None:
    """Return the sum of shares, or None if any of them is unknown."""
    parts = list(shares)
    known_parts = [part for part in parts if part is not None]
    if len(known_parts) < len(parts):
        return None
    return Share(
        sum(part.share or 0.0 for part in known_parts),
        sum(part.low for part in known_parts),
        min(1.0, sum(part.high for part in known_parts)),
    )


def _waiting_remark(zerocopy: Zerocopy | None) -> str:
    """Return a remark if the sender often waited for completion notifications, or an empty string."""
    share = zerocopy.waiting_share if zerocopy else None
    if share is None or share < WARNED_SHARE_MIN:
        return ""
    return f"{percent(share)} of its time the sender waited for the kernel to release a buffer"


def _refused_remark(raw: Measured) -> str:
    """Return a remark if many send calls of our sender were refused, or an empty string."""
    segments = measured(raw.run.segments)
    calls = sender_sum(segments, lambda sender: sender.calls)
    eagain = sender_sum(segments, lambda sender: sender.eagain)
    enobufs = zerocopy_sum(segments, lambda zerocopy: zerocopy.enobufs) or 0
    share = (eagain + enobufs) / calls if calls else 0.0
    if share < WARNED_SHARE_MIN:
        return ""
    return f"{percent(share)} of its send calls were refused (EAGAIN {eagain:,}, ENOBUFS {enobufs:,})"


def _few_samples_remark(run: OwnRun) -> str:
    """Return a remark if the run has too few samples for shares of CPU time, or an empty string."""
    few = few_samples(run.raw, run.sides)
    was_sampled = any(event.status == "sampled" for event in run.raw.sampler.events)
    if not few and was_sampled and not run.raw.samples:
        few = "no sample of CPU time"
    return f"{few}, run longer" if few else ""


def main_context(ledger: Sequence[AccountRow], account: str) -> str | None:
    """Return the context in which most of an account's CPU time was spent, or None if it has no CPU time."""
    return heaviest((row.context, row.cpu_ns) for row in ledger if row.account == account and row.cpu_ns)


def main_function(samples: Sequence[Sample], category: str) -> str:
    """Return the kernel function with most samples of an account, as ` (function)`, or "" if unsampled."""
    rows = (row for row in samples_of_run(samples) if row.category == category)
    symbol = heaviest((row.symbol, row.samples) for row in rows)
    return f" ({symbol})" if symbol else ""


def heaviest(weights: Iterable[tuple[str, float]]) -> str | None:
    """Return the name with the largest sum of weights, or None if there are no names."""
    sums = {name: sum(name_weights) for name, name_weights in gathered(weights).items()}
    return max(sums, key=lambda name: sums[name], default=None)


def _overhead_remark(cost: Overhead, share: Share | None) -> str:
    """Return a warning if the instruments certainly changed goodput by more than the finding shows.

    share: share of CPU time that the finding is based on
    """
    low, high = cost.low, cost.high
    if low is None or high is None or share is None or share.share is None:
        return ""
    if machine_state.describe_effect(low, high) == machine_state.NOISY:
        least, most = (f"{(ratio - 1) * 100:+.0f} %" for ratio in (low, high))
        return f"too noisy to measure the overhead (goodput {least} to {most})"
    certain = max(0.0, 1 - high, low - 1)
    if certain <= share.share:
        return ""
    return (
        f"watching changed goodput by at least {percent(certain)}, more than this finding: "
        "measure with fewer instruments"
    )


# Findings about watched programs.

# Ratio of sampled CPU time to the CPU time by clocks above which the clocks are known to have missed much.
CLOCKS_MISSED_RATIO = 1.1


def _target_sentence(
    raw: Measured,
    rows: Sequence[AccountRow | StageRow],
    zerocopy: Zerocopy | None,
    watching: Watching | None,
    *,
    time: SideTime,
) -> str:
    """Return what the copies of a watched program cost, most expensive first, with remarks.

    time: CPU time of the program
    """
    remarks = []
    if zerocopy is not None and zerocopy.completions and zerocopy.copied is not None:
        copied = percent(zerocopy.copied / zerocopy.completions)
        remark = f"{copied} of its zero-copy sends were copied after all"
        remarks.append(f"{remark}: {zerocopy.cause.sentence}" if zerocopy.cause else remark)
    remarks += path_remarks(raw)
    remarks += [refused_sends_remark(raw), missed_exits_remark(raw, time), watching_remark(watching)]
    remarks.append(why_nothing_exact(raw) or "")
    text = _with_remarks(copy_costs(raw, rows, time), remarks)
    return f"{raw.watched.program}: {text}"


def copy_costs(raw: Measured, rows: Sequence[AccountRow | StageRow], time: SideTime) -> str:
    """Return a sentence with the copies and their shares of CPU time, or with why they are unknown."""
    few = too_few(raw, time)
    accounts = [row for row in rows if isinstance(row, AccountRow)]
    absent = counted_absent(accounts)
    shares = {} if few else account_shares([row for row in accounts if row.account not in absent], time)
    if not shares.keys() - set(IN_USER_MODE):
        reason = few.sentence() if few else why_no_share(rows)
        return f"what its copies cost is not known: {reason}"
    return f"{', '.join(mentioned(shares)) or no_large_copy(shares)} of its CPU time"


def counted_absent(ledger: Iterable[AccountRow]) -> set[str]:
    """Return the accounts that did not occur: their exact counts are 0 calls and 0 bytes."""
    return {
        row.account
        for row in ledger
        if row.bytes == 0 and row.calls == 0 and row.bytes_method == row.calls_method == "exact"
    }


def mentioned(shares: Mapping[str, Share]) -> list[str]:
    """Return a phrase for each account with a share of at least MENTIONED_SHARE_MIN, largest share first.

    Further phrases name accounts with an unknown share whose upper bound is large enough.

    shares: account -> share of CPU time
    """
    certain = {account: share for account, share in shares.items() if share.low >= MENTIONED_SHARE_MIN}
    names = sorted(certain, key=lambda account: -(certain[account].low + certain[account].high))
    if names:
        names += [
            account
            for account, share in shares.items()
            if share.share is None and account not in certain and share.high >= MENTIONED_SHARE_MIN
        ]
    return [f"{ACCOUNTS[account].sentence} {shares[account].spoken()}" for account in names]


def no_large_copy(shares: Mapping[str, Share]) -> str:
    """Return a phrase with the upper bound of the largest share, if all shares are small or uncertain.

    shares: account -> share of CPU time
    """
    largest = max(shares.values(), key=lambda share: share.high)
    if largest.high < MENTIONED_SHARE_MIN:
        return "no copy takes as much as 0.5 %"
    return f"no copy takes more than {largest.at_most()}"


def missed_exits_remark(raw: Measured, time: SideTime) -> str:
    """Return a remark if processes exited before their clock was read, and samples show much more time.

    If there are no such processes, the remark is empty.

    time: CPU time of the program
    """
    sampled_ns = clocked_weight(time.weights, raw, "target")
    clocks_ns = cpu_time(raw, "target").ns
    is_complete = not unread_at_exit_ns(raw, "target") or sampled_ns <= CLOCKS_MISSED_RATIO * clocks_ns
    if time.event != "cpu-clock" or is_complete:
        return ""
    return (
        f"{raw.watched.exits:,} of its processes ended before their CPU time was read: its CPU time is "
        "more than shown, but the shares are right"
    )


def refused_sends_remark(raw: Measured) -> str:
    """Return a remark with the errors, if the socket refused many send calls, or an empty string."""
    refused = added(raw.send_errors, lambda row: row.calls)
    sent = [row for row in volume(raw.volume, "send") if row.syscall in CALLS_WITH_ONE_SEND]
    calls = refused + added(sent, lambda row: row.calls)
    if not calls or refused / calls < WARNED_SHARE_MIN:
        return ""
    # Only calls that send one message show that they were refused.
    others = {row.syscall for row in volume(raw.volume, "send")}.difference(CALLS_WITH_ONE_SEND)
    kind = " and ".join(sorted({row.syscall for row in raw.send_errors})) if others else "send"
    return f"{percent(refused / calls)} of its {kind} calls were refused ({by_error(raw.send_errors)})"


def by_error(errors: Iterable[SendError]) -> str:
    """Return refused calls by error, most frequent first: `EAGAIN 60,000, ENOBUFS 17`."""
    calls: Counter[str] = Counter()
    for row in errors:
        calls[row.error] += row.calls
    return ", ".join(f"{error} {count:,}" for error, count in calls.most_common())


def why_no_share(rows: Iterable[AccountRow | StageRow]) -> str:
    """Return the first reason for an unknown share among the rows of a watched program."""
    reasons = (row.reasons.get("share") for row in rows if row.side == "target")
    return next((reason for reason in reasons if reason), "no copy was seen")


def watching_remark(watching: Watching | None) -> str:
    """Return a remark if watching certainly cost the program much of its goodput, or an empty string."""
    if watching is None or watching.high is None or watching.high > 1 - WARNED_SHARE_MIN:
        return ""
    return f"being watched cost it about {percent(watching.effect)} of its goodput"


def account_shares(ledger: Iterable[AccountRow], time: SideTime) -> dict[str, Share]:
    """Return each account's share of all CPU time, for accounts with a known share or known bounds."""
    rows = grouped(ledger, lambda row: row.account)
    shares = {account: share_of_rows(account_rows, time) for account, account_rows in rows.items()}
    return {account: share for account, share in shares.items() if share is not None}


def share_of_accounts(ledger: Iterable[AccountRow], accounts: Sequence[str], time: SideTime) -> Share | None:
    """Return the fraction of all CPU time that some accounts take, in all contexts, or None if unknown."""
    return share_of_rows([row for row in ledger if row.account in accounts], time)


def share_of_rows(rows: Sequence[AccountRow | StageRow], time: SideTime) -> Share | None:
    """Return the fraction of all CPU time that the given rows take, or None if it is unknown.

    For a single row with a known interval but no known share, return only the bounds. Rows of softirq work
    charged to other tasks have no interval, so their sampled shares are added.

    time: CPU time of the program
    """
    if not rows or not time.all_ns or not time.weights.all_samples:
        return None
    if any(row.share is None for row in rows):
        ci = rows[0].ci if len(rows) == 1 else None
        if ci is None:
            return None
        return Share(None, ci.low_ns / time.all_ns, min(1.0, ci.high_ns / time.all_ns))
    return share_of_parts(rows, {row.category: 1.0 for row in rows}, time)


def share_of_parts(
    rows: Sequence[AccountRow | StageRow], parts: Mapping[str, float], time: SideTime
) -> Share | None:
    """Return the share of all CPU time in parts of some accounts and stages, or None if there are no samples.

    Rows whose share is unknown are left out.

    parts: account or stage -> fraction (0..1) of its time
    time: CPU time of the program
    """
    if not time.all_ns or not time.weights.all_samples:
        return None
    target, other = (
        sum((row.share or 0.0) * parts.get(row.category, 0.0) for row in rows if row.side == side)
        for side in ("target", "other")
    )
    share = share_of_all(time, target)
    return Share((share.share or 0.0) + other, share.low + other, share.high + other)
