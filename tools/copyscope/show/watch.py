"""The report of a watched program: the same ledger, and what its traffic looks like."""

from rich.console import Console
from rich.text import Text

from copyscope import units
from copyscope.ledger.functions import at_most
from copyscope.record.check import Whole
from copyscope.record.sections import Histogram
from copyscope.record.watched import Target
from copyscope.show.advice import advice_lines
from copyscope.show.console import print_lines, report_width
from copyscope.show.evidence import evidence_lines
from copyscope.show.explain import explain_lines, explain_program_lines
from copyscope.show.layout import labelled
from copyscope.show.portrait import portrait_lines
from copyscope.show.terminal import judged_lines, table_lines, unprobed_text
from copyscope.show.threads import thread_lines
from copyscope.show.why import why_lines


def render(run: Whole, *, verbose: bool, console: Console, explain: bool = False) -> None:
    """Print the report of one derived record of a watched program."""
    width = report_width(console)
    lines = headline_lines(run, width)
    lines += table_lines(run, width, verbose=verbose)
    lines += thread_lines(run, width) if len({row.thread for row in run.raw.threads or []}) > 1 else []
    lines += portrait_lines(run, width)
    lines.append(Text())
    lines += zerocopy_lines(run, width) + buffer_lines(run, width) + send_error_lines(run, width)
    lines += evidence_lines(run, width, verbose=verbose)
    lines += advice_lines(run, width, explain=explain)
    lines += why_lines(run.derived.why, width, explain=True) if run.derived.why else []
    if explain:
        lines += explain_lines(run, width) + explain_program_lines(run, width)
    print_lines(lines, console)


def headline_lines(run: Whole, width: int) -> list[Text]:
    """Who was watched for how long, what it moved, and the verdict; INVALID stands above all."""
    target = run.raw.watched
    parts = [
        f"{units.format_seconds(run.raw.run.measured_s)} measured",
        f"Linux {run.raw.machine.kernel}",
        f"path: {run.raw.topology.kind}",
        target.ended,
    ]
    command = target.command
    title = " ".join(command) if command else target.name
    labels = [("processes", processes_text(target)), ("goodput", goodput_text(run))]
    return judged_lines(run, f"{title}: {', '.join(parts)}", labels, width)


def processes_text(target: Target) -> str:
    shown = ", ".join(f"{row.comm}[{row.pid}]" for row in target.pids[:8]) or "none seen"
    more = len(target.pids) - 8
    text = shown + (f" and {more} more" if more > 0 else "")
    if target.forks or target.exits:
        text += f"; {target.forks:,} forked, {target.exits:,} ended meanwhile"
    return text


def goodput_text(run: Whole) -> str:
    goodput = run.derived.throughput_gbps
    text = unprobed_text(goodput, "counting bytes only")
    if goodput.probed is not None:
        text += f", {units.format_gbps(goodput.probed)} with the ledger's instruments"
    else:
        why = goodput.reasons.get("probed", "reason not recorded")
        text += f", n/a with the ledger's instruments ({why})"
    moved = run.raw.watched
    sent, received = units.format_bytes(moved.sent_bytes), units.format_bytes(moved.received_bytes)
    return f"{text}; {sent} sent, {received} received"


def send_error_lines(run: Whole, width: int) -> list[Text]:
    """Send calls of which the socket took nothing, the most frequent first."""
    rows = sorted(run.raw.send_errors, key=lambda row: -row.calls)
    text = ", ".join(f"{row.calls:,} {row.syscall} with {row.error}" for row in rows)
    return labelled("refused", f"send calls: {text}", width) if rows else []


def buffer_lines(run: Whole, width: int) -> list[Text]:
    """How long the kernel had the memory of zero-copy sends, and how long its notices waited to be read."""
    lines: list[Text] = []
    for row in run.raw.buffers:
        parts = [f"{row.protocol}: buffers were released {_at_most(row.latency)} after the send"]
        parts += [f"{units.format_count(row.most_in_flight)} sends at most were in flight at once"]
        if row.given_back_sends is None:
            parts = [f"{row.protocol}: {row.reason}"]
        else:
            unread = units.counted(row.given_back_sends - row.read_sends, "send")
            parts += [f"the notices were read {_at_most(row.reading)} later, of {unread} never"]
        if row.flag_only_calls:
            count = units.format_count(row.flag_only_calls)
            parts += [f"{count} calls had MSG_ZEROCOPY and their sockets no SO_ZEROCOPY: plain copies"]
        lines += labelled("buffers", "; ".join(parts), width)
    return lines


def _at_most(histogram: Histogram) -> str:
    p50, p99 = (at_most(histogram.buckets, share) for share in (0.5, 0.99))
    if p50 is None or p99 is None:
        return units.NOT_AVAILABLE
    return f"p50 {units.format_ns(p50)}, p99 {units.format_ns(p99)}"


def zerocopy_lines(run: Whole, width: int) -> list[Text]:
    """What became of zero-copy sends, read from the sockets' error queues without taking anything off."""
    zerocopy = run.derived.zerocopy
    if zerocopy is None:
        return []
    text = f"{units.format_count(zerocopy.sends)} zero-copy sends (MSG_ZEROCOPY, SEND_ZC), "
    if zerocopy.completions is None:
        text += f"completions n/a: {zerocopy.reason}"
    else:
        text += (
            f"{units.format_count(zerocopy.completions)} completions seen in "
            f"{units.format_count(zerocopy.notifications)} notifications, "
            f"{units.format_count(zerocopy.copied)} copied after all"
        )
    if zerocopy.unseen:
        text += (
            f"; {units.format_count(zerocopy.unseen)} were removed from the queue before they could be read"
        )
    if zerocopy.untold:
        text += (
            f"; io_uring did not report for {units.format_count(zerocopy.untold)} whether they were copied: "
            "they did not ask (IORING_SEND_ZC_REPORT_USAGE)"
        )
    if zerocopy.cause is not None:
        text += f": {zerocopy.cause.sentence}"
    return labelled("zero-copy", text, width)
