"""What could make a watched program copy less, what stands in its way, and what it may save. Pure.

A line for each remedy: its answer, and why. An answer is `no` where the program cannot do it (servers.py),
where something on the path or in the program takes the gain away, where there is no sign of what it would
save, or where a crossover of this machine says so; only where none of these decides is a crossover asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from copyscope.judge.crossover_file import Found, Question, Strategy, pays
from copyscope.judge.fallbacks import Fallback, of_files, tls_of
from copyscope.judge.obstacles import (
    MOSTLY,
    Obstacle,
    in_its_protocol,
    in_small_calls,
    of_pages,
    of_zerocopy,
)
from copyscope.judge.servers import Server, changed_by, server_of
from copyscope.ledger.attribution import SideTime, side_times
from copyscope.ledger.headline import share_of_accounts
from copyscope.ledger.portrait import median_slot
from copyscope.ledger.share import (
    WORTH_SAYING,
    Share,
    TooFew,
    percent,
    share_of_all,
    too_few_for_advice,
)
from copyscope.record.check import Whole
from copyscope.record.portrait import Direction
from copyscope.record.watched import Relays, added, volume
from copyscope.units import counted, format_bytes, format_size

# Less of its CPU time than this is not worth a change of the program.
WORTH_TRYING = 0.05
# From here on the price of a call is spread over so many bytes that larger ones save next to nothing.
LARGE_BYTES = 65_536
# Of plaintext in a record of TLS, at most (RFC 8446, 5.1).
RECORD_BYTES = 16_384
# What splice(2) does without.
COPIES = ("copy_in", "copy_out")
BY_REFERENCE = "its bytes go by reference already"
BOTH_COPIES = "both copies,"
IN_TLS = "TLS in the program: what it sends is its cipher's"
TLS_MODULE = "it needs the kernel's tls module, and an OpenSSL that was built for it"
IF_THE_SAME = "if it passes on what it receives as it is"
# What stands for the saved copy when a program sends with MSG_ZEROCOPY.
PRICE_OF_ZEROCOPY = ("pin", "deferred", "silent", "completion")

Answer = Literal["yes", "maybe", "no", "n/a"]


@dataclass(frozen=True)
class Remedy:
    """`why` fits a line beside the name. `most`: of its CPU time, what could be saved at most. `open`: a
    measured crossover would tell. `how`: the setting or call, in the program's own words.
    """

    name: str
    answer: Answer
    why: str
    most: Share | None = None
    open: bool = False
    how: str | None = None


@dataclass(frozen=True)
class Sends:
    """How a program sends.

    size_bytes: the size of call that half of the bytes go through: the lower end of its power of two
    few: why nothing is said of its CPU time
    """

    run: Whole
    sent: Direction
    size_bytes: int
    time: SideTime
    few: TooFew | None
    server: Server

    @property
    def by_zerocopy(self) -> bool:
        return self.sent.zerocopy_share >= MOSTLY

    @property
    def by_reference(self) -> bool:
        """Pages of files, of its own memory, of a socket."""
        return self.sent.page_share + self.sent.memory_share + self.sent.socket_share >= MOSTLY

    @property
    def most(self) -> Share | None:
        """Of its CPU time, what zero-copy could save; of who uses it, what that costs."""
        return None if self.few else self.share(PRICE_OF_ZEROCOPY if self.by_zerocopy else ("copy_in",))

    @property
    def reads(self) -> Share | None:
        """Of its CPU time, what it takes to read files; None where that is not known."""
        return None if self.few else self.share(("file_read",))

    @property
    def tls(self) -> Share | None:
        """Of its CPU time, that in ciphers, where most of what it sends is encrypted in the program."""
        return None if self.few else tls_of(self.share(("user_encrypt",)), self.share(("copy_in",)))

    @property
    def could_zerocopy(self) -> bool:
        """Whether it has that call; what a library encrypts is in memory of that library."""
        return self.server.zerocopy is not None and self.tls is None

    @property
    def fallback(self) -> Fallback | None:
        """Why it reads files and sends by calls that copy; None where it does not, or nothing says why."""
        if self.by_reference or self.by_zerocopy or self.reads is None or self.reads.low < WORTH_SAYING:
            return None
        return of_files(self.run.raw, self.server, self.tls)

    @property
    def answers(self) -> bool:
        """Whether a call is an answer, which no larger buffer makes longer. A relay sends pieces."""
        received = self.run.portrait.receive
        return received is not None and self.sent.calls <= received.calls and relay_of(self.run) is None

    @property
    def from_files(self) -> float:
        """At most this part of what it copies into the kernel was in files; all where that is not counted."""
        read, copied = (
            sum(row.bytes or 0 for row in self.run.derived.ledger if (row.account, row.side) == key)
            for key in (("file_read", "target"), ("copy_in", "target"))
        )
        return min(1.0, read / copied) if read and copied else 1.0

    def share(self, accounts: Sequence[str]) -> Share | None:
        """Some accounts' part of the program's CPU time, all contexts; None where that is not known."""
        return share_of_accounts(self.run.derived.ledger, accounts, self.time)


def sends_of(run: Whole, sent: Direction) -> Sends:
    size_bytes = median_slot([[low, low * count] for low, count in sent.sizes])
    time = side_times(run.raw)["target"]
    return Sends(run, sent, size_bytes, time, too_few_for_advice(run.raw, time), server_of(run.raw))


def remedies(sends: Sends, rows: Mapping[Strategy, Found | None]) -> list[Remedy]:
    """All of them, those that help first; `rows`: the nearest crossover of each strategy."""
    found = [
        _sendfile(sends, rows.get("sendfile")),
        _zerocopy(sends, rows.get("zero_copy")),
        *_ktls(sends),
        *_splice(sends),
        _io_uring(sends),
        _larger(sends),
        _fewer_copies(sends),
    ]
    return sorted(found, key=lambda one: ("yes", "maybe", "n/a", "no").index(one.answer))


def _zerocopy(sends: Sends, row: Found | None) -> Remedy:
    name, how, most = "MSG_ZEROCOPY", sends.server.zerocopy, sends.most
    asked = Question("zero_copy", sends.size_bytes, sends.by_zerocopy)
    if asked.used:
        return _zerocopy_in_use(sends, row, asked)
    if how is None or sends.by_reference:
        return Remedy(name, "no", BY_REFERENCE if sends.by_reference else sends.server.cannot())
    if sends.tls is not None:
        return Remedy(name, "no", IN_TLS, most)
    stoppers = of_zerocopy(sends.run) + in_its_protocol(sends.run) + in_small_calls(sends.size_bytes)
    found = None if row is None else pays(row, asked, sends.run)
    decided = _decided(sends, name, most, stoppers, pays_here=found)
    if decided is not None:
        return decided
    # Its name stands before it.
    saves = _saves(how, most).removeprefix(f"`{name}` ")
    if found:
        return Remedy(name, "yes", saves, most, how=how)
    return Remedy(name, "maybe", f"{saves}; {_undecided(row)}", most, open=row is None, how=how)


def _zerocopy_in_use(sends: Sends, row: Found | None, asked: Question) -> Remedy:
    name, seen = "MSG_ZEROCOPY", sends.run.derived.zerocopy
    if seen is not None and seen.completions and (seen.copied or 0) / seen.completions >= MOSTLY:
        copied = percent((seen.copied or 0) / seen.completions)
        return Remedy(name, "no", f"in use, but {copied} of its sends are copied after all", sends.most)
    if sends.most is not None and sends.most.high < WORTH_TRYING:
        return Remedy(name, "yes", f"in use, and takes {sends.most.shown()}", sends.most)
    found = None if row is None else pays(row, asked, sends.run)
    if found is None:
        return Remedy(name, "maybe", f"in use; {_undecided(row)}", sends.most, open=row is None)
    why = "in use, and it pays on this path" if found else "in use, and costs more than it saves here"
    return Remedy(name, "yes" if found else "no", why, sends.most)


def _sendfile(sends: Sends, row: Found | None) -> Remedy:
    """It saves both copies of a file; whether that is more than it costs itself only a crossover says."""
    name, how = "sendfile", sends.server.sendfile
    asked = Question("sendfile", sends.size_bytes, sends.sent.page_share >= MOSTLY)
    if asked.used:
        return Remedy(name, "yes", f"in use: {percent(sends.sent.page_share)} of its bytes go by reference")
    if how is None:
        return Remedy(name, "no", sends.server.cannot())
    if (why := _no_files(sends)) is not None:
        return Remedy(name, "no", why)
    most = _both_copies(sends)
    if sends.fallback is not None and sends.fallback.stops:
        return Remedy(name, "no", sends.fallback.short, most)
    found = None if row is None else pays(row, asked, sends.run)
    decided = _decided(sends, name, most, of_pages(sends.run), pays_here=found)
    if decided is not None:
        return decided
    saves, library = _saves(how, most, BOTH_COPIES), changed_by(sends.run.raw)
    sure = sends.server.serves_files and library is None and found
    but = "" if library is None else f", but not of what {library} changes"
    return Remedy(name, "yes" if sure else "maybe", f"{saves}{but}", most, how=how)


def _both_copies(sends: Sends) -> Share | None:
    """Of what it reads in files, that copy and the one into the kernel."""
    most, reads = sends.most, sends.reads
    if most is None or reads is None:
        return most
    return share_of_all(sends.time, (most.share or 0.0) * sends.from_files + (reads.share or 0.0))


def _ktls(sends: Sends) -> list[Remedy]:
    """Only of a program that encrypts: the cipher stays, and is the only copy."""
    name, how = "kTLS", sends.server.ktls
    if sends.tls is None:
        return []
    if how is None:
        return [Remedy(name, "no", sends.server.cannot())]
    most = _both_copies(sends)
    copies = BOTH_COPIES if sends.fallback is not None else "the copy,"
    unknown = Remedy(name, "maybe", f"{how}; what the copies cost was not sampled", how=how)
    saves = f"{_saves(how, most, copies)}: the cipher is the only copy then; {TLS_MODULE}"
    return [_priced(sends, unknown, most, saves, "the copies beside its cipher take")]


def _no_files(sends: Sends) -> str | None:
    """Why there is no file that it copies in order to send it."""
    if sends.by_reference:
        return BY_REFERENCE
    if sends.by_zerocopy:
        return "its bytes go with zero-copy already"
    if sends.reads is not None and sends.reads.low < WORTH_SAYING:
        return "it was not seen to read files; mapped ones do not show"
    return None


def _splice(sends: Sends) -> list[Remedy]:
    """Only of a program that passes something on."""
    name, spliced = "splice", sends.sent.socket_share
    if spliced >= MOSTLY:
        return [Remedy(name, "yes", f"in use: {percent(spliced)} of its bytes go from socket to socket")]
    relay, how = relay_of(sends.run), sends.server.splice
    if relay is None or relay.share < MOSTLY:
        return []
    if sends.tls is not None:
        return [Remedy(name, "no", IN_TLS)]
    if how is None:
        return [Remedy(name, "no", sends.server.cannot())]
    most = sends.share(COPIES)
    unknown = Remedy(name, "maybe", f"{relay.amounts()}; what both copies cost was not sampled", how=how)
    return [_priced(sends, unknown, most, _saves(how, most, BOTH_COPIES), "both copies take")]


def _decided(
    sends: Sends, name: str, most: Share | None, stoppers: Sequence[Obstacle], *, pays_here: bool | None
) -> Remedy | None:
    """By what stops it, by the most that it can save, by a crossover; None where none of them says no."""
    if stoppers:
        return Remedy(name, "no", stoppers[0].short, most)
    if most is not None and not is_worth_trying(most):
        return Remedy(name, "no", f"saves at most {most.shown().removeprefix('at most ')}", most)
    if pays_here is False:
        return Remedy(name, "no", "it cost more than it saved here", most)
    if pays_here is None and sends.few is not None:
        return Remedy(name, "n/a", sends.few.briefly())
    return None


def _saves(how: str, most: Share | None, what: str = "up to") -> str:
    """what: of more than a bound: what goes is known, not what comes instead, or goes with it."""
    if most is None:
        return f"{how}: what it saves is not known"
    return f"{how} saves {what} {most.shown().removeprefix('at most ')}"


def _undecided(row: Found | None) -> str:
    return "a crossover would tell" if row is None else "crossover: undecided"


def is_worth_trying(share: Share) -> bool:
    """Whether there is a sign that it takes enough to save something; of bounds alone, whether it may."""
    if share.share is None:
        return share.high >= WORTH_TRYING
    return share.share >= WORTH_TRYING and share.low >= WORTH_SAYING


def _io_uring(sends: Sends) -> Remedy:
    """It saves no copy, only ways into the kernel and back."""
    name, how = "io_uring", sends.server.io_uring
    ring = sends.sent.io_uring_share
    if ring >= MOSTLY:
        return Remedy(name, "yes", f"in use: {percent(ring)} of its bytes are sent by it")
    if how is None:
        return Remedy(name, "no", sends.server.cannot())
    most = _entering(sends)
    unknown = Remedy(name, "n/a", "the cost of its system calls was not sampled", how=how)
    saves = "" if most is None else f"saves no copy; at most the {most.shown()} in system calls"
    return _priced(sends, unknown, most, saves, "saves no copy; system calls take")


def _larger(sends: Sends) -> Remedy:
    """It saves system calls, and work for each packet, which nothing tells from work for each byte."""
    name, how = "larger sends", sends.server.together if sends.answers else sends.server.larger
    if sends.by_reference:
        return Remedy(name, "no", BY_REFERENCE)
    if sends.size_bytes >= LARGE_BYTES:
        size = format_size(sends.size_bytes)
        return Remedy(name, "no", f"half of its bytes go in calls of {size} or more")
    if sends.tls is not None and sends.size_bytes >= RECORD_BYTES // 2:
        return Remedy(name, "no", "a record of TLS has 16 KiB at most, and is a send")
    if how is None:
        answers = "it sends no more often than it receives: a message is a call"
        return Remedy(name, "no", answers if sends.answers else sends.server.cannot())
    most = _entering(sends)
    unknown = Remedy(name, "maybe", f"{how}; the cost of a call was not sampled", how=how)
    return _priced(sends, unknown, most, _saves(how, most, "calls,"), "its system calls take")


def _fewer_copies(sends: Sends) -> Remedy:
    """Those that the program makes itself, before it sends and after it has received."""
    name, how, most = "fewer user copies", sends.server.fewer, sends.share(("gather",))
    unknown = Remedy(name, "n/a", "copies in the program itself were not sampled", how=how)
    if how is None and most is not None and most.share is not None and is_worth_trying(most):
        return Remedy(name, "no", f"its own copies take {most.shown()}; {sends.server.cannot()}", most)
    if most is not None and most.share is None and most.low < WORTH_SAYING and is_worth_trying(most):
        unseen = f"its own copies take {most.shown()}: much of its code has no names"
        return Remedy(name, "n/a", sends.few.briefly() if sends.few else unseen)
    return _priced(sends, unknown, most, _saves(how or "", most), "its own copies take")


def _priced(sends: Sends, unknown: Remedy, most: Share | None, saves: str, takes: str) -> Remedy:
    """By the share that it could save at most; `unknown` where that was not sampled."""
    name = unknown.name
    if sends.few is not None:
        return Remedy(name, "n/a", sends.few.briefly())
    if most is None:
        return unknown
    # Of bounds alone no share is the most.
    known = None if most.share is None else most
    if not is_worth_trying(most):
        return Remedy(name, "no", f"{takes} {most.shown()}", known)
    return Remedy(name, "maybe", saves, known, how=unknown.how)


def _entering(sends: Sends) -> Share | None:
    """What its system calls themselves take."""
    run, time = sends.run, sends.time
    rows = [row for row in run.derived.stages if row.stage == "syscall" and row.side == "target"]
    if not time.weights.all_samples or any(row.share is None for row in rows):
        return None
    return share_of_all(time, sum(row.share or 0.0 for row in rows))


@dataclass(frozen=True)
class Relay:
    """share: of all that the program sent while its calls were timed."""

    found: Relays
    share: float

    def amounts(self) -> str:
        received, sent = (format_bytes(n) for n in (self.found.received_bytes, self.found.sent_bytes))
        return f"received {received} and sent {sent}"

    def sentence(self, both: str) -> str:
        """both: what the two copies take of its CPU time."""
        threads = counted(self.found.threads, "thread")
        return (
            f"{threads} {self.amounts()} by calls that copy (calls segments): {IF_THE_SAME}, splice(2) would "
            f"save both copies; {both}."
        )


def relay_of(run: Whole) -> Relay | None:
    """None where no thread passes anything on, or no calls were timed."""
    found = run.raw.relays
    if not found or not found.threads:
        return None
    sent = added(volume(run.raw.volume, "send", "calls"), "bytes")
    # Hooks come before a segment begins and go after it ends.
    return Relay(found, min(1.0, found.sent_bytes / sent)) if sent else None
