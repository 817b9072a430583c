# SPDX-License-Identifier: GPL-2.0-only
"""Report that `-v` prints for a watched program: the ledger, and a description of its traffic."""

from rich.console import Console
from rich.text import Text

from copyscope.base import spelling
from copyscope.ledger.exact import quantile_at_most
from copyscope.ledger.waiting import Waiting, waiting, why_unknown
from copyscope.record.portrait import BufferTotal, Direction, MappedTotal, PacketTotal, RoundTotal
from copyscope.record.run import Run
from copyscope.record.sections import Histogram
from copyscope.record.waits import Waits
from copyscope.record.watched import Target
from copyscope.show.cpu_tables import thread_lines
from copyscope.show.evidence import evidence_lines
from copyscope.show.explain import explain_lines, explain_program_lines
from copyscope.show.findings import advice_lines, why_lines
from copyscope.show.layout import heading, labelled, print_lines, report_width, wrap
from copyscope.show.ledger_rows import covered, part_and_whole, received_text, uncounted_segments
from copyscope.show.terminal import judged_lines, ledger_lines, unprobed_text

# Width in characters of a bar of a histogram.
BAR_WIDTH = 24
# Maximum number of sizes in a histogram, and maximum number of counts in a line.
SIZES_SHOWN = 8
COUNTS_SHOWN = 4
# Each count below this limit has its own bucket. The buckets of larger counts begin at powers of two.
FIRST_WIDE_BUCKET = 16
PROCESSES_SHOWN = 8
PEERS_SHOWN = 6
# Protocol -> text after the name of a system call. Calls on TCP sockets have no such text.
PROTOCOLS = {
    "tcp": "",
    "udp": " (UDP)",
    "mptcp": " (MPTCP)",
    "unix_stream": " (UNIX stream)",
    "unix_dgram": " (UNIX datagram)",
    "sockmap": " (in a sockmap)",
}


def portrait_lines(run: Run, width: int) -> list[Text]:
    """Return lines on how the program sends and receives: sizes, calls, options, packets and peers."""
    portrait, reasons = run.portrait, run.portrait.reasons
    note = f"all segments; buffers, rounds and packets: {covered(run, 'calls')}"
    lines = heading("PORTRAIT", f"{note}; sizes are those of one call at the socket", width)
    for label, direction in (("send", portrait.send), ("receive", portrait.receive)):
        if direction is None:
            lines += labelled(label, f"none: {reasons[label]}", width, style="dim")
            continue
        text = _calls_text(direction) + (_references_text(direction) if label == "send" else "")
        lines += labelled(label, text, width)
        lines += histogram_lines(direction.sizes, width)
    if portrait.mapped is not None:
        lines += labelled("mapped", _mapped_text(portrait.mapped), width)
    lines += _uncounted_lines(run, width)
    texts: dict[str, str | None] = {
        "buffers": None if portrait.buffers is None else _buffer_text(portrait.buffers),
        "rounds": None if portrait.rounds is None else _round_text(portrait.rounds),
        "packets": None if portrait.packets is None else _packet_text(portrait.packets),
    }
    for label, total in texts.items():
        lines += labelled(label, f"n/a: {reasons[label]}" if total is None else total, width)
    lines += labelled("waits", _waits_text(run.raw.waits, waiting(run.raw)), width)
    return lines + labelled("peers", _peer_text(run), width)


def _waits_text(waits: Waits | None, found: Waiting | None) -> str:
    """Format all reasons why the program's threads wait, or why the reasons are unknown."""
    if waits is None:
        return "n/a: this watch took no samples of threads"
    if found is None:
        return f"n/a: {why_unknown(waits)}"
    causes = [f"{spelling.format_percent(row.share)} in {row.call}: {row.what}" for row in found.causes]
    return f"{'; '.join(causes) or 'none'} ({spelling.counted(waits.samples or 0, 'sample')})"


def _calls_text(direction: Direction) -> str:
    """Format the number of calls in a direction, their mean size, and the share of each system call."""
    shares = [
        f"{row.syscall}{PROTOCOLS.get(row.protocol, f' ({row.protocol})')} "
        f"{spelling.format_percent(row.calls / direction.calls)}"
        for row in direction.by_call
    ]
    mean = spelling.format_bytes(round(direction.mean_bytes))
    return f"{spelling.format_count(direction.calls)} calls of {mean} on average; {', '.join(shares)}"


def _references_text(sent: Direction) -> str:
    """Format the share of bytes sent by reference, and the share of calls with TCP_NODELAY or cork."""
    return (
        f"; by reference: MSG_ZEROCOPY {spelling.format_percent(sent.zerocopy_share)}, "
        f"file pages {spelling.format_percent(sent.page_share)}, "
        f"from a socket (splice) {spelling.format_percent(sent.socket_share)}, "
        f"its own memory (vmsplice) {spelling.format_percent(sent.memory_share)} of the bytes; "
        f"io_uring {spelling.format_percent(sent.io_uring_share)} of the bytes; "
        f"TCP_NODELAY {spelling.format_percent(sent.nodelay_share)}, "
        f"cork {spelling.format_percent(sent.cork_share)} of the calls"
    )


