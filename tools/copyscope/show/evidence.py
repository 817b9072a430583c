# SPDX-License-Identifier: GPL-2.0-only
"""Parts of a report besides the ledger: bottleneck, system calls, counters, losses, checks, hooks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from rich.text import Text

from copyscope.base import spelling
from copyscope.base.stats import gathered
from copyscope.ledger.exact import quantile_at_most
from copyscope.ledger.machine_state import describe_effect
from copyscope.record.derived import Identity, PhaseEffect, Watching
from copyscope.record.instruments import Counter as CounterRow
from copyscope.record.instruments import Hook, Sampler
from copyscope.record.run import Run
from copyscope.record.sections import Histogram
from copyscope.record.segments import failed_hooks, why_no_calls
from copyscope.show.layout import TextTable, heading, labelled, wrap
from copyscope.show.ledger_rows import counters_explain_missing_pmu, covered, plain_reason, position
from copyscope.taxonomy.events import time_names

Value = TypeVar("Value")


def evidence_lines(run: Run, width: int, *, verbose: bool) -> list[Text]:
    """Return the lines on bottleneck, counters, cost of measuring, lost events, checks and hooks.

    verbose: return all rows, as for -vv
    """
    limit = run.derived.verdict.limit
    bottleneck = "none" if limit.who == "unknown" else limit.who
    lines = labelled("bottleneck", f"{bottleneck}: {limit.evidence}", width)
    lines += counter_lines(run, width) + observer_lines(run, width)
    lines += loss_lines(run, width, verbose=verbose) + identity_lines(run, width, verbose=verbose)
    return lines + hook_lines(run, width, verbose=verbose)


def worker_lines(run: Run, width: int) -> list[Text]:
    """Return the CPU time of io_uring's worker threads, which is part of the sender's CPU time."""
    senders = [segment.sender for segment in run.raw.run.segments if "ledger" in segment.phase]
    worker_ns = sum(sender.io_uring.worker_cpu_ns for sender in senders if sender.io_uring)
    if not worker_ns:
        return []
    share = worker_ns / max(1, sum(sender.process_cpu_ns for sender in senders))
    text = (
        f"threads of io_uring used {spelling.format_seconds(worker_ns / 1e9)} of the sender's CPU time "
        f"({spelling.format_percent(share)}), included in the rows of the sender"
    )
    return labelled("workers", text, width)


def tls_lines(run: Run, width: int) -> list[Text]:
    """Return a line on whether the kernel or the network card encrypts, or [] without kTLS."""
    sender, receiver = run.raw.reports.sender.tls, run.raw.reports.receiver.tls
    if sender is None or receiver is None:
        return []
    texts = []
    for verb, tls in (("encrypted", sender), ("decrypted", receiver)):
        if tls.device_connections is None:
            texts.append(
                f"data {verb} by the kernel or the network card (/proc/net/tls_stat is not readable)"
            )
        else:
            texts.append(
                f"data {verb} by the network card" if tls.device_connections else f"data {verb} in software"
            )
    return labelled("kTLS", f"TLS {sender.version}, {sender.cipher}; {', '.join(texts)}", width)


def call_lines(run: Run, width: int) -> list[Text]:
    """Return a table with a row per side and system call: the cost of a call, and softirq work during it."""
    calls = run.raw.calls
    note = f"{covered(run, 'calls')}; CPU time per call, without softirq work"
    lines = heading("SYSTEM CALLS", note, width)
    if not calls:
        ran = any("calls" in segment.phase for segment in run.raw.run.segments)
        why = "the collector counted none" if ran else why_no_calls(run.raw.hooks)
        return lines + wrap(f"n/a: {why}", width, indent=2, style="dim")
    titles = ("p50 <=", "p99 <=", "mean", "+ softirq", "+ blocked")
    table = TextTable(("call", "side"), "calls", "bytes", *titles)
    for call in calls:
        means = [
            None if total_ns is None or not call.calls else spelling.format_ns(total_ns / call.calls)
            for total_ns in (call.on_cpu_ns, call.softirq_ns, call.blocked_ns)
        ]
        table.add(
            call.syscall,
            call.side,
            spelling.format_count(call.calls),
            spelling.format_bytes(call.bytes),
            quantile(call.histogram, 0.50),
            quantile(call.histogram, 0.99),
            *means,
        )
    return lines + table.lines(width)


def quantile(histogram: Histogram | None, share: float) -> str | None:
    """Return an upper bound of a histogram's quantile `share`: the upper end of the quantile's bucket."""
    largest_ns = None if histogram is None else quantile_at_most(histogram.buckets, share)
    return None if largest_ns is None else spelling.format_ns(largest_ns + 1)


# Counters and phases in the order of the screen. A record file has its keys in alphabetical order.
ORDER = (
    *("sender", "receiver", "ledger", "calls", "functions"),
    *("cycles", "instructions", "L1-dcache-load-misses", "LLC-load-misses", "LLC-store-misses"),
    *("cache-misses", "task-clock", "context-switches", "cpu-migrations", "page-faults", "tlb-flushes"),
)


def in_order(section: Mapping[str, Value]) -> list[tuple[str, Value]]:
    """Return the keys and values of a record's section, in the order of the screen."""
    return sorted(section.items(), key=lambda item: (position(ORDER, item[0]), item[0]))


