"""The report of one run on a terminal, or in a log: formatting only, every number is the record's."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from copyscope import units
from copyscope.record.check import Whole
from copyscope.record.derived import Throughput, Zerocopy
from copyscope.record.measured import Workload
from copyscope.show.console import print_lines, report_width
from copyscope.show.evidence import call_lines, evidence_lines, tls_lines, worker_lines
from copyscope.show.exact_table import exact_lines
from copyscope.show.explain import explain_lines
from copyscope.show.layout import labelled, wrap
from copyscope.show.ledger_table import account_lines
from copyscope.show.path_picture import path_lines
from copyscope.show.processors import processor_lines
from copyscope.show.simulated import simulated_lines
from copyscope.show.stage_table import stage_lines

# histogram of the sender -> what it is called here, and what it is; only a round trip is a latency
TIMES = {
    "round_trip_ns": ("latency", "request sent to response received"),
    "send_time_ns": ("send time", "handing one message to the kernel"),
    "completion_time_ns": ("completion", "send return to notification read"),
}
QUANTILES = (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"), ("max", "max"))


def render(run: Whole, *, verbose: bool, explain: bool, console: Console) -> None:
    """Print the report of one derived record. Nothing is computed here but the form of a number."""
    width = report_width(console)
    lines = headline_lines(run, width)
    lines += table_lines(run, width, verbose=verbose)
    lines.append(Text())
    lines += message_time_lines(run, width)
    lines += zerocopy_lines(run, width, verbose=verbose)
    lines += worker_lines(run, width) + tls_lines(run, width)
    lines += evidence_lines(run, width, verbose=verbose)
    if run.raw.modelled is not None:
        lines += [Text(), *simulated_lines(run.raw.modelled, width)]
    if explain:
        lines += path_lines(run, width)
        lines += explain_lines(run, width)
    print_lines(lines, console)


def table_lines(run: Whole, width: int, *, verbose: bool) -> list[Text]:
    """The ledger: what is copied where, and where the CPU time goes."""
    lines = account_lines(run, width, verbose=verbose) + stage_lines(run, width, verbose=verbose)
    return lines + call_lines(run, width) + exact_lines(run, width)


def message_time_lines(run: Whole, width: int) -> list[Text]:
    """How long one message took, over all segments and the warm-up: quantiles, never a mean alone."""
    lines: list[Text] = []
    histograms = run.raw.reports.sender.histograms
    for key, (label, meaning) in TIMES.items():
        histogram = histograms.get(key)
        if histogram and histogram.count:
            values = ", ".join(f"{name} {units.format_ns(getattr(histogram, q))}" for q, name in QUANTILES)
            count = units.format_count(histogram.count)
            lines += labelled(label, f"{values} ({count} timed: {meaning})", width)
    return lines


def headline_lines(run: Whole, width: int) -> list[Text]:
    """What was run, how fast it was without instruments, and the verdict; INVALID stands above all."""
    labels = [("goodput", _goodput_text(run))]
    return judged_lines(run, _workload_text(run), labels, width)


def judged_lines(run: Whole, title: str, labels: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Why it is invalid, before all; what was run, and how busy the machine was; the verdict."""
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


def _workload_text(run: Whole) -> str:
    workload, topology = run.raw.asked, run.raw.topology
    parts = [
        f"{units.format_bytes(workload.size_bytes)} in {_fields_text(workload)}",
        # `threads` are connections: each with a thread of its own, or all in one.
        f"{units.counted(workload.threads, 'connection')} in one sending thread"
        if workload.sender == "loop"
        else units.counted(workload.threads, "thread"),
        topology.kind + ("" if topology.mtu_bytes is None else f" (MTU {topology.mtu_bytes})"),
        f"{units.format_seconds(run.raw.run.measured_s)} measured",
        _machines_text(run),
    ]
    if workload.mode != "stream":
        parts.insert(2, workload.mode)
    if workload.wait not in (None, "batch"):
        waits = {"each": "waits for each notice", "never": "reads no notice while it sends"}
        parts.insert(1, waits[workload.wait])
    if workload.receiver != "read":
        coalesced = workload.coalesce_us
        every = f" every {coalesced} us" if coalesced else ""
        parts.insert(2, f"receiver {workload.receiver}{every}")
    if workload.touch_received:
        parts.insert(2, "what is received is touched")
    if workload.file:
        parts.insert(2, f"file in {workload.file}")
    return f"{workload.impl}: {', '.join(parts)}"


