# SPDX-License-Identifier: GPL-2.0-only
"""Explanations for a first-time reader (--explain): the meaning of each row, and a drawing of a byte's path.

The texts that explain the rows are constants. Names of kernel functions, and where they ran, come from the
record's samples, so that they are true for the measured kernel.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from rich.text import Text

from copyscope.base import spelling
from copyscope.ledger.rows import CONTEXTS
from copyscope.record.derived import AccountRow
from copyscope.record.run import Run
from copyscope.record.segments import is_relay
from copyscope.show.layout import heading, wrap
from copyscope.show.ledger_rows import copies_to_relay, deciding_symbols, flow_order, occurring
from copyscope.taxonomy.accounts import ACCOUNTS, RECEIVE_COPIES, STAGES, Leg

# Row of the first screen -> its meaning, in a single line of an 80-column terminal.
SHORT_MEANING = {
    **{name: account.line for name, account in ACCOUNTS.items()},
    "syscall": "the way into the kernel and back: entry, file descriptor, security checks",
    "skb_alloc": "allocating, cloning and freeing packet buffers (sk_buff)",
    "tcp_ip": "segments, acknowledgements, windows, timers, routing",
    "device": "handing packets to the device and taking them from it (veth, lo, a driver)",
    "softirq": "starting the kernel's deferred work, not the work itself",
    "wakeup_sched": "waking the other process; the scheduler choosing the next task",
    "lock": "waiting for locks, and acquiring them",
    "memory": "the page allocator: pages for socket buffers and for copies",
    "irq": "interrupts and timers that arrived meanwhile",
    "other_packets": "softirqs for packets of other programs, on this program's CPU time",
    "user": "the program's own code outside the kernel",
    "instruments": "copyscope's own BPF programs: part of what measuring costs",
    "unattributed": "no rule for the function, or its rule needs a caller that was not sampled",
}

# Stage -> its meaning, for the report of -v --explain.
STAGE_MEANING = {
    "syscall": "The way into the kernel and back: entry, file descriptor, security checks, exit.",
    "skb_alloc": "Allocating, cloning and freeing packet buffers (sk_buff).",
    "tcp_ip": "TCP and IP themselves: segments, acknowledgements, windows, timers, routing. In softirq it is "
    "mostly work for the receiver, which runs on the sender's CPU time if both are on one machine.",
    "device": "Handing the packet to the device and taking it from it (veth, lo or a driver).",
    "softirq": "Dispatching deferred kernel work, not the work itself.",
    "wakeup_sched": "Waking the other process, and the scheduler choosing the next task.",
    "lock": "Waiting for locks, and acquiring them.",
    "memory": "The page allocator: allocating and freeing pages for socket buffers and copies.",
    "irq": "Interrupts and timers that arrived while this process ran.",
    "other_packets": "Softirqs that handled packets of others while this process ran: copies of these "
    "packets are not copies of this process.",
    "user": "The program's own code outside the kernel, without its memcpy, which has a row of its own.",
    "instruments": "copyscope's own BPF programs: CPU time that measuring took from this process.",
    "unattributed": "Functions without a rule in the taxonomy, or with a rule that needs a caller that was "
    "not sampled. This time is never distributed over the other rows: the larger it is, the less reliable "
    "they are.",
}

# Context of work -> the place where the work ran.
WHERE_MEANING = {
    "user": "in the program itself",
    "process": "in the kernel, inside a system call of that process",
    "softirq": "in the kernel, as deferred work that interrupted the task on that CPU",
}

# Column or line of the report of -v -> its meaning.
LINE_MEANING = {
    "where": "user is the program itself; process is the kernel working for it inside a system call; softirq "
    "is deferred kernel work that interrupted a task. Its time is charged to that task.",
    "ns/KiB": "CPU time per 1024 bytes of payload that arrived. Lower is cheaper; sender and receiver can be "
    "added. It is not latency: no message waits this long, because sender and receiver work in parallel.",
    "share": "Share of all CPU time: that of sender and receiver, or of the watched program, and of the "
    "softirq work for their packets that the kernel charged to other tasks.",
    "95 % interval": "Sampled rows are estimates from counted stacks. If the same run were repeated with "
    "other sampling moments, about 95 of 100 such intervals would cover the true value.",
    "bytes, calls": "Bytes and calls of the row in the ledger segments, counted by the programs. In the "
    "bytes segments the kernel counts them, too, and both counts must agree. ~ marks a count from the bytes "
    'segments that was scaled by bytes. " stands for a count that the row above shares.',
    "cycles, misses": "Needs a PMU: the row's share of the samples of that event, times the total count of "
    "its process. The interval is that of the share. A note below the ledger names the event that the PMU "
    "counts as a miss, because vendors differ.",
    "method": "`exact` counts or times every event (`exact 1/16`: one event in sixteen), `sampled` estimates "
    "from stacks, `derived` is computed from such numbers, `reported` comes from the program itself. n/a is "
    "unknown, and never means zero.",
    "system calls": "CPU time of a single call: half of the calls take at most p50, 99 of 100 at most p99. "
    "Softirq work inside a call and the time it was blocked come on top, as means per call.",
    "overhead": "The traffic runs with and without the instruments in turn. The goodput of the headline "
    "comes from the segments without them; this line is the loss of the other segments. If the interval "
    "includes both no effect and more than 10 %, the run was too noisy to measure it.",
    "checks": "Consistency checks: sums that must agree because they count the same bytes in two places. "
    "If two sums disagree, the run is invalid. No number is corrected to make them agree.",
}

# Line that only the report of a watched program has -> its meaning.
PROGRAM_MEANING = {
    "target": "The watched program, with its threads and children; `other` is softirq work on packets of its "
    "connections, charged to other tasks. Its traffic is never paused; bytes are those of its socket calls.",
    "watching": "Cost of the whole watch: goodput of all segments and of the changes between them, relative "
    "to that of the segments that only count bytes. The cost of counting bytes is not included.",
    "send": "A call is one pass through the socket layer: a message of sendmmsg, a piece of sendfile. A "
    "histogram line holds the sizes from its number up to twice that. By reference means without a copy "
    "into the kernel.",
    "receive": "The same for receive calls. Bytes that splice takes out of a socket are counted in the "
    "ledger segments.",
    "buffers": "A message may consist of several buffers (iovecs). Copies are fastest from whole cache "
    "lines. Zero-copy pins whole pages, and a buffer across two pages pins both. Messages that begin at the "
    "address of the previous message show a program that fills the same buffer again and again: with "
    "zero-copy it must first wait for the notification.",
    "rounds": "tcp_sendmsg_locked() loops once for each packet or page fragment that it fills, and once more "
    "when it has to wait for room. The minimum is one round; large sends need about one for each 32 KiB.",
    "packets": "Packets that left in the program's own time, before the device cuts them: the larger, the "
    "cheaper per byte. Packets that the kernel sends later, when acknowledgements arrive, are not included.",
    "peers": "Destinations. On this machine (lo, veth) the kernel copies zero-copy sends after all, but not "
    "the pages of files.",
    "zero-copy": "Results of its zero-copy sends, peeked from the error queues of its sockets and from the "
    "notifications of its io_uring, without removing any. Copied after all means that the program paid for "
    "zero-copy and for the copy.",
    "bottleneck": "What kept the program from being faster, by its CPU time and by TCP's own statistics of "
    "what its connections waited for.",
}


def explain_lines(run: Run, width: int) -> list[Text]:
    """Return the meaning of every row of this run, where its work ran, and its main functions."""
    lines = heading("WHAT THE ROWS MEAN", "only rows of this run; copies in the order of the path", width)
    rows = occurring(run.derived.ledger)
    for name, account in ACCOUNTS.items():
        contexts = {row.context for row in rows if row.account == name}
        if contexts:
            places = "; ".join(WHERE_MEANING[context] for context in CONTEXTS if context in contexts)
            text = f"{account.meaning} Ran {places}.{_main_functions(run, name)}"
            lines += entry(account.title, text, width)
    stages = {row.stage for row in run.derived.stages if row.samples or row.cpu_ns}
    for stage, meaning in STAGE_MEANING.items():
        if stage in stages:
            lines += entry(STAGES[stage], meaning + _main_functions(run, stage), width)
    for name, meaning in LINE_MEANING.items():
        lines += entry(name, meaning, width)
    return lines


def explain_program_lines(run: Run, width: int) -> list[Text]:
    """Return the meaning of the lines that only a watched program's report has."""
    portrait = run.portrait
    is_shown = {
        "send": portrait.send is not None,
        "receive": portrait.receive is not None,
        "buffers": portrait.buffers is not None,
        "rounds": portrait.rounds is not None,
        "packets": portrait.packets is not None,
        "peers": bool(run.raw.topology.peers),
        "zero-copy": run.derived.zerocopy is not None,
    }
    entries = [(name, text) for name, text in PROGRAM_MEANING.items() if is_shown.get(name, True)]
    return [line for name, text in entries for line in entry(name, text, width)]


