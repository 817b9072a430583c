"""Why zero-copy does not make a watched program faster: one problem per row of PROBLEMS. Pure.

Each is found by what was counted, never guessed: what it costs in time is said where that is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from copyscope.judge.crossover_file import Found
from copyscope.judge.obstacles import (
    OVER_A_NETWORK,
    PACKET_REFERENCES,
    SMALL_BYTES,
    WITHOUT_ZEROCOPY,
    in_its_protocol,
)
from copyscope.judge.remedies import PRICE_OF_ZEROCOPY
from copyscope.judge.threshold import said_gain
from copyscope.ledger.attribution import SideTime, side_times
from copyscope.ledger.functions import at_most
from copyscope.ledger.headline import share_of_accounts
from copyscope.ledger.portrait import median_slot
from copyscope.ledger.rows import cell
from copyscope.ledger.share import Share, percent, too_few
from copyscope.record.check import Whole
from copyscope.record.portrait import Problem, Saving, Why
from copyscope.record.segments import total
from copyscope.record.watched import Buffers
from copyscope.units import counted, format_bytes, format_ns, format_size

# A part of its sends, of its time: less is no problem.
WORTH_NAMING = 0.05
# Notices that wait to be read together are no fault: so many at once are.
UNREAD_SENDS = 100
# Of its calls: a send that is refused is made again.
REFUSED_WORTH_NAMING = 0.01
# TCP_DELACK_MAX is 40 ms on the other end; no path of a data centre takes so long.
LATE_NS = 20_000_000
# Buffers of one connection that are with the kernel at once: fewer are no queue.
QUEUE = 2
# A buffer of a message is pinned by itself: below this many bytes that is dearer than a copy.
SMALL_FIELD_BYTES = 4096
# Sends per notice that is read; a batch has several.
ALONE = 1.5
# Others refuse SO_ZEROCOPY.
TAKES_THE_OPTION = ("tcp", "udp")
# What is paid in place of the copy.
PRICE = ("pin", "completion")
# What made the kernel copy -> what to do; all else: to send plainly there.
CHANGES = {
    "local_delivery": "send plainly to peers on this machine, or use sendfile; "
    f"whether it pays over a network: {OVER_A_NETWORK}",
    "received": "send plainly through this veth, or Linux 6.17 or newer",
    "packet_socket": "stop the program that listens to every packet",
    "no_offload": "switch on scatter-gather and checksums of the device: ethtool -K DEV sg on tx on",
    "xdp_native": "detach the XDP program of the receiving device, or send plainly",
    "xdp": "detach the XDP program of the receiving device, or send plainly",
}
PLAINLY = "send plainly on this path"


@dataclass(frozen=True)
class Seen:
    """What the problems are found in."""

    run: Whole
    time: SideTime
    # All protocols together, in their order.
    buffers: Sequence[Buffers]

    def share(self, accounts: Sequence[str]) -> Share | None:
        """Of all CPU time; None: not known, or too few samples."""
        if too_few(self.run.raw, self.time) is not None:
            return None
        return share_of_accounts(self.run.derived.ledger, accounts, self.time)

    def added(self, key: str) -> int:
        return sum(getattr(row, key) or 0 for row in self.buffers)

    @property
    def elapsed_ns(self) -> int:
        """Buffers are followed between segments, too."""
        segments = self.run.raw.run.segments
        return segments[-1].end_ns - segments[0].begin_ns if segments else 0

    @property
    def waiting_share(self) -> float:
        """Several threads may wait at once."""
        return min(1.0, self.added("waited_ns") / self.elapsed_ns) if self.elapsed_ns > 0 else 0.0

    @property
    def waits_when_refused(self) -> bool:
        """It waits no more often than a send is refused: then ENOBUFS is why."""
        return 0 < self.added("waits") <= self.added("enobufs")

    @property
    def sends(self) -> int:
        """With MSG_ZEROCOPY or SEND_ZC, where the kernel took it."""
        return self.run.derived.zerocopy.sends if self.run.derived.zerocopy else 0

    @property
    def by_ring(self) -> int:
        """With SEND_ZC, of these."""
        return sum(row.zerocopy_calls for row in self.run.raw.volume if row.syscall == "io_uring")


def why(run: Whole, crossovers: Sequence[Found] | None = None) -> Why:
    """All problems, and one sentence that says it. `crossovers`: what was measured on this machine."""
    seen = Seen(run, side_times(run.raw)["target"], run.raw.buffers)
    if not seen.sends and not seen.added("flag_only_calls"):
        return Why("it sends nothing with MSG_ZEROCOPY or io_uring's SEND_ZC", [])
    found = [problem for find in PROBLEMS if (problem := find(seen)) is not None]
    found.sort(key=lambda one: -cost_of(one))
    return Why(found[0].what if found else _nothing(seen) + said_gain(run, crossovers or ()), found)


def cost_of(problem: Problem) -> float:
    """Of wall time or of CPU time, what is larger; 0 where neither is known."""
    return max(problem.wall_share or 0.0, problem.cpu.share if problem.cpu else 0.0)


def _nothing(seen: Seen) -> str:
    """Of a program without a problem."""
    price = seen.share(PRICE)
    cost = f"; pinning and notices take {price.spoken()} of its CPU time" if price is not None else ""
    return f"nothing is wrong: none of {counted(seen.sends, 'zero-copy send')} was copied{cost}"


def _copied(seen: Seen) -> Problem | None:
    known = seen.run.derived.zerocopy
    if known is None or not known.completions or (known.copied or 0) < WORTH_NAMING * known.completions:
        return None
    part = percent((known.copied or 0) / known.completions)
    cause = known.cause
    return _problem(
        "copied",
        f"the kernel copied {part} of its zero-copy sends after all",
        cause.sentence if cause else "cause not known",
        CHANGES.get(cause.code, PLAINLY) if cause else PLAINLY,
        cpu=seen.share(PRICE_OF_ZEROCOPY),
    )


def _silent(seen: Seen) -> Problem | None:
    """Notices say that nothing was copied, the samples say otherwise."""
    known, cost = seen.run.derived.zerocopy, seen.share(("silent",))
    if not cell(seen.run.derived.ledger, "silent") or cost is None or (cost.share or 0) < WORTH_NAMING:
        return None
    cause = known.cause if known else None
    return _problem(
        "silent",
        "its zero-copy sends are copied on the way, and notices do not say so",
        cause.sentence if cause else "cause not known",
        CHANGES.get(cause.code, PLAINLY) if cause else PLAINLY,
        cpu=cost,
    )


def _flag_only(seen: Seen) -> Problem | None:
    calls = sum(row.flag_only_calls for row in seen.buffers if row.protocol in TAKES_THE_OPTION)
    if not calls or calls < WORTH_NAMING * (calls + seen.sends):
        return None
    return _problem(
        "no_option",
        f"{counted(calls, 'send')} had MSG_ZEROCOPY on a socket without SO_ZEROCOPY: plain copies",
        "the kernel ignores the flag without the option, and says nothing",
        "setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) after socket() or accept()",
        cpu=seen.share(("copy_in",)),
    )


def _refused(seen: Seen) -> Problem | None:
    refused = seen.added("enobufs")
    part = refused / (refused + seen.sends) if refused else 0.0
    if part < REFUSED_WORTH_NAMING:
        return None
    flight = format_bytes(max(row.most_in_flight_bytes for row in seen.buffers))
    evidence = f"at most {flight} were in flight at once{_limits(seen)}"
    if seen.waits_when_refused:
        evidence += f"; it then waits for a notice: {percent(seen.waiting_share)} of the wall time"
    # Many programs send plainly what was refused.
    copies = seen.share(("copy_in",))
    return _problem(
        "enobufs",
        f"ENOBUFS: {percent(part)} of its sends with the flag were refused ({refused:,})",
        evidence,
        "raise RLIMIT_MEMLOCK or net.core.optmem_max, and read notices earlier",
        wall_share=seen.waiting_share if seen.waits_when_refused else None,
        cpu=copies if copies is not None and copies.low >= WORTH_NAMING else None,
    )


def _limits(seen: Seen) -> str:
    """Those that ENOBUFS comes from (msg_zerocopy.rst), as far as they are known."""
    target = seen.run.raw.watched
    limits = {
        "RLIMIT_MEMLOCK": target.memlock_limit_bytes,
        "net.core.optmem_max": target.optmem_limit_bytes,
    }
    said = [f"{name} is {format_bytes(limit)}" for name, limit in limits.items() if limit is not None]
    return "; " + ", ".join(said) if said else ""


def _waits(seen: Seen) -> Problem | None:
    waited_ns, waits, share = seen.added("waited_ns"), seen.added("waits"), seen.waiting_share
    if share < WORTH_NAMING or seen.waits_when_refused:
        return None
    each = format_ns(waited_ns / waits) if waits else "n/a"
    return _problem(
        "waits",
        f"it waits for notices: {percent(share)} of the wall time, {each} each",
        f"it slept {counted(waits, 'time')} until a notice came, and sent on only then",
        "keep several requests in flight, each with a buffer of its own"
        if seen.by_ring
        else "go on sending, in other buffers; read notices in batches, when many buffers are in flight",
        wall_share=share,
    )


def _late(seen: Seen) -> Problem | None:
    late = [row for row in seen.buffers if (at_most(row.latency.buckets, 0.5) or 0) >= LATE_NS]
    slow = seen.run.derived.verdict.limit.who == "peer"
    if not late or (not slow and _queued(seen, late[0])):
        return None
    p50, p99 = (format_ns(at_most(late[0].latency.buckets, part) or 0) for part in (0.5, 0.99))
    return _problem(
        "slow_peer" if slow else "late_ack",
        f"buffers come back late: {p50} after the send (p99 {p99})",
        "the peer reads slowly: connections wait for its window"
        if slow
        else "the kernel keeps a buffer until the peer acknowledges it, and acknowledgements are delayed",
        "use more buffers, so that none is waited for; the peer has to read faster"
        if slow
        else "use more buffers, so that none is waited for; TCP_QUICKACK on the peer",
    )


def _queued(seen: Seen, row: Buffers) -> bool:
    """Whether its buffers wait for others before them: a delayed acknowledgement holds back the last one.

    So many are on their way on average: what is sent per second, times how long each is (Little).
    """
    back_ns = at_most(row.latency.buckets, 0.5) or 0
    return row.sends * back_ns >= QUEUE * seen.elapsed_ns * max(1, seen.run.portrait.connections)


def _never_read(seen: Seen) -> Problem | None:
    back, read = seen.added("given_back_sends"), seen.added("read_sends")
    if back - read < max(UNREAD_SENDS, WORTH_NAMING * back):
        return None
    part = percent((back - read) / back)
    return _problem(
        "never_read",
        f"it never read the notices of {part} of its sends",
        "each unread notice stays in the socket and counts against net.core.optmem_max, until ENOBUFS",
        "recvmsg(fd, MSG_ERRQUEUE) until EAGAIN, now and then",
    )


def _one_by_one(seen: Seen) -> Problem | None:
    readings, read = seen.added("readings"), seen.added("read_sends")
    cost = seen.share(("completion",))
    if not readings or read / readings >= ALONE or cost is None or cost.low < WORTH_NAMING:
        return None
    return _problem(
        "one_by_one",
        f"it reads notices one by one: {read / readings:.1f} sends each",
        f"{counted(readings, 'call')} of recvmsg(MSG_ERRQUEUE); notices take {cost.spoken()} of its CPU time",
        "read them less often: the kernel joins notices that wait",
        cpu=cost,
    )


def _small(seen: Seen) -> Problem | None:
    sent = seen.run.portrait.send
    if sent is None or not seen.sends or sent.zerocopy_share < WORTH_NAMING:
        return None
    size = median_slot([[low, low * count] for low, count in sent.sizes])
    if size >= SMALL_BYTES:
        return None
    return _problem(
        "small",
        f"its sends are small: half of its bytes go in calls of {format_size(2 * size)} or less",
        "pinning and a notice cost the same for each send; below about 10 KB a copy is cheaper "
        "(msg_zerocopy.rst)",
        "MSG_ZEROCOPY for large sends only; copyscope crossover says from which size on",
        cpu=seen.share(PRICE),
    )


def _fields(seen: Seen) -> Problem | None:
    shapes = [
        row for row in seen.run.raw.shapes or [] if row.messages and row.syscall in ("sendmsg", "sendmmsg")
    ]
    buffers, messages = sum(row.buffers for row in shapes), sum(row.messages for row in shapes)
    sent = seen.run.portrait.send
    if not messages or sent is None or buffers / messages < ALONE or sent.zerocopy_share < WORTH_NAMING:
        return None
    field_bytes = sent.mean_bytes * messages / buffers
    if field_bytes >= SMALL_FIELD_BYTES:
        return None
    return _problem(
        "fields",
        f"each send has {buffers / messages:.1f} buffers of {format_bytes(round(field_bytes))} on average",
        "each buffer is pinned by itself, with whole pages however small it is",
        "gather small fields, or send them plainly (MSG_MORE) and only the large ones with MSG_ZEROCOPY",
        cpu=seen.share(("pin",)),
    )


def _header_body(seen: Seen) -> Problem | None:
    rows = [row for row in seen.run.raw.shapes or [] if row.messages]
    mixed, messages = sum(row.mixed for row in rows), sum(row.messages for row in rows)
    if mixed < WORTH_NAMING * messages or not mixed:
        return None
    return _problem(
        "header_body",
        f"{percent(mixed / messages)} of its sends have a small buffer beside a large one",
        f"a small buffer, such as a header, is pinned by itself, and a packet has {PACKET_REFERENCES} places",
        "send the header first, with MSG_MORE and without MSG_ZEROCOPY, then the body with it",
    )


def _unregistered(seen: Seen) -> Problem | None:
    calls, unregistered = seen.by_ring, total(seen.run.raw.run.segments, "target", "unregistered")
    cost, part = seen.share(("pin",)), min(1.0, unregistered / calls) if calls else 0.0
    if part < WORTH_NAMING or cost is None or (cost.share or 0) < WORTH_NAMING:
        return None
    return _problem(
        "unregistered",
        f"{percent(part)} of its SEND_ZC requests use memory that is not registered",
        f"the pages are pinned for each request: {counted(unregistered, 'request')}",
        "io_uring_register_buffers(), then io_uring_prep_send_zc_fixed() (IORING_RECVSEND_FIXED_BUF)",
        cpu=cost,
    )


def _protocol(seen: Seen) -> Problem | None:
    found = in_its_protocol(seen.run, WITHOUT_ZEROCOPY)
    if not found:
        return None
    return _problem("protocol", found[0].short, found[0].text, "send plainly: there is no zero-copy for it")


def _encrypted(seen: Seen) -> Problem | None:
    if not any(row.account == "encrypt" and (row.bytes or row.cpu_ns) for row in seen.run.derived.ledger):
        return None
    return _problem(
        "ktls",
        "kTLS: the cipher copies what it encrypts",
        "MSG_ZEROCOPY has no effect on a socket with kTLS",
        "a network card that encrypts (tls-hw-tx-offload), or sendfile with TLS_TX_ZEROCOPY_RO",
        cpu=seen.share(("encrypt",)),
    )


def _problem(
    code: str,
    what: str,
    evidence: str,
    change: str,
    *,
    wall_share: float | None = None,
    cpu: Share | None = None,
) -> Problem:
    known = None if cpu is None or cpu.share is None else Saving(cpu.share, cpu.low, cpu.high)
    return Problem(code, what, evidence, change, wall_share, known)


# In this order where none costs more.
PROBLEMS: tuple[Callable[[Seen], Problem | None], ...] = (
    *(_flag_only, _encrypted, _protocol, _refused, _waits, _copied, _silent, _late),
    *(_never_read, _one_by_one, _small, _fields, _header_body, _unregistered),
)