def _fields_text(workload: Workload) -> str:
    header_bytes = workload.header_bytes
    header = f", the first of {units.format_bytes(header_bytes)}" if header_bytes else ""
    return f"{workload.fields} fields{header}"


def _machines_text(run: Whole) -> str:
    """The kernel; of two hosts who they are, too, and how far apart."""
    places = run.raw.places
    if places is None:
        return f"Linux {run.raw.machine.kernel}"
    both = (places.sender, places.receiver)
    sender, receiver = (f"{place.host} (Linux {place.machine.kernel})" for place in both)
    rtt_us = run.raw.topology.rtt_us
    return f"from {sender} to {receiver}" + ("" if rtt_us is None else f", {rtt_us} us there and back")


def _goodput_text(run: Whole) -> str:
    goodput = run.derived.throughput_gbps
    text = unprobed_text(goodput, "with no instrument attached")
    if goodput.unprobed is None and goodput.probed is not None:
        text += f"; {units.format_gbps(goodput.probed)} with them"
    messages = units.format_count(run.derived.messages)
    return f"{text}; {messages} messages, {units.format_bytes(run.derived.rx_bytes)} delivered"


def unprobed_text(goodput: Throughput, how: str) -> str:
    """The goodput that no instrument slows down, and how that was measured; or why it is not known."""
    if goodput.unprobed is None:
        return f"n/a without instruments ({goodput.reasons.get('unprobed', 'reason not recorded')})"
    return f"{units.format_gbps(goodput.unprobed)} {how}"


def zerocopy_lines(run: Whole, width: int, *, verbose: bool) -> list[Text]:
    """Copied or not, why, and what the notifications say; nothing for a strategy without zero-copy."""
    zerocopy = run.derived.zerocopy
    if zerocopy is None:
        return []
    text = _finding(zerocopy)
    cause = zerocopy.cause
    if cause is not None:
        text += f": {cause.sentence}"
    lines = labelled("zero-copy", text, width, style="yellow" if cause is not None else "")
    facts = [
        f"all segments: {units.format_count(zerocopy.sends)} sends",
        f"{units.format_count(zerocopy.notifications)} notifications",
        f"at most {units.format_count(zerocopy.max_in_flight)} in flight",
        f"ENOBUFS {units.format_count(zerocopy.enobufs)}",
    ]
    if zerocopy.waits:
        share = units.format_percent(zerocopy.waiting_share)
        facts.append(f"waited for one {units.format_count(zerocopy.waits)} times, {share} of the time")
    if zerocopy.sends != zerocopy.completions:
        facts.append(f"only {units.format_count(zerocopy.completions)} completed")
    lines += labelled("", ", ".join(facts), width)
    if verbose and zerocopy.bytes_silent is not None:
        sent, flagged, silent, uncopied = (
            units.format_bytes(getattr(zerocopy, key), exact=True)
            for key in ("bytes_sent", "bytes_copied", "bytes_silent", "bytes_zero_copy")
        )
        text = f"all segments: {sent} sent, {flagged} copied by the flag; "
        text += f"ledger segments: {silent} copied without it, {uncopied} not copied"
        lines += labelled("", text, width)
    return lines


def _finding(zerocopy: Zerocopy) -> str:
    """The three states apart: copied and said so, copied in silence, not copied as far as can be seen."""
    completed = units.format_count(zerocopy.completions)
    if zerocopy.copied:
        return f"{units.format_count(zerocopy.copied)} of {completed} sends were copied"
    if zerocopy.bytes_silent is None:
        return f"no completion of {completed} sends says copied; hidden copies were not counted"
    if zerocopy.bytes_silent:
        return f"the flag says that none of {completed} sends was copied, and it is wrong"
    return f"none of {completed} sends was copied"
