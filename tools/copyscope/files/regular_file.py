"""Reading a file that somebody else may have put there: only a regular one, and only so much of it."""

import errno
import os
import stat
import zlib
from pathlib import Path

# Far more than any file of copyscope: a record is some 300 KB.
BYTES_MAX = 64 << 20
# zlib copies what it does not need of what it is given: of a short member that is almost all.
CHUNK_BYTES = 4096


def read(path: Path, most: int = BYTES_MAX) -> bytes:
    """Its bytes. Raises OSError with the name, also for what is no regular file, or too large."""
    # O_NONBLOCK: a FIFO without a writer opens at once, to be refused; a terminal does not become ours.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        if stat.S_ISDIR(kind):
            raise OSError(errno.EISDIR, "is a directory", str(path))
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with os.fdopen(handle, "rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return data


def gunzip(data: bytes, most: int = BYTES_MAX) -> bytes:
    """What is compressed in it. Raises zlib.error, EOFError where the data end early, OverflowError."""
    made, at, view = bytearray(), 0, memoryview(data)
    while at < len(data):
        part, at = member(view, at, most - len(made))
        made += part
    return bytes(made)


def member(data: memoryview, at: int, most: int = BYTES_MAX) -> tuple[bytes, int]:
    """What one member of gzip holds that begins there, and where it ends. Raises as gunzip()."""
    inflating, made = zlib.decompressobj(wbits=31), bytearray()  # gzip alone
    while not inflating.eof:
        chunk = data[at : at + CHUNK_BYTES]
        if not chunk:
            raise EOFError
        made += inflating.decompress(chunk, most + 1 - len(made))
        if len(made) > most:
            raise OverflowError
        at += len(chunk) - len(inflating.unconsumed_tail) - len(inflating.unused_data)
    return bytes(made), at
