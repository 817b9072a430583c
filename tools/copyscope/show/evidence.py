"""The findings around the ledger: the limit, the system calls, the counters, and how far to trust it all."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from rich.text import Text

from copyscope import units
from copyscope.grouping import gathered
from copyscope.ledger.functions import at_most
from copyscope.ledger.overhead import found
from copyscope.record.check import Whole
from copyscope.record.derived import Identity, PhaseEffect, Watching
from copyscope.record.hooks import failed_hooks
from copyscope.record.instruments import Counter as CounterRow
from copyscope.record.instruments import Hook, Sampler
from copyscope.record.sections import Histogram
from copyscope.record.segments import why_no_calls
from copyscope.show.layout import Table, heading, labelled, wrap
from copyscope.show.ledger_table import plain_reason, says_no_pmu
from copyscope.taxonomy.events import time_names

Value = TypeVar("Value")


def evidence_lines(run: Whole, width: int, *, verbose: bool) -> list[Text]:
    """What limits the run, its counters and what they cost, and whether its numbers can be believed."""
    limit = run.derived.verdict.limit
    who = "none" if limit.who == "unknown" else limit.who
    lines = labelled("bottleneck", f"{who}: {limit.evidence}", width)
    lines += counter_lines(run, width) + observer_lines(run, width)
    lines += loss_lines(run, width, verbose=verbose) + identity_lines(run, width, verbose=verbose)
    return lines + hook_lines(run, width, verbose=verbose)


def worker_lines(run: Whole, width: int) -> list[Text]:
    """What io_uring's own threads had of the sender's CPU time, of which they are a part."""
    senders = [s.sender for s in run.raw.run.segments if "ledger" in s.phase]
    worked_ns = sum(sender.io_uring.worker_cpu_ns for sender in senders if sender.io_uring)
    if not worked_ns:
        return []
    share = worked_ns / max(1, sum(sender.process_cpu_ns for sender in senders))
    text = (
        f"threads of io_uring had {units.format_seconds(worked_ns / 1e9)} of the sender's CPU time "
        f"({units.format_percent(share)}), and are in its rows"
    )
    return labelled("workers", text, width)


def tls_lines(run: Whole, width: int) -> list[Text]:
    """Who encrypted: the kernel itself, or the network card."""
    reports = run.raw.reports
    ends = [end for end in (reports.sender.tls, reports.receiver.tls) if end is not None]
    if len(ends) < 2:
        return []
    said = []
    for verb, end in zip(("encrypted", "decrypted"), ends, strict=True):
        if end.device_connections is None:
            said.append(f"{verb} where /proc/net/tls_stat does not say")
        else:
            said.append(f"{verb} " + ("by the network card" if end.device_connections else "in software"))
    return labelled("kTLS", f"TLS {ends[0].version}, {ends[0].cipher}; {', '.join(said)}", width)


def call_lines(run: Whole, width: int) -> list[Text]:
    """One row per side and system call: what one call costs, and what else ran inside it."""
    calls = run.raw.calls
    lines = heading(
        "SYSTEM CALLS", "calls segments; CPU time of one call without the softirq work inside it", width
    )
    if not calls:
        ran = any("calls" in segment.phase for segment in run.raw.run.segments)
        why = "the collector counted none" if ran else why_no_calls(run.raw.hooks)
        return lines + wrap(f"n/a: {why}", width, indent=2, style="dim")
    times = ("p50 <=", "p99 <=", "mean", "+ softirq", "+ blocked")
    table = Table(("call", "side"), "calls", "bytes", *times)
    for call in calls:
        count = call.calls
        table.add(
            call.syscall,
            call.side,
            units.format_count(count),
            units.format_bytes(call.bytes),
            quantile(call.histogram, 0.50),
            quantile(call.histogram, 0.99),
            *(
                None if ns is None or not count else units.format_ns(ns / count)
                for ns in (call.on_cpu_ns, call.softirq_ns, call.blocked_ns)
            ),
        )
    lines += table.lines(width)
    return lines


def quantile(histogram: Histogram | None, share: float) -> str | None:
    """Upper edge of the bucket that holds the quantile: true as "at most", whatever the bucket's width."""
    largest = None if histogram is None else at_most(histogram.buckets, share)
    return None if largest is None else units.format_ns(largest + 1)


# A file has its keys by the alphabet; on the screen they stand as they are measured.
ORDER = (
    *("sender", "receiver", "ledger", "calls", "functions"),
    *("cycles", "instructions", "L1-dcache-load-misses", "LLC-load-misses", "LLC-store-misses"),
    *("cache-misses", "task-clock", "context-switches", "cpu-migrations", "page-faults", "tlb-flushes"),
)