def counter_lines(run: Run, width: int) -> list[Text]:
    """Return the totals and states of each side's counters, then the unknown counters by reason."""
    lines: list[Text] = []
    descriptions: dict[str, str] = {}
    unknown: list[tuple[tuple[str, str], str]] = []  # ((event, reason), side)
    for side, counters in in_order(run.raw.counters):
        totals = []
        for name, counter in in_order(counters):
            if counter.value is None:
                unknown.append(((name, plain_reason(counter.reason or counter.status)), side))
            else:
                spell = spelling.format_ns if counter.unit == "ns" else spelling.format_count
                totals.append(f"{name} {spell(counter.value)}{_counter_status(counter)}")
                descriptions |= {name: counter.counts} if counter.counts else {}
        text = ", ".join(totals) if totals else "n/a" if counters else "n/a: no counter was opened"
        lines += labelled("counters", f"{side}, ledger segments: {text}", width)
    for name, description in descriptions.items():
        lines += labelled("", f"{name}: {description}", width, style="dim")
    by_reason = gathered(
        ((" and ".join(sides), reason), name) for (name, reason), sides in gathered(unknown).items()
    )
    for (sides_text, reason), names in by_reason.items():
        lines += labelled("", f"n/a ({sides_text}): {', '.join(names)}: {reason}", width, style="dim")
    return lines


def _counter_status(counter: CounterRow) -> str:
    """Return the status of a counter in parentheses, such as ` (scaled, ran 50 %)`, or "" if measured."""
    if counter.status == "measured":
        return ""
    running = counter.running
    return f" ({counter.status})" if running is None else f" ({counter.status}, ran {running * 100:.0f} %)"


def observer_lines(run: Run, width: int) -> list[Text]:
    """Return lines on how much the instruments of each phase of the run changed the goodput."""
    phases = gathered((_effect_text(effect), name) for name, effect in in_order(run.derived.overhead.phases))
    lines: list[Text] = []
    for text, names in phases.items():
        lines += labelled("overhead", f"{', '.join(names)}: {text}", width)
    watching = run.derived.overhead.watching
    return lines if watching is None else [*watching_lines(run, watching, width), *lines]


def watching_lines(run: Run, watching: Watching, width: int) -> list[Text]:
    """Return lines on the cost of watching: change in goodput, and CPU time of copyscope itself."""
    text = f"goodput with all instruments against byte counting only: {_effect_text(watching, subject='')}"
    load = run.derived.machine_state
    if load.own_ns is not None and load.wall_ns:
        text += f"; copyscope's own work took {100 * load.own_ns / load.wall_ns:.1f} % of one CPU"
    return labelled("watching", text, width)


def _effect_text(effect: PhaseEffect | Watching, subject: str = "goodput ") -> str:
    """Format a change in goodput with its interval, or the reason why it is unknown.

    subject: text before the change
    """
    if effect.ratio is None:
        return f"n/a: {effect.reason}"
    text = f"{subject}{_change(effect.ratio)}"
    if effect.low is None or effect.high is None:
        return f"{text}, no interval ({effect.pairs} pairs): {effect.reason}"
    judgement = describe_effect(effect.low, effect.high)
    level = f"{(effect.level or 0.0) * 100:.0f} % interval"
    interval = f"{level} {_change(effect.low)} to {_change(effect.high)}"
    return f"{text} ({interval}, {effect.pairs} pairs): {judgement}"


def _change(ratio: float) -> str:
    """Format a ratio of goodputs as a change in percent: 0.97 becomes `-3.0 %`."""
    return f"{(ratio - 1) * 100:+.1f} %"


def loss_lines(run: Run, width: int, *, verbose: bool) -> list[Text]:
    """Return lines on the counters of lost events that are nonzero or unknown.

    verbose: also return the counters that are zero
    """
    counters = run.derived.loss
    if not counters:
        return labelled("losses", "n/a: no loss counter was read", width)
    nonzero = {name: loss for name, loss in counters.items() if loss.count}
    zero = [name for name, loss in counters.items() if loss.count == 0]
    parts = []
    for name, loss in nonzero.items():
        part = f"{name} {spelling.format_count(loss.count)}"
        if loss.of is not None:
            part += f" of {spelling.format_count(loss.of)}"
        if loss.share is not None:
            part += f" ({spelling.format_percent(loss.share)})"
        parts.append(part)
    text = ", ".join(parts) or "none"
    if zero and (verbose or not nonzero):
        count = spelling.counted(len(zero), "other loss counter" if nonzero else "loss counter")
        text += f"; {count} read, {'all ' if len(zero) > 1 else ''}zero"
    lines = labelled("losses", text, width, style="red" if nonzero else "")
    lines += labelled("", _compact_names(zero), width, style="dim") if verbose and zero else []
    unknown = gathered(
        (loss.reason or "no reason recorded", name) for name, loss in counters.items() if loss.count is None
    )
    for reason, names in unknown.items():
        named = f" ({_compact_names(names)})" if verbose else ""
        lines += labelled("", f"n/a: {len(names)} loss counters: {reason}{named}", width)
    return lines


