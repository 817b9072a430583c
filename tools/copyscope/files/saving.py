"""How a file of results is written: whole or not at all, through nobody's link, and the invoking user's.

A regular file is replaced in one step (rename(2)). What is none (a device, a FIFO, our own standard output)
is written through: to replace it would take it from everybody else. That is done only where it is root's or
the caller's, for who has a FIFO gets what is written into it, and who reads it may take for ever. As root no
link is followed that stands in a directory where others can make one (as fs.protected_symlinks of proc(5)
does for /tmp), and only what is made here is given to the user who called sudo, by its descriptor.
"""

import errno
import os
import secrets
import select
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

MOST_LINKS = 40  # as the kernel: MAXSYMLINKS
FOREIGN_LINK = "is a link in a directory that others can write: root does not follow it: give what it names"
NOBODY_READS = "this FIFO has no reader: start the reader first"
FOREIGN = "belongs to another user, who could read what is written: use your own file"
READS_NO_MORE = "its reader has taken nothing for {:g} s"
# So long a reader that is started at the same time may take, and one that reads between two pieces.
READER_S = 1.0
PIECE_S = 5.0
# Of what a FIFO takes when it takes anything (pipe(7), PIPE_BUF).
PIECE_BYTES = 4096
UID_MAX = 2**32 - 2  # the one above says nobody to chown(2)
LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def invoking_ids(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """(uid, gid) of the user who called sudo; None without sudo."""
    environment = os.environ if environment is None else environment
    uid, gid = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    return (int(uid), int(gid)) if _is_id(uid) and _is_id(gid) else None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= UID_MAX


def save(path: Path, data: bytes) -> None:
    """Write a file. Raises OSError with the name of the file in it."""
    with _naming(path), _opened(path.parent) as directory:
        _save_in(directory, path, data, MOST_LINKS)


def check(path: Path) -> None:
    """Whether save() could write there, by trying it under another name. Raises OSError as save() does."""
    with _naming(path), _opened(path.parent) as directory:
        found = _look(directory, path.name or ".")
        if found is None or stat.S_ISREG(found.st_mode):
            handle, temporary = _make_temporary(directory)
            os.close(handle)
            os.unlink(temporary, dir_fd=directory)
        elif stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        elif stat.S_ISLNK(found.st_mode) and not _may_follow(directory):
            raise OSError(errno.ELOOP, FOREIGN_LINK)
        elif not stat.S_ISLNK(found.st_mode):
            _refuse_foreign(found)


def make_directory(path: Path) -> None:
    """It and its parents, as far as they are missing: those are the invoking user's, the others stay."""
    with _naming(path), _opened(path, make=True):
        pass


def give_directory(path: Path) -> None:
    """A directory that we made becomes the invoking user's."""
    with _naming(path), _opened(path) as directory:
        _give_directory(directory)


def open_to_append(path: Path) -> IO[bytes]:
    """A regular file to be read and added to, made if need be; no link, whoever made it."""
    with _naming(path), _opened(path.parent) as directory:
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(path.name, flags, dir_fd=directory)
        except FileNotFoundError:
            handle = os.open(path.name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=directory)
            _give(handle)
        found = os.fstat(handle)
        # A second name of somebody else's file is a link, too.
        if not stat.S_ISREG(found.st_mode) or (os.geteuid() == 0 and found.st_nlink > 1):
            os.close(handle)
            raise OSError(errno.EINVAL, "not a regular file, or it has a second name: remove it")
        return os.fdopen(handle, "ab+")


def append(path: Path, data: bytes, *, lines: bool = False) -> None:
    """Add to a file, on the disk when this returns. Raises OSError; the file is then as it was.

    In a file of `lines` what a kill has left of the last one stays alone.
    """
    with open_to_append(path) as stream, _naming(path):
        before = stream.seek(0, os.SEEK_END)
        if lines and before and os.pread(stream.fileno(), 1, before - 1) != b"\n":
            data = b"\n" + data
        try:
            _write_all(stream.fileno(), data)
            os.fsync(stream.fileno())
        except OSError:
            os.truncate(stream.fileno(), before)
            raise


def _save_in(directory: int, path: Path, data: bytes, links_left: int) -> None:
    found = _look(directory, path.name)
    if found is None or stat.S_ISREG(found.st_mode):
        _replace(directory, path.name, data, found)
    elif not stat.S_ISLNK(found.st_mode):
        _write_through(directory, path.name, data, os.O_NOFOLLOW, found)
    elif not _may_follow(directory) or links_left == 0:
        raise OSError(errno.ELOOP, FOREIGN_LINK if links_left else os.strerror(errno.ELOOP))
    else:
        _save_through_link(directory, path, data, links_left)


def _save_through_link(directory: int, path: Path, data: bytes, links_left: int) -> None:
    try:
        named = os.stat(path.name, dir_fd=directory)
    except FileNotFoundError:
        named = None
    if named is not None and (ours := _own_output(named)) is not None:
        _write_all(ours, data)
    elif named is not None and not stat.S_ISREG(named.st_mode):
        # In /proc/self/fd what a link says is no path ("pipe:[4711]"): the kernel has to follow it.
        _write_through(directory, path.name, data, 0, named)
    else:
        target = path.parent / os.readlink(path.name, dir_fd=directory)
        with _opened(target.parent) as there:
            _save_in(there, target, data, links_left - 1)


def _own_output(found: os.stat_result) -> int | None:
    """The descriptor of ours that /dev/stdout or /dev/stderr stands for; what was printed goes first."""
    for stream, handle in ((sys.stdout, 1), (sys.stderr, 2)):
        with suppress(OSError):
            if os.path.samestat(found, os.fstat(handle)):
                if stream is not None:
                    stream.flush()
                return handle
    return None


def _replace(directory: int, name: str, data: bytes, old: os.stat_result | None) -> None:
    handle, temporary = _make_temporary(directory)
    try:
        try:
            _write_all(handle, data)
            # A result is for everyone who may read its directory, unless the old one of ours was not.
            keeps = old is not None and old.st_uid in _callers()
            os.fchmod(handle, stat.S_IMODE(old.st_mode) & 0o777 if old and keeps else 0o644)
            if old is None or old.st_uid != 0:
                _give(handle)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    # The rename reaches the disk only with its directory; one that may not be read cannot be synchronised.
    with suppress(OSError):
        again = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(again)
        finally:
            os.close(again)


def _make_temporary(directory: int) -> tuple[int, str]:
    name = f".copyscope-{secrets.token_hex(6)}.part"
    return os.open(name, NEW, 0o600, dir_fd=directory), name


def _write_through(directory: int, name: str, data: bytes, more_flags: int, seen: os.stat_result) -> None:
    _refuse_foreign(seen)
    handle = _open_at_once(directory, name, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC | more_flags)
    try:
        _refuse_foreign(os.fstat(handle))  # somebody may have put another one there
        _write_in_pieces(handle, data)
    finally:
        os.close(handle)


def _callers() -> set[int]:
    """Whose files are our own: root's, which everybody trusts, and those of who called."""
    ids = invoking_ids() if os.geteuid() == 0 else None
    return {0, os.geteuid(), *(ids[:1] if ids else ())}


def _refuse_foreign(found: os.stat_result) -> None:
    if found.st_uid not in _callers():
        raise OSError(errno.EPERM, FOREIGN)


def _write_in_pieces(handle: int, data: bytes) -> None:
    """To who may take each piece late, but not never."""
    left = memoryview(data)
    while left:
        waiting = select.poll()
        waiting.register(handle, select.POLLOUT)
        if not waiting.poll(PIECE_S * 1000):
            raise OSError(errno.ETIMEDOUT, READS_NO_MORE.format(PIECE_S))
        with suppress(BlockingIOError):
            left = left[os.write(handle, left[:PIECE_BYTES]) :]


def _open_at_once(directory: int, name: str, flags: int) -> int:
    """A FIFO waits at open(2) for somebody who reads it (fifo(7)), silently and for ever: so not here."""
    until_s = time.monotonic() + READER_S
    while True:
        try:
            handle = os.open(name, flags | os.O_NONBLOCK, dir_fd=directory)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(name, dir_fd=directory).st_mode):
                raise
            if time.monotonic() > until_s:
                raise OSError(errno.ENXIO, NOBODY_READS) from None
            time.sleep(0.02)
        else:
            return handle


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _give(handle: int) -> None:
    """What is made under sudo belongs to the invoking user."""
    ids = invoking_ids()
    if ids is not None and os.geteuid() == 0:
        os.fchown(handle, *ids)