def in_order(found: Mapping[str, Value]) -> list[tuple[str, Value]]:
    """The rows of a section, the same of a run and of its file."""
    places = {name: place for place, name in enumerate(ORDER)}
    return sorted(found.items(), key=lambda row: (places.get(row[0], len(ORDER)), row[0]))


def counter_lines(run: Whole, width: int) -> list[Text]:
    """The totals of each side's counters with their status; then the unknown ones, each reason once."""
    lines: list[Text] = []
    stands_for: dict[str, str] = {}
    unknown: list[tuple[tuple[str, str], str]] = []  # (event, reason), side
    for side, events in in_order(run.raw.counters):
        known = []
        for name, event in in_order(events):
            if event.value is None:
                unknown.append(((name, plain_reason(event.reason or event.status)), side))
            else:
                spelled = units.format_ns if event.unit == "ns" else units.format_count
                known.append(f"{name} {spelled(event.value)}{_counter_status(event)}")
                stands_for |= {name: event.counts} if event.counts else {}
        text = ", ".join(known) if known else "n/a" if events else "n/a: no counter was opened"
        lines += labelled("counters", f"{side}: {text}", width)
    for name, counts in stands_for.items():
        lines += labelled("", f"{name}: {counts}", width, style="dim")
    alike = gathered(((" and ".join(of), why), name) for (name, why), of in gathered(unknown).items())
    for (of_sides, reason), names in alike.items():
        lines += labelled("", f"n/a ({of_sides}): {', '.join(names)}: {reason}", width, style="dim")
    return lines


def _counter_status(event: CounterRow) -> str:
    if event.status == "measured":
        return ""
    running = event.running
    return f" ({event.status})" if running is None else f" ({event.status}, ran {running * 100:.0f} %)"


def observer_lines(run: Whole, width: int) -> list[Text]:
    """The observer effect: goodput with the instruments on, as a ratio of goodput with them off."""
    alike = gathered((_phase_text(phase), name) for name, phase in in_order(run.derived.overhead.phases))
    lines: list[Text] = []
    for text, names in alike.items():
        lines += labelled("overhead", f"{', '.join(names)}: {text}", width)
    watching = run.derived.overhead.watching
    return lines if watching is None else [*watching_lines(run, watching, width), *lines]


def watching_lines(run: Whole, watching: Watching, width: int) -> list[Text]:
    """What watching a program cost, whole, and copyscope's own work."""
    text = "all segments against those that only count bytes: "
    load = run.derived.machine_state
    if load.own_ns is not None and load.wall_ns:
        own = f"; copyscope's own work took {100 * load.own_ns / load.wall_ns:.1f} % of one CPU"
    else:
        own = ""
    return labelled("watching", f"{text}{_phase_text(watching)}{own}", width)


def _phase_text(phase: PhaseEffect | Watching) -> str:
    if phase.ratio is None:
        return f"n/a: {phase.reason}"
    text = f"goodput {_change(phase.ratio)}"
    if phase.low is None or phase.high is None:
        return f"{text}, no interval ({phase.pairs} pairs): {phase.reason}"
    seen = found(phase.low, phase.high)
    level = f"{(phase.level or 0.0) * 100:.0f} % interval"
    return f"{text} ({level} {_change(phase.low)} to {_change(phase.high)}, {phase.pairs} pairs): {seen}"


def _change(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.1f} %"


def loss_lines(run: Whole, width: int, *, verbose: bool) -> list[Text]:
    """What the instruments lost: each nonzero counter; under verbose the names of the others, too."""
    loss = run.derived.loss
    if not loss:
        return labelled("losses", "n/a: no loss counter was read", width)
    lost = {name: entry for name, entry in loss.items() if entry.count}
    zero = [name for name, entry in loss.items() if entry.count == 0]
    counters = f"{units.counted(len(zero), 'other loss counter' if lost else 'loss counter')} read"
    parts = []
    for name, entry in lost.items():
        part = f"{name} {units.format_count(entry.count)}"
        if entry.of is not None:
            part += f" of {units.format_count(entry.of)}"
        if entry.share is not None:
            part += f" ({units.format_percent(entry.share)})"
        parts.append(part)
    text = ", ".join(parts) or "none"
    if zero and (verbose or not lost):
        text += f"; {counters}, {'all ' if len(zero) > 1 else ''}zero"
    lines = labelled("losses", text, width, style="red" if lost else "")
    lines += labelled("", _compact_names(zero), width, style="dim") if verbose and zero else []
    unknown = gathered(
        (entry.reason or "no reason recorded", name) for name, entry in loss.items() if entry.count is None
    )
    for reason, names in unknown.items():
        named = f" ({_compact_names(names)})" if verbose else ""
        lines += labelled("", f"n/a: {len(names)} loss counters: {reason}{named}", width)
    return lines


