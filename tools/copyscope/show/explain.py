"""What each row means, for somebody who reads such a table for the first time.

The texts say what a row is; which kernel function did the work, and where, comes from the samples
of the record at hand, so that the explanation is true for the kernel that was measured.
"""

from rich.text import Text

from copyscope import units
from copyscope.ledger.rows import CONTEXTS
from copyscope.record.check import Whole
from copyscope.show.account_words import COPIES, WORDS, WORK
from copyscope.show.layout import heading, wrap
from copyscope.show.ledger_table import deciding_symbols, occurring
from copyscope.taxonomy.taxonomy import ACCOUNTS

# What a row of the first screen is, in one line of a terminal of 80 columns.
IN_A_LINE = {
    **{name: words.in_a_line for name, words in WORDS.items()},
    "syscall": "the way into the kernel and back: entry, file descriptor, security checks",
    "skb_alloc": "allocating, cloning and freeing packet buffers (sk_buff)",
    "tcp_ip": "segments, acknowledgements, windows, timers, routing",
    "device": "handing packets to the device, taking them from it (veth, lo, a driver)",
    "softirq": "starting deferred work of the kernel, not the work itself",
    "wakeup_sched": "waking the other side; the scheduler choosing what runs",
    "lock": "waiting for locks, and taking them",
    "memory": "the page allocator: pages for socket buffers and for copies",
    "irq": "interrupts and timers in the meantime",
    "user": "the program's own code outside the kernel",
    "instruments": "copyscope's own BPF programs: part of what watching cost",
    "unattributed": "no rule for the function, or its rule needs a caller that was not seen",
}


STAGE_MEANING = {
    "syscall": "The way into the kernel and back: entry, file descriptor, security checks, exit.",
    "skb_alloc": "Allocating, cloning and freeing packet buffers (sk_buff).",
    "tcp_ip": "TCP and IP proper: segments, acknowledgements, windows, timers, routing. In softirq it is "
    "mostly the receiver's half, executed on the sender's time when both share a machine.",
    "device": "Handing the packet to the device and taking it from it (veth, lo or a driver).",
    "softirq": "Dispatching deferred kernel work, not the work itself.",
    "wakeup_sched": "Waking the other side, and the scheduler choosing what runs.",
    "lock": "Waiting for and taking locks.",
    "memory": "The page allocator: pages for socket buffers and copies, and giving them back.",
    "irq": "Interrupts and timers that happened to strike here.",
    "user": "The program's own code outside the kernel (without its own memcpy, which has a row).",
    "instruments": "The profiler's own programs: what watching cost on this side.",
    "unattributed": "Time in functions without a rule in the taxonomy, or with a rule that needs the caller, "
    "which was not seen. It is never distributed over the other rows: the more of it, the less the rest is "
    "worth.",
}

WHERE_MEANING = {
    "user": "in the program itself",
    "process": "in the kernel, inside a system call of that side",
    "softirq": "in the kernel, as deferred work that interrupted the task on that CPU",
}

LINE_MEANING = {
    "where": "user is the program itself, process the kernel working for it inside a system call, softirq "
    "deferred kernel work that interrupted a task. Its time is billed to that task.",
    "ns/KiB": "CPU time per 1024 bytes of payload that arrived. Lower is cheaper; sender and receiver can be "
    "added. It is not latency: no message waits this long, and two sides work at the same time.",
    "share": "Of all CPU time: that of both sides, or of the watched program, and of the softirq work for "
    "their packets that the kernel charged to other tasks.",
    "95 % interval": "Sampled rows are estimates from counting stacks. If the same run were repeated with "
    "other sampling moments, about 95 of 100 such intervals would cover the true share.",
    "bytes, calls": "What the row moved in the ledger segments. The programs count it there; in the bytes "
    "segments the kernel counts, too, and both must agree. ~ is a number from there, scaled by bytes; a "
    "ditto mark is what the row above counted, once for both.",
    "cycles, misses": "Where there is a PMU: the row's part of the samples of that event, times what was "
    "counted on its side; the interval is that of the part. Which event a PMU counts as a miss is said below "
    "the ledger: it differs from vendor to vendor.",
    "method": "`exact` counts or times every event (`exact 1/16`: one in sixteen), `sampled` estimates from "
    "stacks, `derived` is arithmetic on such numbers, `reported` is what the program says of itself. n/a is "
    "unknown, and never means zero.",
    "system calls": "How long one call worked: half of the calls at most p50, all but one in a hundred at "
    "most p99. Softirq work inside a call and the time it was blocked come on top, as means per call.",
    "overhead": "The traffic runs with the instruments switched on and off in turn. Goodput in the headline "
    "comes from the segments without them; this line says what the others lost. If the interval includes "
    "both no effect and more than 10 %, the run was too noisy to tell.",
    "checks": "Consistency checks: sums that must agree because they count the same bytes in two places. "
    "If one does not, the run is invalid. No number is corrected to make it fit.",
}