def entry(name: str, text: str, width: int) -> list[Text]:
    """Return an entry of the explanations: the bold name of a row or column, and its meaning `text`."""
    lines = wrap(f"{name}: {text}", width, indent=4)
    lines[0].stylize("bold", 0, len(name))
    return lines


def _main_functions(run: Run, category: str) -> str:
    """Return a sentence that names the most sampled functions of an account or stage, or ""."""
    symbols = deciding_symbols(run, category)
    total = symbols.total()
    if not total:
        return ""
    names = ", ".join(
        f"{symbol} ({spelling.format_percent(count / total)})" for symbol, count in symbols.most_common(3)
    )
    return f" Seen in: {names}."


# Drawing of the path of a byte in characters. Each copy is a box with its measured CPU time.

BOX_WIDTH = 76
MARGIN = "   "


def path_drawing_lines(run: Run, width: int) -> list[Text]:
    """Return the drawing of the path from the sender's memory to the receiver's memory, top to bottom."""
    lines = heading("THE PATH OF A BYTE", "measured CPU time of each step, per KiB delivered", width)
    if not run.derived.rx_bytes:
        return lines + wrap("nothing was sent, so there is no path", width, indent=2)
    if width < BOX_WIDTH + len(MARGIN):
        return lines + wrap("the terminal is too narrow for the drawing", width, indent=2)
    return lines + [Text(line) for line in _drawing(run)]