def _compact_names(names: Iterable[str]) -> str:
    """Join names with commas. Names with the same first word share it: `recursion_{a, b}`."""
    ends_by_word = gathered(name.partition("_")[::2] for name in names)
    return ", ".join(
        f"{word}_{{{', '.join(ends)}}}" if len(ends) > 1 else "_".join(filter(None, (word, ends[0])))
        for word, ends in ends_by_word.items()
    )


def identity_lines(run: Run, width: int, *, verbose: bool) -> list[Text]:
    """Return lines with the number of consistency checks that hold, and each failed check.

    verbose: return every check
    """
    checks = run.derived.identities
    held = [check for check in checks if check.holds]
    broken = [check for check in checks if check.holds is False]
    unchecked = [check for check in checks if check.holds is None]
    text = f"{len(held)} of {len(held) + len(broken)} consistency checks hold"
    if unchecked:
        text += f"; {len(unchecked)} not checked in this run" + ("" if verbose else " (-vv: why)")
    lines = labelled("checks", text, width, style="red" if broken else "")
    for label, group in (("  BROKEN", broken), ("  holds", held), ("  unchecked", unchecked)):
        for check in group if verbose or group is broken else []:
            lines += labelled(label, _check_text(check), width, style="red" if group is broken else "")
    return lines


def _check_text(check: Identity) -> str:
    """Format a consistency check: the two numbers compared, the tolerance, and the reason for the result."""
    text = f"{check.name}: {check.what}"
    if check.holds is not None:
        text += f": {_amount(check.left)} against {_amount(check.right)} {check.unit}"
        if check.tolerance:
            text += f", tolerance {_amount(check.tolerance)}"
    return text + (f": {check.reason}" if check.reason else "")


def _amount(value: float | None) -> str:
    """Format a number in a consistency check: a count with all its digits, a fraction with few digits."""
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1 else spelling.format_count(value)


def hook_lines(run: Run, width: int, *, verbose: bool) -> list[Text]:
    """Return lines with the number of hooks in each state, the sampled events, and each failed hook.

    verbose: also return a table of all hooks
    """
    hooks = run.raw.hooks
    states = Counter(hook.state for hook in hooks)
    text = ", ".join(f"{count} {state}" for state, count in states.items()) or "n/a: no hook was tried"
    events = _sampler_events(run.raw.sampler, with_refused=not counters_explain_missing_pmu(run))
    events += _time_event_note(run)
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


def _time_event_note(run: Run) -> str:
    """Return a note that names the event whose samples apportion the CPU time among the rows.

    The note is empty unless the machine has several types of cores, whose cycles differ in duration.
    """
    pmus = run.raw.machine.pmu or []
    statuses = {event.name: event.status for event in run.raw.sampler.events}
    sampled = (name for name, status in statuses.items() if status == "sampled")
    names = time_names(sampled, statuses) if len(pmus) > 1 else None
    return f"; time is divided by {names[0]}: cores are of {len(pmus)} types" if names else ""


def _sampler_events(sampler: Sampler, *, with_refused: bool) -> str:
    """Format the sampled events with their frequencies.

    with_refused: also list the events that could not be sampled, with the reason
    """
    events = sampler.events
    sampled = [event.name for event in events if not event.reason]
    texts = [f"{', '.join(sampled)} at {sampler.frequency_hz:,.0f} Hz"] if sampled else []
    texts += [f"{event.name} is {event.counts}" for event in events if event.counts]
    if with_refused:
        refused = gathered((f"{row.status}: {row.reason}", row.name) for row in events if row.reason)
        texts += [f"{', '.join(names)} {reason}" for reason, names in refused.items()]
    return "; ".join(texts)


def _hook_table(hooks: Sequence[Hook], width: int) -> list[Text]:
    """Return a table of all hooks with their states, and below it the reasons for failed hooks."""
    titles = ("instrument", "symbol", "state", "how")
    table = TextTable(("hook",), *titles, words=titles)
    for hook in hooks:
        table.add(hook.id, hook.instrument, hook.symbol, hook.state, hook.how or "-")
    lines = heading("HOOKS", "attached probes, and how", width) + table.lines(width)
    by_reason = gathered((f"{hook.state}: {hook.reason}", hook.id) for hook in hooks if hook.reason)
    for reason, ids in by_reason.items():
        lines += wrap(f"{', '.join(ids)} {reason}", width, indent=2, style="dim")
    return lines