def _compact_names(names: Iterable[str]) -> str:
    """Names with a common first word in one: recursion_{a,b}."""
    groups = gathered(name.partition("_")[::2] for name in names)
    return ", ".join(
        f"{first}_{{{', '.join(rests)}}}" if len(rests) > 1 else "_".join(filter(None, (first, rests[0])))
        for first, rests in groups.items()
    )


def identity_lines(run: Whole, width: int, *, verbose: bool) -> list[Text]:
    """How many of the checked identities hold; every broken one in full, under verbose all."""
    identities = run.derived.identities
    held = [identity for identity in identities if identity.holds]
    broken = [identity for identity in identities if identity.holds is False]
    unchecked = [identity for identity in identities if identity.holds is None]
    text = f"{len(held)} of {len(held) + len(broken)} consistency checks hold"
    if unchecked:
        text += f"; {len(unchecked)} not checked in this run" + ("" if verbose else " (-vv says why)")
    lines = labelled("checks", text, width, style="red" if broken else "")
    for label, group in (("  BROKEN", broken), ("  holds", held), ("  unchecked", unchecked)):
        for identity in group if verbose or group is broken else []:
            lines += labelled(label, _identity_text(identity), width, style="red" if group is broken else "")
    return lines


def _identity_text(identity: Identity) -> str:
    text = f"{identity.name}: {identity.what}"
    if identity.holds is not None:
        text += f": {_amount(identity.left)} against {_amount(identity.right)} {identity.unit}"
        if identity.tolerance:
            text += f", tolerance {_amount(identity.tolerance)}"
    return text + (f": {identity.reason}" if identity.reason else "")


def _amount(value: float | None) -> str:
    """A count in full; a share or another small fraction with its digits."""
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1 else units.format_count(value)


def hook_lines(run: Whole, width: int, *, verbose: bool) -> list[Text]:
    """How the instruments were attached; hooks that failed are named, under verbose all are."""
    hooks = run.raw.hooks
    states = Counter(hook.state for hook in hooks)
    text = ", ".join(f"{count} {state}" for state, count in states.items()) or "n/a: none was tried"
    events = _sampler_events(run.raw.sampler, refused=not says_no_pmu(run))
    events += _shown_by(run)
    lines = labelled("instruments", f"hooks: {text}; sampler: {events or 'n/a'}", width)
    tier = run.raw.run.tier
    if tier == "exact" or (verbose and tier):
        lines += labelled("tier", f"{tier}: {run.raw.run.tier_reason}", width)
    if verbose:
        return lines + _hook_table(hooks, width)
    absent = gathered((f"{hook.state}: {hook.reason}", hook.symbol) for hook in failed_hooks(run.raw))
    for why, symbols in absent.items():
        lines += labelled("", f"{', '.join(dict.fromkeys(symbols))} {why}", width, style="red")
    return lines


def _shown_by(run: Whole) -> str:
    """Which event divides time where cores differ: of their cycles none is as long as another's."""
    pmus = run.raw.machine.pmu or []
    statuses = {event.name: event.status for event in run.raw.sampler.events}
    sampled = (name for name, status in statuses.items() if status == "sampled")
    names = time_names(sampled, statuses) if len(pmus) > 1 else None
    return f"; time is divided by {names[0]}: cores are of {len(pmus)} types" if names else ""


def _sampler_events(sampler: Sampler, *, refused: bool) -> str:
    """What was sampled, then what was not (`refused`): each reason once, with its events."""
    events = sampler.events
    sampled = [event.name for event in events if not event.reason]
    why_not = gathered((f"{one.status}: {one.reason}", one.name) for one in events if one.reason)
    texts = [f"{', '.join(sampled)} at {sampler.frequency_hz:,.0f} Hz"] if sampled else []
    texts += [f"{one.name} is {one.counts}" for one in events if one.counts]
    if refused:
        texts += [f"{', '.join(names)} {why}" for why, names in why_not.items()]
    return "; ".join(texts)


def _hook_table(hooks: Iterable[Hook], width: int) -> list[Text]:
    words = ("instrument", "symbol", "state", "how")
    table = Table(("hook",), *words, words=words)
    reasons: list[Text] = []
    for hook in hooks:
        table.add(hook.id, hook.instrument, hook.symbol, hook.state, hook.how or "-")
        if hook.reason:
            reasons += wrap(f"{hook.id} {hook.state}: {hook.reason}", width, indent=2, style="dim")
    return heading("HOOKS", "what was attached to what, and how", width) + table.lines(width) + reasons
