# SPDX-License-Identifier: GPL-2.0-only
"""Facts about a watched program that the rules for findings use, all from the record of one run. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from copyscope.base.spelling import counted, format_bytes
from copyscope.judge.crossover_file import (
    SavedCrossover,
    SizeQuestion,
    Strategy,
    nearest_crossover,
    pays_off,
)
from copyscope.judge.servers import Server, Setting, server_of
from copyscope.ledger.attribution import SideTime, side_times
from copyscope.ledger.headline import share_of_accounts
from copyscope.ledger.share import (
    MENTIONED_SHARE_MIN,
    Share,
    TooFew,
    too_few,
    too_few_for_advice,
)
from copyscope.ledger.watched_program import median_bucket
from copyscope.record.portrait import Direction
from copyscope.record.run import Run
from copyscope.record.watched import Buffers, MessageShape, Relays, added, volume
from copyscope.taxonomy.accounts import LATE, SEND_COPIES, ZEROCOPY_PRICE

# Name of a placeholder in the texts of a finding -> the text that replaces it.
Facts = dict[str, str]

# Fraction (0..1) of bytes, peers or zero-copy sends above which texts say "most".
MOSTLY = 0.5
# Ratio of sends to receives above which each answer is taken to have several sends.
SEVERAL_SENDS = 1.5
# Minimum saving, as a share (0..1) of the CPU time, that is worth a change of the program.
WORTH_TRYING = 0.05
# Minimum mean size of the sends of a relay in bytes.
RELAY_BYTES_MIN = 1024
# Accounts of the work that MSG_ZEROCOPY causes in place of the copy into the kernel.
PRICE_OF_ZEROCOPY = (*ZEROCOPY_PRICE, *LATE)
# Libraries that encrypt or compress: a program that uses one does not send its files unchanged.
CHANGING_LIBRARIES = re.compile(r"lib(ssl|crypto|gnutls|nss3|z|zstd|brotli\w*)[.-]")
# Minimum fraction (0..1) of the user-mode samples in libraries that encrypt or compress, which shows that the
# program changes its data. Handshakes take less.
CHANGING_SHARE = 0.2


@dataclass(frozen=True)
class Evidence:
    """The facts of one run of a watched program.

    saved: saved crossovers of this machine, the newest file first
    """

    run: Run
    saved: Sequence[SavedCrossover] = ()

    @cached_property
    def sent(self) -> Direction | None:
        """Totals of the program's sends, or None if the program sent nothing."""
        return self.run.portrait.send

    @cached_property
    def size_bytes(self) -> int:
        """Size in bytes, a power of two or 0. Half of the bytes were sent in calls of at least this size."""
        return median_bucket([[low, low * count] for low, count in self.sent.sizes]) if self.sent else 0

    @cached_property
    def time(self) -> SideTime:
        """CPU time and sample weights of the program."""
        return side_times(self.run.raw)["target"]

    @cached_property
    def few_samples(self) -> TooFew | None:
        """Reason why shares are not known to ±5 points, or None if they are."""
        return too_few_for_advice(self.run.raw, self.time)

    @cached_property
    def is_thin(self) -> bool:
        """True if the samples support no share of CPU time at all."""
        return too_few(self.run.raw, self.time) is not None

    def undecided(self, saving: Share | None) -> TooFew | None:
        """Return why the samples do not tell whether a saving is worth a change, or None if they tell.

        An interval entirely above or below WORTH_TRYING is conclusive, for any number of samples.
        """
        if saving is not None and (saving.decisive_low >= WORTH_TRYING or saving.high < WORTH_TRYING):
            return None
        return self.few_samples

    @cached_property
    def server(self) -> Server:
        """The known server that matches the program."""
        return server_of(self.run.raw)

    def setting(self, name: Setting) -> str | None:
        """Return the program's own setting or call for a remedy, or None if the program lacks it."""
        settings = self.server.settings
        if name == "larger_sends" and self.sends_answers:
            name = "batched_answers"
        elif name == "larger_sends" and relay_of(self.run) is not None and "larger_relays" in settings:
            name = "larger_relays"
        return settings.get(name)

    # Ways in which the program sends its bytes.

    @property
    def by_zerocopy(self) -> bool:
        """True if the program sends most bytes with zero-copy."""
        return self.sent is not None and self.sent.zerocopy_share >= MOSTLY

    @property
    def by_pages(self) -> bool:
        """True if the program sends most bytes as pages of files."""
        return self.sent is not None and self.sent.page_share >= MOSTLY

    @property
    def by_reference(self) -> bool:
        """True if most bytes are sent as pages of files, of the program's memory or of a socket."""
        sent = self.sent
        return sent is not None and sent.page_share + sent.memory_share + sent.socket_share >= MOSTLY

    @property
    def sends_answers(self) -> bool:
        """True if each send answers a request, so that a larger buffer does not make sends larger.

        The two counts may differ, because a segment may begin between a request and its answer.
        """
        received = self.run.portrait.receive
        calls = self.sent.calls if self.sent else 0
        is_relay = relay_of(self.run) is not None
        return received is not None and calls < SEVERAL_SENDS * received.calls and not is_relay

    @property
    def sent_shapes(self) -> list[MessageShape]:
        """Shapes of the messages that each kind of send call sent."""
        return [row for row in self.run.raw.shapes or [] if row.messages]

    @property
    def shapes_by_bytes(self) -> Iterator[tuple[float, float, MessageShape]]:
        """Yield (part of the sent bytes, mean bytes per call, shape) for each kind of send call."""
        shapes = {(row.protocol, row.syscall): row for row in self.sent_shapes}
        if self.sent is None:
            return
        for call in self.sent.by_call:
            shape = shapes.get((call.protocol, call.syscall))
            if shape is not None:
                yield call.bytes / self.sent.bytes, call.bytes / call.calls, shape

    @property
    def has_local_peers(self) -> bool:
        """True if most of the known peers are on this machine."""
        local_share = self.run.portrait.local_share
        return local_share is not None and local_share > MOSTLY

    def share_by_protocol(self, protocols: Sequence[str]) -> float:
        """Return the fraction (0..1) of the sent bytes that went through some protocols."""
        rows = [row for row in volume(self.run.raw.volume, "send") if row.protocol in protocols]
        all_bytes = self.run.derived.tx_bytes
        return added(rows, lambda row: row.bytes) / all_bytes if all_bytes else 0.0

    # Shares of the CPU time.

    def share(self, accounts: Sequence[str]) -> Share | None:
        """Return the share of CPU time in some accounts, or None if it is unknown or has too few samples."""
        return None if self.is_thin else share_of_accounts(self.run.derived.ledger, accounts, self.time)

    @cached_property
    def zerocopy_saving(self) -> Share | None:
        """Share of the CPU time that zero-copy could save or, for a program with zero-copy, that it costs."""
        return self.share(PRICE_OF_ZEROCOPY if self.by_zerocopy else SEND_COPIES)

    @cached_property
    def reads(self) -> Share | None:
        """Share of the CPU time in reading files; None if samples are too few to tell if it reads any."""
        reads = self.share(("file_read",))
        is_seen = reads is not None and reads.low >= MENTIONED_SHARE_MIN
        return reads if is_seen or self.undecided(reads) is None else None

    @property
    def reads_files(self) -> bool:
        """True if reading files takes a measurable share of the CPU time."""
        return self.reads is not None and self.reads.low >= MENTIONED_SHARE_MIN

    @cached_property
    def tls(self) -> Share | None:
        """Share of the CPU time in the program's ciphers; None if it sends most bytes unencrypted.

        Most bytes are assumed to be encrypted if the ciphers take at least as much time as the copy into the
        kernel.
        """
        cipher, copied_in = (self.share(accounts) for accounts in (("user_encrypt",), SEND_COPIES))
        if cipher is None or cipher.low < MENTIONED_SHARE_MIN:
            return None
        return cipher if copied_in is None or cipher.high >= (copied_in.share or copied_in.low) else None

    @property
    def copies_files(self) -> bool:
        """True if the program reads files, and sends by calls that copy their data."""
        return self.reads_files and not self.by_reference and not self.by_zerocopy

    @property
    def changing_library(self) -> str | None:
        """Library that encrypts or compresses, if much of the time in user mode is in such libraries."""
        rows = [row for row in self.run.raw.user_code or [] if row.samples]
        changing = [row for row in rows if CHANGING_LIBRARIES.match(PurePath(row.file).name)]
        if not rows or sum(row.samples for row in changing) < CHANGING_SHARE * sum(
            row.samples for row in rows
        ):
            return None
        return PurePath(max(changing, key=lambda row: row.samples).file).name

    # Zero-copy sends and their notifications.

    @property
    def buffers(self) -> Sequence[Buffers]:
        """Life of the buffers of zero-copy sends, one row for each protocol."""
        return self.run.raw.buffers

    @property
    def elapsed_ns(self) -> int:
        """Time in ns from the start of the first segment to the end of the last.

        The time between segments is included, because the hooks follow buffers between segments, too.
        """
        segments = self.run.raw.run.segments
        return segments[-1].end_ns - segments[0].begin_ns if segments else 0

    @property
    def waiting_share(self) -> float:
        """Fraction (0..1) of the elapsed time in which threads slept until a notification came, at most 1."""
        waited_ns = sum(row.waited_ns for row in self.buffers)
        return min(1.0, waited_ns / self.elapsed_ns) if self.elapsed_ns > 0 else 0.0

    @property
    def waits_when_refused(self) -> bool:
        """True if the program waits at most as often as sends are refused, so ENOBUFS explains the waits."""
        return 0 < sum(row.waits for row in self.buffers) <= sum(row.enobufs for row in self.buffers)

    @property
    def zerocopy_sends(self) -> int:
        """Sends with MSG_ZEROCOPY or SEND_ZC that the kernel accepted as such."""
        return self.run.derived.zerocopy.sends if self.run.derived.zerocopy else 0

    @property
    def ring_sends(self) -> int:
        """Sends with SEND_ZC of io_uring."""
        return sum(row.zerocopy_calls for row in self.run.raw.volume if row.syscall == "io_uring")

    @property
    def copied_part(self) -> float | None:
        """Fraction (0..1) of the zero-copy sends that the kernel copied, or None if no notification came."""
        zerocopy = self.run.derived.zerocopy
        if zerocopy is None or not zerocopy.completions:
            return None
        return (zerocopy.copied or 0) / zerocopy.completions

    @property
    def zerocopy_works(self) -> bool:
        """True if zero-copy is in use and the kernel did not copy most of the sends."""
        return self.copied_part is not None and self.copied_part < 1 - MOSTLY

    # Crossovers of this machine.

    @cached_property
    def questions(self) -> list[SizeQuestion]:
        """Questions for crossovers: about the strategy in use or, if there is none, about possible ones."""
        size_bytes = self.size_bytes
        if self.by_zerocopy:
            return [SizeQuestion("zero_copy", size_bytes, True)]
        if self.tls is not None:
            return []
        if self.by_reference:
            # No crossover measures sends of a program's own memory, or of another socket's bytes, by
            # reference.
            return [SizeQuestion("sendfile", size_bytes, True)] if self.by_pages else []
        strategies: dict[Strategy, Setting] = {"zero_copy": "zerocopy", "sendfile": "sendfile"}
        return [
            SizeQuestion(strategy, size_bytes, False)
            for strategy, setting in strategies.items()
            if self.setting(setting) is not None
        ]

    @cached_property
    def crossovers(self) -> dict[Strategy, SavedCrossover | None]:
        """For each strategy in question, the saved crossover whose settings most resemble the program's."""
        strategies = [question.strategy for question in self.questions]
        return {strategy: nearest_crossover(self.saved, self.run, strategy) for strategy in strategies}

    def pays_off(self, strategy: Strategy | None) -> bool | None:
        """Return True if a crossover shows that a strategy pays off, or None if no crossover tells."""
        for question in self.questions:
            row = self.crossovers[question.strategy]
            if question.strategy == strategy and row is not None:
                return pays_off(row, question, self.run)
        return None

    def lacks_crossover(self, strategy: Strategy | None) -> bool:
        return strategy is None or self.crossovers.get(strategy) is None

    def crossover_note(self, strategy: Strategy) -> str:
        """Return a note for a strategy whose crossover is missing or inconclusive."""
        return "measure a crossover" if self.lacks_crossover(strategy) else "crossover: undecided"


