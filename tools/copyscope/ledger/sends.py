"""What was sent, how, and what came back: by our own sender's books, or by a program's sockets. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from copyscope.record.hooks import ABSENT, find
from copyscope.record.instruments import Hook
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import measured, select, spliced_total, total, zerocopy_total
from copyscope.record.volume import BY_REFERENCE, added, volume


@dataclass(frozen=True)
class Sends:
    """Of some segments. Pages are those of files, pipes and vmsplice(2), which nobody gives back.

    calls: that took something; of pages the socket sees one for each pipe full of them
    completions: zero-copy sends that were given back, of these `copied` with the flag
    copied_bytes: None: the flag is of sends, nobody counts their bytes
    untold: of io_uring, which says whether it copied only where a send asks for it
    """

    bytes: int
    calls: int
    zerocopy: int
    zerocopy_bytes: int
    pages: int
    page_bytes: int
    completions: int
    copied: int
    copied_bytes: int | None
    notifications: int
    unseen: int = 0
    untold: int = 0

    @property
    def referenced_bytes(self) -> int:
        """With zero-copy or as pages. Of TCP the kernel takes them by reference whatever the device can do
        (sk_setup_caps(), net/core/sock.c)."""
        return self.zerocopy_bytes + self.page_bytes

    @property
    def reported_bytes(self) -> int | None:
        """Copied later than the call, as the kernel reported; None: no report says it.

        The flag is per send: bytes follow exactly where all sends or none carried it.
        """
        if self.copied_bytes is not None or not self.zerocopy:
            return self.copied_bytes or 0
        if not self.completions or self.untold > self.completions:
            return None
        # The two totals are read one after the other: a completion may come in between.
        return round(min(1.0, self.copied / self.completions) * self.zerocopy_bytes)

    @property
    def uncopied_bytes(self) -> int:
        """Referenced, and no completion reports them as copied: silent copies, and none at all."""
        return max(0, self.referenced_bytes - (self.reported_bytes or 0))


def sends_of(raw: Measured, phase: str | None = None) -> Sends:
    """Of one phase, or of all that was measured."""
    if raw.target is None:
        segments = raw.run.segments
        return own_sends(measured(segments) if phase is None else select(segments, phase))
    sent = volume(raw.volume, "send", phase)
    pages = [row for row in sent if row.syscall in BY_REFERENCE]
    segments = raw.run.segments if phase is None else select(raw.run.segments, phase)
    return Sends(
        bytes=added(sent, "bytes"),
        calls=added(sent, "calls"),
        zerocopy=added(sent, "zerocopy_calls"),
        zerocopy_bytes=added(sent, "zerocopy_bytes"),
        pages=added(pages, "calls"),
        page_bytes=added(pages, "bytes"),
        copied_bytes=None,
        **{
            key: total(segments, "target", key)
            for key in ("completions", "copied", "notifications", "unseen", "untold")
        },
    )


def own_sends(segments: list[Segment]) -> Sends:
    """By the totals of our own sender."""
    pages, refused = spliced_total(segments, "calls") or 0, zerocopy_total(segments, "enobufs") or 0
    return Sends(
        bytes=total(segments, "sender", "bytes"),
        calls=total(segments, "sender", "calls") - total(segments, "sender", "eagain") - refused,
        zerocopy=zerocopy_total(segments, "sends") or 0,
        zerocopy_bytes=zerocopy_total(segments, "bytes_sent") or 0,
        pages=pages,
        page_bytes=spliced_total(segments, "bytes") or 0,
        completions=zerocopy_total(segments, "completions") or 0,
        copied=zerocopy_total(segments, "copied") or 0,
        copied_bytes=zerocopy_total(segments, "bytes_copied") or 0,
        notifications=zerocopy_total(segments, "notifications") or 0,
    )


def why_no_completions(hooks: Iterable[Hook]) -> str | None:
    """Why the error queues of a watched program's sockets were not looked at; None where they were."""
    hook = find(hooks, "completion")
    if hook is None:
        return "no such hook"
    return f"{hook.symbol}: {hook.reason}" if hook.state in ABSENT else None