def histogram_lines(sizes: list[list[int]], width: int) -> list[Text]:
    """Return a bar for each of the most frequent sizes, and the share of the other sizes.

    sizes: pairs of [low, calls]: number of calls with at least `low` but less than twice `low` bytes
    """
    calls = sum(count for _, count in sizes)
    shown = sorted(sorted(sizes, key=lambda bucket: -bucket[1])[:SIZES_SHOWN])
    longest = max(count for _, count in shown) / calls
    lines = []
    for low, count in shown:
        size, share = f"{spelling.format_bytes(low)}..", spelling.format_percent(count / calls) or ""
        bar = spelling.format_bar(count / calls, longest, BAR_WIDTH)
        lines.append(Text(f"{size:>14} {share:>8} {bar}".rstrip()[:width]))
    other_calls = calls - sum(count for _, count in shown)
    if other_calls:
        share = spelling.format_percent(other_calls / calls) or ""
        lines += wrap(f"and {share} of other sizes", width, indent=2, style="dim")
    return lines


def _mapped_text(mapped: MappedTotal) -> str:
    """Format how many bytes were received without a copy, and how many TCP_ZEROCOPY_RECEIVE copied."""
    return (
        f"{spelling.format_bytes(mapped.bytes)}, {spelling.format_count(mapped.pages)} pages, in "
        f"{spelling.format_count(mapped.calls)} TCP_ZEROCOPY_RECEIVE calls that copied "
        f"{spelling.format_bytes(mapped.copied_bytes)} that did not fill whole pages"
    )


def _uncounted_lines(run: Run, width: int) -> list[Text]:
    """Return a line on how long bytes received by splice(2) or mapping were not counted."""
    uncounted = uncounted_segments(run)
    if not uncounted:
        return []
    part, whole = part_and_whole(run, uncounted)
    text = f"bytes received by splice(2) or mapping were not counted in {part} of {whole}"
    return labelled("", text, width, style="dim")


def _buffer_text(buffers: BufferTotal) -> str:
    """Format the number of buffers per message and their alignment in memory."""
    text = f"{buffers.mean_per_message:.1f} per message ({_counts_text(buffers.per_message)})"
    if buffers.looked:
        text += (
            f"; page-aligned {spelling.format_percent(buffers.page_share)}, "
            f"cache-line-aligned (64 B) {spelling.format_percent(buffers.line_share)}, "
            f"unaligned {spelling.format_percent(buffers.other_share)}"
        )
    text += (
        f"; messages at the address of the previous message {spelling.format_percent(buffers.repeated_share)}"
    )
    if buffers.unreadable:
        text += f"; {spelling.format_count(buffers.unreadable)} could not be read"
    return text


def _round_text(rounds: RoundTotal) -> str:
    """Format how many rounds of TCP's copy loop a send takes."""
    return (
        f"{rounds.mean_per_send:.1f} rounds of TCP's copy loop per send ({_counts_text(rounds.per_send)}); "
        "each fills a packet or a page fragment, or waits for room"
    )


def _counts_text(counts: list[list[int]]) -> str:
    """Format the most frequent counts in ascending order, each with its share of the messages.

    counts: pairs of [low, messages], where `low` is the lower end of a bucket of counts
    """
    messages = sum(count for _, count in counts)
    parts = []
    for low, count in sorted(sorted(counts, key=lambda bucket: -bucket[1])[:COUNTS_SHOWN]):
        bucket = f"{low} to {2 * low - 1}" if low >= FIRST_WIDE_BUCKET else str(low)
        parts.append(f"{bucket}: {spelling.format_percent(count / messages)}")
    return ", ".join(parts + ["..."] * (len(counts) > len(parts)))


def _packet_text(packets: PacketTotal) -> str:
    return (
        f"{spelling.format_count(packets.packets)} sent by its own threads, "
        f"{spelling.format_bytes(round(packets.mean_bytes))} and {packets.mean_segments:.1f} segments "
        "on average"
    )


def _peer_text(run: Run) -> str:
    """Format the addresses of the program's peers, and whether they are on this machine."""
    peers = run.raw.topology.peers
    if not peers:
        return f"n/a: {run.portrait.reasons.get('local_share', 'no connection was recorded')}"
    shown = []
    for peer in peers[:PEERS_SHOWN]:
        where = "this machine" if peer.local else "remote" if peer.local is not None else "unknown"
        shown.append(f"{peer.address} ({where}, {peer.device or 'no route'})")
    more = f" and {len(peers) - PEERS_SHOWN} more" if len(peers) > PEERS_SHOWN else ""
    return ", ".join(shown) + more


# Assembly of the whole report.


