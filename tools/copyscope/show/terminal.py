"""The report of one run on a terminal, or in a log: formatting only, every number is the record's."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from copyscope import units
from copyscope.record.segments import Record
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


def render(record: Record, *, verbose: bool, explain: bool, console: Console) -> None:
    """Print the report of one derived record. Nothing is computed here but the form of a number."""
    width = report_width(console)
    lines = headline_lines(record, width)
    lines += table_lines(record, width, verbose=verbose)
    lines.append(Text())
    lines += message_time_lines(record, width)
    lines += zerocopy_lines(record, width, verbose=verbose)
    lines += worker_lines(record, width) + tls_lines(record, width)
    lines += evidence_lines(record, width, verbose=verbose)
    if "modelled" in record:
        section = record["modelled"]
        lines += [Text(), *simulated_lines({"simulated": section, "run": section}, width)]
    if explain:
        lines += path_lines(record, width)
        lines += explain_lines(record, width)
    print_lines(lines, console)


def table_lines(record: Record, width: int, *, verbose: bool) -> list[Text]:
    """The ledger: what is copied where, and where the CPU time goes."""
    lines = account_lines(record, width, verbose=verbose) + stage_lines(record, width, verbose=verbose)
    return lines + call_lines(record, width) + exact_lines(record, width)


def message_time_lines(record: Record, width: int) -> list[Text]:
    """How long one message took, over all segments and the warm-up: quantiles, never a mean alone."""
    lines: list[Text] = []
    histograms = record["traffic"]["sender"]["histograms"]
    for key, (label, meaning) in TIMES.items():
        histogram = histograms.get(key)
        if histogram and histogram["count"]:
            values = ", ".join(f"{name} {units.format_ns(histogram[q])}" for q, name in QUANTILES)
            count = units.format_count(histogram["count"])
            lines += labelled(label, f"{values} ({count} timed: {meaning})", width)
    return lines


def headline_lines(record: Record, width: int) -> list[Text]:
    """What was run, how fast it was without instruments, and the verdict; INVALID stands above all."""
    labels = [("goodput", _goodput_text(record))]
    return judged_lines(record, _workload_text(record), labels, width)


def judged_lines(record: Record, title: str, labels: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Why it is invalid, before all; what was run, and how busy the machine was; the verdict."""
    lines: list[Text] = []
    verdict, state = record["verdict"], record.get("machine_state") or {}
    if not verdict["valid"]:
        lines += wrap("INVALID RUN: do not use these numbers", width, style="bold red")
        for reason in verdict["reasons"]:
            lines += wrap(f"  - {reason}", width, indent=4, style="red")
        if verdict.get("next"):
            lines += wrap(f"  next: {verdict['next']}", width, indent=4, style="red")
    lines += wrap(title, width, indent=2, style="bold")
    lines += processor_lines(record, width)
    if state.get("sentence"):
        lines += wrap(state["sentence"], width, indent=2, style="yellow")
    for name, text in (*labels, ("verdict", verdict["sentence"])):
        lines += labelled(name, text, width)
    return lines


def _workload_text(record: Record) -> str:
    workload, topology = record["workload"], record["topology"]
    parts = [
        f"{units.format_bytes(workload['size_bytes'])} in {_fields_text(workload)}",
        # `threads` are connections: each with a thread of its own, or all in one.
        f"{units.counted(workload['threads'], 'connection')} in one sending thread"
        if workload.get("sender") == "loop"
        else units.counted(workload["threads"], "thread"),
        topology["kind"] + ("" if topology["mtu_bytes"] is None else f" (MTU {topology['mtu_bytes']})"),
        f"{units.format_seconds(record['run']['measured_s'])} measured",
        _machines_text(record),
    ]
    if workload["mode"] != "stream":
        parts.insert(2, workload["mode"])
    if workload.get("wait", "batch") != "batch":
        waits = {"each": "waits for each notice", "never": "reads no notice while it sends"}
        parts.insert(1, waits[workload["wait"]])
    if workload["receiver"] != "read":
        coalesced = workload.get("coalesce_us")
        every = f" every {coalesced} us" if coalesced else ""
        parts.insert(2, f"receiver {workload['receiver']}{every}")
    if workload.get("touch_received"):
        parts.insert(2, "what is received is touched")
    if workload.get("file"):
        parts.insert(2, f"file in {workload['file']}")
    return f"{workload['impl']}: {', '.join(parts)}"