def _look(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _may_follow(directory: int) -> bool:
    """Whether a link in it is to be trusted: with the rights of root only one that root alone can make."""
    found = os.fstat(directory)
    return os.geteuid() != 0 or (found.st_uid == 0 and not found.st_mode & 0o022)


@contextmanager
def _opened(path: Path, *, make: bool = False) -> Iterator[int]:
    """A directory, opened part by part: what a part is cannot change between the look and the use."""
    parts = list(path.parts)
    links_left = MOST_LINKS
    here = os.open(".", LOOK | os.O_DIRECTORY)
    try:
        while parts:
            name = parts.pop(0)
            found = _look(here, name)
            if found is not None and stat.S_ISLNK(found.st_mode):
                if not _may_follow(here) or links_left == 0:
                    raise OSError(errno.ELOOP, FOREIGN_LINK if links_left else os.strerror(errno.ELOOP))
                links_left -= 1
                parts = [*Path(os.readlink(name, dir_fd=here)).parts, *parts]
                continue
            made = found is None and make
            if made:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
            last, here = here, os.open(name, LOOK | os.O_DIRECTORY, dir_fd=here)
            os.close(last)
            if made:
                _give_directory(here)
        yield here
    finally:
        os.close(here)


def _give_directory(directory: int) -> None:
    # What is opened only to be looked at has no fchown(2).
    handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        _give(handle)
    finally:
        os.close(handle)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors name the whole file, as it was asked for."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