def is_worth_trying(share: Share) -> bool:
    """Return True if a saving is large enough to change the program.

    If only the bounds of the share are known, the upper bound is used.
    """
    if share.share is None:
        return share.high >= WORTH_TRYING
    return share.share >= WORTH_TRYING and share.low >= MENTIONED_SHARE_MIN


@dataclass(frozen=True)
class Relay:
    """Bytes that threads received and sent in similar amounts, as a relay does.

    share: fraction (0..1) of the bytes that the program sent while its calls were timed
    """

    totals: Relays
    share: float

    def amounts(self) -> str:
        received = format_bytes(self.totals.received_bytes)
        return f"received {received} and sent {format_bytes(self.totals.sent_bytes)}"

    def sentence(self, price: str) -> str:
        """Return advice about splice(2).

        price: a clause about the cost of both copies
        """
        threads = counted(self.totals.threads, "thread")
        return (
            f"{threads} {self.amounts()} by calls that copy (in the calls segments): if the program forwards "
            f"the bytes unchanged, splice(2) would save both copies; {price}."
        )


def relay_of(run: Run) -> Relay | None:
    """Return the bytes that the program relays, or None if no thread relays or no system call was timed.

    A server with short answers also receives and sends similar amounts, so a relay must also send large
    pieces.
    """
    totals, sent = run.raw.relays, run.portrait.send
    if not totals or not totals.threads or sent is None or sent.mean_bytes < RELAY_BYTES_MIN:
        return None
    sent_bytes = added(volume(run.raw.volume, "send", "calls"), lambda row: row.bytes)
    # The share is limited to 1, because the hooks are attached a little longer than the segment lasts.
    return Relay(totals, min(1.0, totals.sent_bytes / sent_bytes)) if sent_bytes else None
