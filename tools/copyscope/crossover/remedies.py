"""What could make a watched program copy less, one line for each remedy: its answer, and why. Pure.

An answer is `no` where something on the path or in the program takes the gain away (obstacles.py), where what
could be saved at most is little (the ceiling), or where a crossover of this machine says so; only where none
of these decides is a crossover asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from copyscope.crossover import obstacles
from copyscope.crossover.nearest import Question, Row, pays
from copyscope.crossover.obstacles import MOSTLY
from copyscope.crossover.relays import COPIES, IF_THE_SAME, relay_of
from copyscope.ledger.attribution import SideTime, side_times
from copyscope.ledger.headline import file_reads, share_of_rows
from copyscope.ledger.share import WORTH_SAYING, Share, TooFew, percent, share_of_samples, too_few
from copyscope.record.check import Whole
from copyscope.record.portrait import Direction
from copyscope.units import format_size

# Less of its CPU time than this is not worth a change of the program.
WORTH_TRYING = 0.05
# From here on the price of a call is spread over so many bytes that larger ones save next to nothing.
LARGE_BYTES = 65_536
COSTS_MORE = "it cost more than it saved here"

Answer = Literal["yes", "maybe", "no", "n/a"]


@dataclass(frozen=True)
class Remedy:
    """`why` fits a line beside the name. `most`: of its CPU time, what could be saved at most. `open`: a
    measured crossover would tell.
    """

    name: str
    answer: Answer
    why: str
    most: Share | None = None
    open: bool = False


@dataclass(frozen=True)
class Sends:
    """How a program sends, and what of it could be saved at most by zero-copy or sendfile.

    few: why nothing is said of its CPU time.
    """

    run: Whole
    size_bytes: int
    most: Share | None
    sent: Direction
    few: TooFew | None

    @property
    def reference_share(self) -> float:
        return reference_share(self.sent)


def reference_share(sent: Direction) -> float:
    """Of its bytes: pages of files, of its own memory, of a socket."""
    return sent.page_share + sent.memory_share + sent.socket_share


def remedies(sends: Sends, rows: Mapping[str, Row | None]) -> list[Remedy]:
    """All of them, in the order in which they are told; `rows`: the nearest crossover of each strategy."""
    return [
        _zerocopy(sends, rows.get("zero_copy")),
        _sendfile(sends, rows.get("sendfile")),
        *_splice(sends),
        _io_uring(sends),
        _larger(sends),
        _fewer_copies(sends),
    ]


def _zerocopy(sends: Sends, row: Row | None) -> Remedy:
    name = "MSG_ZEROCOPY"
    asked = Question("zero_copy", sends.size_bytes, sends.sent.zerocopy_share >= MOSTLY)
    if asked.used:
        return _zerocopy_in_use(sends, row, asked)
    if sends.reference_share >= MOSTLY:
        return Remedy(name, "no", "its bytes go by reference already")
    stoppers = obstacles.of_zerocopy(sends.run) + obstacles.in_its_protocol(sends.run)
    stoppers += obstacles.in_small_calls(sends.size_bytes)
    return _judged(name, asked, sends, row, most=sends.most, stoppers=stoppers)


def _zerocopy_in_use(sends: Sends, row: Row | None, asked: Question) -> Remedy:
    name, seen = "MSG_ZEROCOPY", sends.run.derived.zerocopy
    if seen is not None and seen.completions and (seen.copied or 0) / seen.completions >= MOSTLY:
        copied = percent((seen.copied or 0) / seen.completions)
        return Remedy(name, "no", f"in use, and {copied} of its sends are copied after all", sends.most)
    if sends.most is not None and sends.most.high < WORTH_TRYING:
        return Remedy(name, "yes", f"in use, and takes {sends.most.shown()}", sends.most)
    found = None if row is None else pays(row, asked, sends.run)
    if found is None:
        return Remedy(name, "maybe", f"in use; {_undecided(row)}", sends.most, open=row is None)
    why = "in use, and it pays on this path" if found else "in use, and costs more than it saves here"
    return Remedy(name, "yes" if found else "no", why, sends.most)


def _sendfile(sends: Sends, row: Row | None) -> Remedy:
    name, run = "sendfile", sends.run
    pages = sends.sent.page_share
    asked = Question("sendfile", sends.size_bytes, pages >= MOSTLY)
    if asked.used:
        return Remedy(name, "yes", f"in use: {percent(pages)} of its bytes go by reference")
    if sends.reference_share >= MOSTLY:
        return Remedy(name, "no", "its bytes go by reference already")
    if sends.sent.zerocopy_share >= MOSTLY:
        return Remedy(name, "no", "its bytes go with zero-copy already")
    time = _time(run)
    reads = None if sends.few else file_reads(run.raw.samples, time)
    if reads is not None and (reads.share or 0.0) < WORTH_SAYING and reads.high < WORTH_TRYING:
        return Remedy(name, "no", "it was not seen to read files, and sendfile sends those")
    most = sends.most
    if most is not None and reads is not None:
        most = share_of_samples(time, (most.share or 0.0) + (reads.share or 0.0))
    return _judged(name, asked, sends, row, most=most, stoppers=obstacles.of_pages(run))


def _splice(sends: Sends) -> list[Remedy]:
    """Only of a program that passes something on."""
    name, spliced = "splice", sends.sent.socket_share
    if spliced >= MOSTLY:
        return [Remedy(name, "yes", f"in use: {percent(spliced)} of its bytes go from socket to socket")]
    relay = relay_of(sends.run)
    if relay is None or relay.share < MOSTLY:
        return []
    unknown = Remedy(name, "maybe", f"{relay.amounts()}; what both copies cost was not sampled")
    words = f"spares both copies {IF_THE_SAME}; they take"
    return [_priced(unknown, words, time_share(sends.run, COPIES), sends.few)]


def _judged(
    name: str,
    asked: Question,
    sends: Sends,
    row: Row | None,
    *,
    most: Share | None,
    stoppers: Sequence[obstacles.Obstacle],
) -> Remedy:
    """By what stops it, by the most that it can save, by a crossover; else nobody knows yet."""
    if stoppers:
        return Remedy(name, "no", stoppers[0].short, most)
    ceiling = "what it saves is not known" if most is None else f"saves at most {_ceiling(most)}"
    if most is not None and most.high < WORTH_TRYING:
        return Remedy(name, "no", ceiling, most)
    found = None if row is None else pays(row, asked, sends.run)
    if found is None and sends.few is not None:
        return Remedy(name, "n/a", sends.few.briefly())
    if found is None:
        return Remedy(name, "maybe", f"{ceiling}; {_undecided(row)}", most, open=row is None)
    return Remedy(name, "yes", ceiling, most) if found else Remedy(name, "no", COSTS_MORE, most)


def _undecided(row: Row | None) -> str:
    return "a crossover would tell" if row is None else "crossover: undecided"


def _io_uring(sends: Sends) -> Remedy:
    """It spares no copy, only ways into the kernel and back."""
    name = "io_uring"
    ring = sends.sent.io_uring_share
    if ring >= MOSTLY:
        return Remedy(name, "yes", f"in use: {percent(ring)} of its bytes are sent by it")
    unknown = Remedy(name, "n/a", "the price of its system calls was not sampled")
    return _priced(unknown, "saves no copy; its system calls take", _entering(sends.run), sends.few)


def _larger(sends: Sends) -> Remedy:
    name = "larger sends"
    if sends.size_bytes >= LARGE_BYTES:
        return Remedy(name, "no", f"half of its bytes go in calls of {format_size(sends.size_bytes)} or more")
    small = f"calls of {format_size(2 * sends.size_bytes)} or less"
    unknown = Remedy(name, "maybe", f"{small}; the price of a call was not sampled")
    return _priced(unknown, f"{small}; these take", _entering(sends.run), sends.few)


def _fewer_copies(sends: Sends) -> Remedy:
    """Those that the program makes itself, before it sends and after it has received."""
    unknown = Remedy("fewer user copies", "n/a", "copies in the program itself were not sampled")
    return _priced(unknown, "its own copies take", time_share(sends.run, ("gather",)), sends.few)


def _priced(unknown: Remedy, words: str, most: Share | None, few: TooFew | None) -> Remedy:
    """By the share that it could save at most; `unknown` where that was not sampled."""
    if few is not None:
        return Remedy(unknown.name, "n/a", few.briefly())
    if most is None:
        return unknown
    answer: Answer = "no" if most.high < WORTH_TRYING else "maybe"
    # Of bounds alone no share is the most.
    known = None if most.share is None else most
    return Remedy(unknown.name, answer, f"{words} {most.shown()}", known)


def time_share(run: Whole, accounts: Sequence[str]) -> Share | None:
    """Some accounts' part of the program's CPU time, all contexts; None where that is not known."""
    rows = [row for row in run.derived.ledger if row.account in accounts and row.side == "target"]
    return share_of_rows(rows, _time(run))


def _entering(run: Whole) -> Share | None:
    """What its system calls themselves take; reading files is a copy that is counted to this stage."""
    time = _time(run)
    rows = [row for row in run.derived.stages if row.stage == "syscall" and row.side == "target"]
    if not time.weights.all_samples or any(row.share is None for row in rows):
        return None
    reads = file_reads(run.raw.samples, time)
    read = 0.0 if reads is None or reads.share is None else reads.share
    return share_of_samples(time, max(0.0, sum(row.share or 0.0 for row in rows) - read))


def _time(run: Whole) -> SideTime:
    return side_times(run.raw)["target"]


def _ceiling(most: Share) -> str:
    return most.shown().removeprefix("at most ")


def too_few_samples(run: Whole) -> TooFew | None:
    """Why nothing is said of its CPU time."""
    return too_few(run.raw, _time(run))
