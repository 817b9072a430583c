"""Why a program that reads files and sends them does so without sendfile(2), where that can be seen. Pure.

What is recorded: time in ciphers, calls of sendfile(2) and splice(2) that moved nothing, pages of files that
these copied. Of all else `may` is said.
"""

import errno
from dataclasses import dataclass

from copyscope.judge.servers import Server
from copyscope.ledger.share import WORTH_SAYING, Share
from copyscope.record.measured import Measured
from copyscope.units import counted

# Of a file system without pages to pass on: sendfile(2) and splice(2) read into pages of their own.
SPLICED_BY_COPY = "copy_splice_read"


@dataclass(frozen=True)
class Fallback:
    """`short` fits a line beside the remedy; `stops`: sendfile would not help, as it is now."""

    short: str
    text: str
    stops: bool = True


def tls_of(cipher: Share | None, copied_in: Share | None) -> Share | None:
    """The time in ciphers, where most of what is sent is encrypted: a cipher takes no less than a copy."""
    if cipher is None or cipher.low < WORTH_SAYING:
        return None
    return cipher if copied_in is None or cipher.high >= (copied_in.share or copied_in.low) else None


def of_files(raw: Measured, server: Server, cipher: Share | None) -> Fallback | None:
    """Of a program that was seen to read files, and to send by calls that copy. `cipher`: as tls_of()."""
    if cipher is not None:
        also = f": {server.over_tls}" if server.over_tls else ""
        text = (
            "TLS in the program keeps it from sendfile: its cipher takes "
            f"{cipher.spoken()} of its CPU time, and no page of a file leaves as it is{also}"
        )
        return Fallback(f"TLS in the program: its cipher takes {cipher.shown()}", text)
    if refused := _moved_nothing(raw):
        return Fallback(refused, f"{refused}, and what it sent went by calls that copy instead")
    if any(row.symbol == SPLICED_BY_COPY and row.side == "target" for row in raw.samples):
        text = (
            f"sendfile and splice copy from this file system ({SPLICED_BY_COPY}): it has no pages to pass on"
        )
        return Fallback("this file system has no pages to pass on: a copy", text)
    if server.hidden is not None:
        return Fallback("", f"sendfile is not in use: {server.hidden}", stops=False)
    return None


def _moved_nothing(raw: Measured) -> str:
    """`3 calls of sendfile moved nothing: EINVAL`; empty: none was to a socket while calls were timed,
    or they work.
    """
    tried = [row for row in raw.calls if row.side == "target" and row.syscall in ("sendfile", "splice")]
    tried = [row for row in tried if row.calls]
    if not tried or any(row.bytes for row in tried):
        return ""
    calls = " and ".join(f"{counted(row.calls, 'call')} of {row.syscall}" for row in tried)
    named = [errno.errorcode.get(row.last_errno, str(row.last_errno)) for row in tried if row.last_errno]
    return f"{calls} moved nothing: {' and '.join(dict.fromkeys(named)) or 'refused'}"
