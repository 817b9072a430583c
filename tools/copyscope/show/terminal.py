# SPDX-License-Identifier: GPL-2.0-only
"""Report that `-v` prints for a run of copyscope's own traffic."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from copyscope.base import spelling
from copyscope.record.derived import Throughput, Zerocopy
from copyscope.record.measured import Workload
from copyscope.record.run import Run
from copyscope.show.cpu_tables import processor_lines, stage_lines
from copyscope.show.evidence import call_lines, evidence_lines, tls_lines, worker_lines
from copyscope.show.explain import explain_lines, path_drawing_lines
from copyscope.show.layout import labelled, print_lines, report_width, wrap
from copyscope.show.ledger_table import account_lines, exact_lines
from copyscope.show.simulated import simulated_lines

# Histogram of the sender -> (label, meaning). Only the round-trip time is a latency.
MESSAGE_TIMES = {
    "round_trip_ns": ("latency", "request sent to response received"),
    "send_time_ns": ("send time", "handing one message to the kernel"),
    "completion_time_ns": ("completion", "send return to notification read"),
}


def render(run: Run, *, verbose: bool, explain: bool, console: Console) -> None:
    """Print the report of a run of copyscope's own traffic. This module formats numbers and computes none.

    verbose: print the details of -vv
    explain: print the meaning of rows and lines
    """
    width = report_width(console)
    lines = judged_lines(run, _workload_text(run), [("goodput", _goodput_text(run))], width)
    lines += ledger_lines(run, width, verbose=verbose)
    lines.append(Text())
    lines += message_time_lines(run, width)
    lines += zerocopy_lines(run, width, verbose=verbose)
    lines += worker_lines(run, width) + tls_lines(run, width)
    lines += evidence_lines(run, width, verbose=verbose)
    if run.raw.modelled is not None:
        lines += [Text(), *simulated_lines(run.raw.modelled, width)]
    if explain:
        lines += path_drawing_lines(run, width)
        lines += explain_lines(run, width)
    print_lines(lines, console)


def ledger_lines(run: Run, width: int, *, verbose: bool) -> list[Text]:
    """Return the tables on copies, all CPU time, system calls, and hooked functions."""
    lines = account_lines(run, width, verbose=verbose) + stage_lines(run, width, verbose=verbose)
    return lines + call_lines(run, width) + exact_lines(run, width)


def message_time_lines(run: Run, width: int) -> list[Text]:
    """Return quantiles of the time per message, over all segments and the warm-up."""
    lines: list[Text] = []
    for key, (label, meaning) in MESSAGE_TIMES.items():
        times = run.raw.reports.sender.histograms.get(key)
        if times and times.count:
            quantiles = {
                "p50": times.p50,
                "p90": times.p90,
                "p99": times.p99,
                "p99.9": times.p999,
                "max": times.max,
            }
            values = ", ".join(f"{name} {spelling.format_ns(ns)}" for name, ns in quantiles.items())
            count = spelling.format_count(times.count)
            lines += labelled(label, f"{values} ({count} timed: {meaning})", width)
    return lines


def judged_lines(run: Run, title: str, labels: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Return the top of a report: warnings for an invalid run, title, labelled texts, and verdict.

    labels: pairs of (label, text) that are printed above the verdict
    """
    lines: list[Text] = []
    verdict, state = run.derived.verdict, run.derived.machine_state
    if not verdict.valid and not run.is_partial:
        lines += wrap("INVALID RUN: do not use these numbers", width, style="bold red")
        for reason in verdict.reasons:
            lines += wrap(f"  - {reason}", width, indent=4, style="red")
        if verdict.next:
            lines += wrap(f"  next: {verdict.next}", width, indent=4, style="red")
    lines += wrap(title, width, indent=2, style="bold")
    lines += processor_lines(run, width)
    if state.sentence:
        lines += wrap(state.sentence, width, indent=2, style="yellow")
    for name, text in (*labels, ("verdict", verdict.sentence)):
        lines += labelled(name, text, width)
    return lines


def _workload_text(run: Run) -> str:
    """Return the title of the report: the strategy and its settings, the path, and the machines."""
    workload, topology = run.raw.asked, run.raw.topology
    parts = [
        f"{spelling.format_bytes(workload.size_bytes)} in {_fields_text(workload)}",
        # `threads` is the number of connections: each has its own thread, or one thread serves all of them.
        f"{spelling.counted(workload.threads, 'connection')} in one sending thread"
        if workload.sender == "loop"
        else spelling.counted(workload.threads, "thread"),
        topology.kind + ("" if topology.mtu_bytes is None else f" (MTU {topology.mtu_bytes})"),
        f"{spelling.format_seconds(run.raw.run.measured_s)} measured",
        _machines_text(run),
    ]
    if workload.mode != "stream":
        parts.insert(2, workload.mode)
    if workload.wait not in (None, "batch"):
        waits = {"each": "waits for each notification", "never": "reads no notification while it sends"}
        parts.insert(1, waits[workload.wait])
    if workload.receiver != "read":
        interval = f" every {workload.coalesce_us} us" if workload.coalesce_us else ""
        parts.insert(2, f"receiver {workload.receiver}{interval}")
    if workload.touch_received:
        parts.insert(2, "receiver touches the data")
    if workload.file:
        parts.insert(2, f"file in {workload.file}")
    return f"{workload.impl}: {', '.join(parts)}"