def _drawing(run: Run) -> Iterator[str]:
    """Yield the lines of the drawing, in the order in which a byte passes the places and the copies."""
    all_rows = occurring(run.derived.ledger)
    relay_rows = copies_to_relay(run, all_rows)
    rows = [row for row in all_rows if row not in relay_rows]
    accounts = {row.account for row in rows}
    legs: dict[Leg, list[str]] = {
        leg: [name for name, account in ACCOUNTS.items() if account.leg == leg and name in accounts]
        for leg in get_args(Leg)
    }
    workload, topology = run.raw.asked, run.raw.topology
    if is_relay(run.raw.run):
        yield from _path_to_relay(run, relay_rows)
    else:
        yield _location(f"sender's memory: {workload.fields} fields, one message")
    for account in legs["program"]:
        yield from _step(run, rows, account)
    if "gather" in accounts:
        yield _location("sender's memory: one buffer")
    yield _boundary("send call")
    for account in legs["send call"]:
        yield from _step(run, rows, account)
    yield _location(f"sender's socket, then {topology.kind}")
    for account in legs["way"]:
        yield from _step(run, rows, account)
    if not legs["way"]:
        how = "by reference: the same pages" if topology.local_delivery else "by the devices (DMA)"
        yield f"{MARGIN}      |  no copy by the CPU: {how}"
        yield f"{MARGIN}      v"
    yield _location("receiver's socket")
    # Decryption and mapping precede the copy to the receiver, which moves only the remaining bytes.
    for account in sorted(legs["receive call"], key=lambda name: name in RECEIVE_COPIES):
        yield from _step(run, rows, account)
    yield _boundary("receive call")
    uncopied = "a pipe: the same pages" if workload.receiver == "splice" else "discarded without a copy"
    yield _location("receiver's memory" if legs["receive call"] else uncopied)
    if legs["notice"]:
        yield MARGIN + "and back to the sender, later:"
    for account in legs["notice"]:
        yield from _box(run, rows, account)


def _path_to_relay(run: Run, rows: Sequence[AccountRow]) -> Iterator[str]:
    """Yield the first part of the drawing for a relay: from the socket that it reads, to its memory.

    rows: rows of the ledger with the copies from that socket to the relay's memory; empty: no such copy
    """
    yield _location("relay's first socket: data from the program before it")
    if rows:
        yield from _step(run, rows, "copy_out")
    yield _boundary("receive call")
    yield _location("relay's memory: one buffer" if rows else "a pipe: the same pages")


def _location(text: str) -> str:
    return f"{MARGIN}[ {text} ]"


def _boundary(text: str) -> str:
    return f"{MARGIN}{f'---- {text} '.ljust(BOX_WIDTH, '-')}"


def _step(run: Run, rows: Iterable[AccountRow], account: str) -> Iterator[str]:
    yield f"{MARGIN}      |"
    yield from _box(run, rows, account)
    yield f"{MARGIN}      v"


def _box(run: Run, rows: Iterable[AccountRow], account: str) -> Iterator[str]:
    """Yield the lines of an account's box, with a line of CPU time for each of the account's rows."""
    is_copy = ACCOUNTS[account].is_copy
    caption = f"{'COPY' if is_copy else 'no copy'}  {ACCOUNTS[account].caption}"
    account_rows = [row for row in rows if row.account == account]
    if account == "copy_out" and all(row.side == "sender" for row in account_rows):
        caption = caption.replace("to the receiver", "to the relay")
    border = f"{MARGIN}+{('=' if is_copy else '-') * (BOX_WIDTH - 2)}+"
    yield border
    yield _box_line(caption)
    for row in sorted(account_rows, key=lambda row: flow_order(account, row.side, row.context)):
        ns_per_kib = spelling.format_tenths(row.ns_per_kib) or spelling.NOT_AVAILABLE
        cost = f"{ns_per_kib:>10} ns/KiB   {f'{row.side}, {row.context}':<18}"
        # The functions by number of samples; empty for a row without samples.
        symbols = deciding_symbols(run, account, row.side, row.context)
        symbol = next((name for name, _ in symbols.most_common(1)), "")
        if len(cost) + len(symbol) > BOX_WIDTH - 6:
            yield _box_line(cost)
            yield _box_line(symbol.rjust(BOX_WIDTH - 4))
        else:
            yield _box_line(f"{cost}  {symbol}")
    yield border


def _box_line(text: str) -> str:
    return f"{MARGIN}| {text.ljust(BOX_WIDTH - 4)} |"