def _fields_text(workload: Record) -> str:
    header_bytes = workload.get("header_bytes")
    header = f", the first of {units.format_bytes(header_bytes)}" if header_bytes else ""
    return f"{workload['fields']} fields{header}"


def _machines_text(record: Record) -> str:
    """The kernel; of two hosts who they are, too, and how far apart."""
    places = record.get("places")
    if places is None:
        return f"Linux {record['machine']['kernel']}"
    both = (places["sender"], places["receiver"])
    sender, receiver = (f"{place['host']} (Linux {place['machine']['kernel']})" for place in both)
    rtt_us = record["topology"].get("rtt_us")
    return f"from {sender} to {receiver}" + ("" if rtt_us is None else f", {rtt_us} us there and back")


def _goodput_text(record: Record) -> str:
    goodput = record["throughput_gbps"]
    if goodput["unprobed"] is not None:
        text = f"{units.format_gbps(goodput['unprobed'])} with no instrument attached"
    else:
        text = f"n/a without instruments ({goodput['reasons'].get('unprobed', 'reason not recorded')})"
        if goodput["probed"] is not None:
            text += f"; {units.format_gbps(goodput['probed'])} with them"
    messages = units.format_count(record["messages"])
    return f"{text}; {messages} messages, {units.format_bytes(record['rx_bytes'])} delivered"


def zerocopy_lines(record: Record, width: int, *, verbose: bool) -> list[Text]:
    """Copied or not, why, and what the notifications say; nothing for a strategy without zero-copy."""
    zerocopy = record["zerocopy"]
    if zerocopy is None:
        return []
    text = _finding(zerocopy)
    cause = zerocopy["cause"]
    if cause is not None:
        text += f": {cause['sentence']}"
    lines = labelled("zero-copy", text, width, style="yellow" if cause is not None else "")
    facts = [
        f"all segments: {units.format_count(zerocopy['sends'])} sends",
        f"{units.format_count(zerocopy['notifications'])} notifications",
        f"at most {units.format_count(zerocopy['max_in_flight'])} in flight",
        f"ENOBUFS {units.format_count(zerocopy['enobufs'])}",
    ]
    if zerocopy.get("waits"):
        share = units.format_percent(zerocopy["waiting_share"])
        facts.append(f"waited for one {units.format_count(zerocopy['waits'])} times, {share} of the time")
    if zerocopy["sends"] != zerocopy["completions"]:
        facts.append(f"only {units.format_count(zerocopy['completions'])} completed")
    lines += labelled("", ", ".join(facts), width)
    if verbose and zerocopy["bytes_silent"] is not None:
        sent, flagged, silent, uncopied = (
            units.format_bytes(zerocopy[key], exact=True)
            for key in ("bytes_sent", "bytes_copied", "bytes_silent", "bytes_zero_copy")
        )
        text = f"all segments: {sent} sent, {flagged} copied by the flag; "
        text += f"ledger segments: {silent} copied without it, {uncopied} not copied"
        lines += labelled("", text, width)
    return lines


def _finding(zerocopy: Record) -> str:
    """The three states apart: copied and said so, copied in silence, not copied as far as can be seen."""
    completed = units.format_count(zerocopy["completions"])
    if zerocopy["copied"]:
        return f"{units.format_count(zerocopy['copied'])} of {completed} sends were copied"
    if zerocopy["bytes_silent"] is None:
        return f"no completion of {completed} sends says copied; silent copies were not looked for"
    if zerocopy["bytes_silent"]:
        return f"the flag says that none of {completed} sends was copied, and it is wrong"
    return f"none of {completed} sends was copied"