# What only the report of a watched program has.
PROGRAM_MEANING = {
    "target": "The program that was watched, with its threads and children; `other` is softirq work on "
    "packets of its connections, charged to other tasks. Its traffic is never paused; bytes are those of its "
    "socket calls.",
    "watching": "What the whole watch cost: goodput of all segments and of the changes between them, against "
    "the segments that only count bytes. The cost of counting bytes is not included.",
    "send": "One call is one pass through the socket layer: a message of sendmmsg, a piece of sendfile. A "
    "histogram line holds the sizes from its number up to twice that. By reference means without a copy "
    "into the kernel.",
    "receive": "The same for receive calls. What splice takes out of a socket is counted in ledger segments.",
    "buffers": "A message may consist of several buffers (iovecs). Copies are fastest from whole cache "
    "lines; zero-copy pins whole pages, and a buffer across two pages costs both. Messages that begin "
    "where the one before did show a program that fills one buffer again and again: with zero-copy it must "
    "wait for the completion first.",
    "rounds": "tcp_sendmsg_locked() goes round once for each packet or page fragment that it fills, and "
    "once more when it has to wait for room. One round is the least; large sends need about one for each 32 "
    "KiB.",
    "packets": "What left in the program's own time, before the device cuts it: the larger, the cheaper per "
    "byte. What the kernel sends later, when acknowledgements arrive, is not in it.",
    "peers": "Where it sent to. On this machine (lo, veth) zero-copy sends are copied after all; pages of "
    "files are not.",
    "zero-copy": "What became of its zero-copy sends, read from the error queues of its sockets, and from "
    "the notifications of its io_uring, without taking anything off. Copied after all means that the cost "
    "of both was paid.",
    "bottleneck": "What kept it from being faster, by its CPU time and by TCP's own account of what its "
    "connections waited for.",
}


def explain_lines(run: Whole, width: int) -> list[Text]:
    """Meaning, doer and place of every row that this run shows."""
    lines = heading("WHAT THE ROWS MEAN", "only those of this run, copies in the order of the path", width)
    rows = occurring(run.derived.ledger)
    for account in ACCOUNTS:
        here = [row for row in rows if row.account == account]
        if here:
            contexts = [name for name in CONTEXTS if any(row.context == name for row in here)]
            places = "; ".join(WHERE_MEANING[name] for name in contexts)
            text = f"{WORDS[account].meaning} Ran {places}.{_doers(run, account)}"
            lines += entry(COPIES[account], text, width)
    stages = {row.stage for row in run.derived.stages if row.samples or row.cpu_ns}
    for stage, meaning in STAGE_MEANING.items():
        if stage in stages:
            lines += entry(WORK[stage], meaning + _doers(run, stage), width)
    for name, meaning in LINE_MEANING.items():
        lines += entry(name, meaning, width)
    return lines


def explain_program_lines(run: Whole, width: int) -> list[Text]:
    """The portrait's lines that this run shows, and the three around them."""
    portrait = run.portrait
    absent = {
        name for name in ("send", "receive", "buffers", "rounds", "packets") if not getattr(portrait, name)
    }
    absent |= set() if run.raw.topology.peers else {"peers"}
    absent |= set() if run.derived.zerocopy else {"zero-copy"}
    texts = [(name, text) for name, text in PROGRAM_MEANING.items() if name not in absent]
    return [line for name, text in texts for line in entry(name, text, width)]


def entry(name: str, text: str, width: int) -> list[Text]:
    """One row's name and what it means."""
    lines = wrap(f"{name}: {text}", width, indent=4)
    lines[0].stylize("bold", 0, len(name))
    return lines


def _doers(run: Whole, category: str) -> str:
    """The functions in which most samples of this row were taken, with their share of it."""
    symbols = deciding_symbols(run, category)
    total = symbols.total()
    if not total:
        return ""
    names = ", ".join(
        f"{symbol} ({units.format_percent(count / total)})" for symbol, count in symbols.most_common(3)
    )
    return f" Seen in: {names}."