def render(run: Run, *, verbose: bool, console: Console, explain: bool = False) -> None:
    """Print the report of a watched program.

    verbose: print the details of -vv
    explain: print the meaning of rows and lines
    """
    width = report_width(console)
    lines = headline_lines(run, width)
    lines += ledger_lines(run, width, verbose=verbose)
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


def headline_lines(run: Run, width: int) -> list[Text]:
    """Return the top of the report: the watched program, the duration, the bytes moved, and the verdict."""
    target = run.raw.watched
    parts = [
        f"{spelling.format_seconds(run.raw.run.measured_s)} measured",
        f"Linux {run.raw.machine.kernel}",
        f"path: {run.raw.topology.kind}",
        target.ended,
    ]
    title = target.command_text or target.title
    labels = [("processes", processes_text(target)), ("goodput", goodput_text(run))]
    return judged_lines(run, f"{title}: {', '.join(parts)}", labels, width)


def processes_text(target: Target) -> str:
    """Format the watched processes' names and PIDs, and how many were forked or exited during the run."""
    shown = ", ".join(f"{row.comm}[{row.pid}]" for row in target.pids[:PROCESSES_SHOWN]) or "none seen"
    more = len(target.pids) - PROCESSES_SHOWN
    text = shown + (f" and {more} more" if more > 0 else "")
    if target.forks or target.exits:
        text += f"; {target.forks:,} forked, {target.exits:,} exited meanwhile"
    return text


def goodput_text(run: Run) -> str:
    """Format the goodput without and with the ledger's instruments, and the bytes sent and received."""
    goodput = run.derived.throughput_gbps
    text = unprobed_text(goodput, "counting bytes only")
    if goodput.probed is not None:
        text += f", {spelling.format_gbps(goodput.probed)} with the ledger's instruments"
    else:
        reason = goodput.reasons.get("probed", "reason not recorded")
        text += f", n/a with the ledger's instruments ({reason})"
    target = run.raw.watched
    return f"{text}; {spelling.format_bytes(target.sent_bytes)} sent, {received_text(run)}"


def send_error_lines(run: Run, width: int) -> list[Text]:
    """Return the failed send calls by error, the most frequent first."""
    rows = sorted(run.raw.send_errors, key=lambda row: -row.calls)
    text = ", ".join(f"{row.calls:,} {row.syscall} with {row.error}" for row in rows)
    return labelled("refused", f"send calls: {text}", width) if rows else []


def buffer_lines(run: Run, width: int) -> list[Text]:
    """Return lines on how long the kernel used the buffers of zero-copy sends, and on notifications."""
    lines: list[Text] = []
    for row in run.raw.buffers:
        if row.given_back_sends is None:
            parts = [f"{row.protocol}: {row.reason}"]
        else:
            unread = spelling.counted(row.given_back_sends - row.read_sends, "send")
            parts = [
                f"{row.protocol}: buffers were released {_quantiles_text(row.latency)} after the send",
                f"{spelling.format_count(row.most_in_flight)} sends at most were in flight at once",
                f"the notifications were read {_quantiles_text(row.reading)} later, those of {unread} never",
            ]
        if row.flag_only_calls:
            count = spelling.format_count(row.flag_only_calls)
            parts += [f"{count} calls had MSG_ZEROCOPY and their sockets no SO_ZEROCOPY: plain copies"]
        lines += labelled("buffers", "; ".join(parts), width)
    return lines


def _quantiles_text(times: Histogram) -> str:
    p50_ns, p99_ns = (quantile_at_most(times.buckets, share) for share in (0.5, 0.99))
    if p50_ns is None or p99_ns is None:
        return spelling.NOT_AVAILABLE
    return f"p50 {spelling.format_ns(p50_ns)}, p99 {spelling.format_ns(p99_ns)}"


def zerocopy_lines(run: Run, width: int) -> list[Text]:
    """Return lines on zero-copy sends: how many completed, and how many were copied after all.

    The numbers come from notifications on the sockets' error queues, which were read but not removed.
    """
    zerocopy = run.derived.zerocopy
    if zerocopy is None:
        return []
    text = f"{spelling.format_count(zerocopy.sends)} zero-copy sends (MSG_ZEROCOPY, SEND_ZC), "
    if zerocopy.completions is None:
        text += f"completions n/a: {zerocopy.reason}"
    else:
        text += (
            f"{spelling.format_count(zerocopy.completions)} completions seen in "
            f"{spelling.format_count(zerocopy.notifications)} notifications, "
            f"{spelling.format_count(zerocopy.copied)} copied after all"
        )
    if zerocopy.unseen:
        unseen = spelling.format_count(zerocopy.unseen)
        text += f"; {unseen} were removed from the queue before they could be read"
    if zerocopy.untold:
        unreported = spelling.format_count(zerocopy.untold)
        text += (
            f"; io_uring did not report for {unreported} whether they were copied, because they were sent "
            "without IORING_SEND_ZC_REPORT_USAGE"
        )
    if zerocopy.cause is not None:
        text += f": {zerocopy.cause.sentence}"
    return labelled("zero-copy", text, width)