def _fields_text(workload: Workload) -> str:
    header_bytes = workload.header_bytes
    header = f", of which the first has {spelling.format_bytes(header_bytes)}" if header_bytes else ""
    return f"{workload.fields} fields{header}"


def _machines_text(run: Run) -> str:
    """Format the kernel release, or for two hosts their names, kernels and round-trip time."""
    places = run.raw.places
    if places is None:
        return f"Linux {run.raw.machine.kernel}"
    hosts = (places.sender, places.receiver)
    sender, receiver = (f"{host.host} (Linux {host.machine.kernel})" for host in hosts)
    rtt_us = run.raw.topology.rtt_us
    return f"from {sender} to {receiver}" + ("" if rtt_us is None else f", {rtt_us} us round trip")


def _goodput_text(run: Run) -> str:
    goodput = run.derived.throughput_gbps
    text = unprobed_text(goodput, "with no instrument attached")
    if goodput.unprobed is None and goodput.probed is not None:
        text += f"; {spelling.format_gbps(goodput.probed)} with them"
    messages = spelling.format_count(run.derived.messages)
    return f"{text}; {messages} messages, {spelling.format_bytes(run.derived.rx_bytes)} delivered"


def unprobed_text(goodput: Throughput, measured_how: str) -> str:
    """Format the goodput without instruments, or the reason why it is unknown.

    measured_how: text after the goodput that states how it was measured
    """
    if goodput.unprobed is None:
        return f"n/a without instruments ({goodput.reasons.get('unprobed', 'reason not recorded')})"
    return f"{spelling.format_gbps(goodput.unprobed)} {measured_how}"


def zerocopy_lines(run: Run, width: int, *, verbose: bool) -> list[Text]:
    """Return lines on zero-copy sends: how many were copied and why, and counts of notifications.

    The result is empty if the strategy does not use zero-copy.

    verbose: also return the bytes in these sends
    """
    zerocopy = run.derived.zerocopy
    if zerocopy is None:
        return []
    text = _copied_text(zerocopy)
    cause = zerocopy.cause
    if cause is not None:
        text += f": {cause.sentence}"
    lines = labelled("zero-copy", text, width, style="yellow" if cause is not None else "")
    counts = [
        f"all segments: {spelling.format_count(zerocopy.sends)} sends",
        f"{spelling.format_count(zerocopy.notifications)} notifications",
        f"at most {spelling.format_count(zerocopy.max_in_flight)} in flight",
        f"ENOBUFS {spelling.format_count(zerocopy.enobufs)}",
    ]
    if zerocopy.waits:
        share = spelling.format_percent(zerocopy.waiting_share)
        waits = spelling.format_count(zerocopy.waits)
        counts.append(f"waited {waits} times for a notification, {share} of the time")
    if zerocopy.sends != zerocopy.completions:
        counts.append(f"only {spelling.format_count(zerocopy.completions)} completed")
    lines += labelled("", ", ".join(counts), width)
    if verbose and zerocopy.bytes_silent is not None:
        sent, flagged, silent, uncopied = (
            spelling.format_bytes(count, exact=True)
            for count in (
                zerocopy.bytes_sent,
                zerocopy.bytes_copied,
                zerocopy.bytes_silent,
                zerocopy.bytes_zero_copy,
            )
        )
        text = f"all segments: {sent} sent, {flagged} reported as copied; "
        text += f"ledger segments: {silent} copied without a report, {uncopied} not copied"
        lines += labelled("", text, width)
    return lines


def _copied_text(zerocopy: Zerocopy) -> str:
    """Format how many zero-copy sends the kernel copied, and whether the kernel reported these copies."""
    completed = spelling.format_count(zerocopy.completions)
    if zerocopy.copied:
        return f"{spelling.format_count(zerocopy.copied)} of {completed} sends were copied"
    if zerocopy.bytes_silent is None:
        return f"the kernel reports none of {completed} sends as copied; hidden copies were not counted"
    if zerocopy.bytes_silent:
        return f"the kernel reports none of {completed} sends as copied, and this report is wrong"
    return f"none of {completed} sends was copied"
