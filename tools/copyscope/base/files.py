# SPDX-License-Identifier: GPL-2.0-only
"""Read and write whole files, without following other users' links."""

import errno
import os
import secrets
import select
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from copyscope.base.errors import RunError, describe
from copyscope.base.spelling import one_line

# Rules of save(), which writes a result file.
#
# A regular file is replaced by rename(2), so that it is either complete or unchanged. Other files (a device,
# a FIFO, our own standard output) are opened and written, because replacing them would break them for other
# programs. Such a file must belong to root or to the caller: the owner of a FIFO could read the data or block
# the writer. As root, copyscope follows no link in a directory that other users can write, like
# fs.protected_symlinks of proc(5). Under sudo, new files and directories are given to the user who called
# sudo, through their descriptors; existing ones keep their owner.

LINKS_MAX = 40  # most symbolic links on the way to a file, as in the kernel (MAXSYMLINKS)
FOREIGN_LINK = (
    "this link is in a directory that others can write, so root does not follow it; name its target"
)
FIFO_WITHOUT_READER = "this FIFO has no reader: start the reader first"
FOREIGN_OWNER = "this file belongs to another user, who could read the data; use your own file"
READER_STALLED = "the reader of this FIFO has read nothing for {:g} s"
# Time in seconds to wait for the reader of a FIFO to open it: writer and reader may be started together.
READER_START_S = 1.0
# Time in seconds to wait for the reader of a FIFO to read one chunk.
CHUNK_WAIT_S = 5.0
# PIPE_BUF of pipe(7): a FIFO that poll(2) reports as writable accepts this many bytes without blocking.
FIFO_CHUNK_BYTES = 4096
UID_MAX = 2**32 - 2  # largest user id: chown(2) reads 2**32 - 1 as "leave the owner unchanged"
PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def invoking_ids(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """Return the user id and group id of the user who called sudo, or None if sudo was not used."""
    environment = os.environ if environment is None else environment
    uid, gid = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    return (int(uid), int(gid)) if _is_id(uid) and _is_id(gid) else None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= UID_MAX


def record_mode() -> int:
    """Return the mode of new record files: records written by root without sudo are readable by root only."""
    return 0o600 if os.geteuid() == 0 and invoking_ids() is None else 0o644


def save(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file or replace its content. Raises OSError that names the file. `mode`: mode of a new file."""
    with _naming(path), _opened(path.parent) as directory:
        _save_in(directory, path, data, LINKS_MAX, mode)


def check_writable(path: Path) -> None:
    """Raise the OSError that save() would raise. Creates and removes a temporary file to find out."""
    with _naming(path), _opened(path.parent) as directory:
        status = _status(directory, path.name or ".")
        if status is None or stat.S_ISREG(status.st_mode):
            handle, temporary = _make_temporary(directory)
            os.close(handle)
            os.unlink(temporary, dir_fd=directory)
        elif stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        elif stat.S_ISLNK(status.st_mode) and not _may_follow(directory):
            raise OSError(errno.ELOOP, FOREIGN_LINK)
        elif not stat.S_ISLNK(status.st_mode):
            _refuse_foreign(status)


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents. Under sudo, they belong to the user who called sudo."""
    with _naming(path), _opened(path, make=True):
        pass


def give_directory(path: Path) -> None:
    """Under sudo, give a directory that copyscope made to the user who called sudo."""
    with _naming(path), _opened(path) as directory:
        _give_directory(directory)


def open_to_append(path: Path, mode: int = 0o644) -> IO[bytes]:
    """Open a regular file for reading and appending; create it with this mode if it does not exist.

    Raises OSError for a symbolic link, and as root also for a file with several hard links.
    """
    with _naming(path), _opened(path.parent) as directory:
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(path.name, flags, dir_fd=directory)
        except FileNotFoundError:
            handle = os.open(path.name, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=directory)
            _give(handle)
        status = os.fstat(handle)
        # Another user could have made this name a hard link to a file that only root may write.
        if not stat.S_ISREG(status.st_mode) or (os.geteuid() == 0 and status.st_nlink > 1):
            os.close(handle)
            raise OSError(errno.EINVAL, "not a regular file, or a file with a second hard link; remove it")
        return os.fdopen(handle, "ab+")


def append(path: Path, data: bytes, *, lines: bool = False, mode: int = 0o644) -> None:
    """Append to a file and synchronise it with the disk.

    If that fails, the file is cut to its old length, and OSError is raised. With `lines`, the data begins on
    a new line even if a killed process left the last line incomplete.
    """
    with open_to_append(path, mode) as stream, _naming(path):
        old_bytes = stream.seek(0, os.SEEK_END)
        if lines and old_bytes and os.pread(stream.fileno(), 1, old_bytes - 1) != b"\n":
            data = b"\n" + data
        try:
            _write_all(stream.fileno(), data)
            os.fsync(stream.fileno())
        except OSError:
            os.truncate(stream.fileno(), old_bytes)
            raise


def _save_in(directory: int, path: Path, data: bytes, links_left: int, mode: int) -> None:
    """Save data as the last component of `path`, in an open directory. Follow at most `links_left` links.

    `mode`: mode of a new file.
    """
    status = _status(directory, path.name)
    if status is None or stat.S_ISREG(status.st_mode):
        _replace(directory, path.name, data, status, mode)
    elif not stat.S_ISLNK(status.st_mode):
        _write_through(directory, path.name, data, os.O_NOFOLLOW, status)
    elif not _may_follow(directory) or links_left == 0:
        raise OSError(errno.ELOOP, FOREIGN_LINK if links_left else os.strerror(errno.ELOOP))
    else:
        _save_through_link(directory, path, data, links_left, mode)


def _save_through_link(directory: int, path: Path, data: bytes, links_left: int, mode: int) -> None:
    """Save data to the target of a link: our own output, a FIFO or device, or a regular file."""
    try:
        target_status = os.stat(path.name, dir_fd=directory)
    except FileNotFoundError:
        target_status = None
    if target_status is not None and (own_descriptor := _own_output(target_status)) is not None:
        _write_all(own_descriptor, data)
    elif target_status is not None and not stat.S_ISREG(target_status.st_mode):
        # A link in /proc/self/fd may hold no path ("pipe:[4711]"), so only the kernel can follow it.
        _write_through(directory, path.name, data, 0, target_status)
    else:
        target = path.parent / os.readlink(path.name, dir_fd=directory)
        with _opened(target.parent) as target_directory:
            _save_in(target_directory, target, data, links_left - 1, mode)


def _own_output(status: os.stat_result) -> int | None:
    """Return the descriptor of our standard output or error if `status` describes that file, or None.

    Flushes the stream, because the caller then writes to the descriptor.
    """
    for stream, handle in ((sys.stdout, 1), (sys.stderr, 2)):
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(handle)):
                if stream is not None:
                    stream.flush()
                return handle
    return None


def _replace(directory: int, name: str, data: bytes, old: os.stat_result | None, mode: int) -> None:
    """Write a temporary file and rename it to `name`, both in an open directory.

    `old`: status of the file that is replaced, or None if there is no such file. `mode`: mode of a new file.
    """
    handle, temporary = _make_temporary(directory)
    try:
        try:
            _write_all(handle, data)
            # A replaced file of the caller or of root keeps its mode.
            keeps_mode = old is not None and old.st_uid in _trusted_users()
            os.fchmod(handle, stat.S_IMODE(old.st_mode) & 0o777 if old and keeps_mode else mode)
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
    # fsync(2) of the directory writes the rename to the disk. fsync(2) needs a descriptor that can be read.
    with suppress(OSError):
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(readable)
        finally:
            os.close(readable)


def _make_temporary(directory: int) -> tuple[int, str]:
    """Create a temporary file in an open directory; return its descriptor and its name."""
    name = f".copyscope-{secrets.token_hex(6)}.part"
    return os.open(name, CREATE_NEW, 0o600, dir_fd=directory), name


def _write_through(directory: int, name: str, data: bytes, more_flags: int, status: os.stat_result) -> None:
    """Write data to an existing FIFO or device. `status`: its stat(2) before it is opened.

    `more_flags`: flags of open(2), such as O_NOFOLLOW.
    """
    _refuse_foreign(status)
    handle = _open_at_once(directory, name, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC | more_flags)
    try:
        _refuse_foreign(os.fstat(handle))  # another user may have replaced the file since the first check
        _write_in_chunks(handle, data)
    finally:
        os.close(handle)


def _trusted_users() -> set[int]:
    """Return the ids of root, of the effective user and, under sudo, of the user who called it."""
    ids = invoking_ids() if os.geteuid() == 0 else None
    return {0, os.geteuid(), *(ids[:1] if ids else ())}


def _refuse_foreign(status: os.stat_result) -> None:
    """Raise OSError if a file belongs to a user who is not trusted."""
    if status.st_uid not in _trusted_users():
        raise OSError(errno.EPERM, FOREIGN_OWNER)


def _write_in_chunks(handle: int, data: bytes) -> None:
    """Write to a FIFO or device. Raises OSError if its reader stops reading for CHUNK_WAIT_S."""
    left = memoryview(data)
    while left:
        poller = select.poll()
        poller.register(handle, select.POLLOUT)
        if not poller.poll(CHUNK_WAIT_S * 1000):
            raise OSError(errno.ETIMEDOUT, READER_STALLED.format(CHUNK_WAIT_S))
        with suppress(BlockingIOError):
            left = left[os.write(handle, left[:FIFO_CHUNK_BYTES]) :]


def _open_at_once(directory: int, name: str, flags: int) -> int:
    """Open a file for writing without blocking.

    open(2) of a FIFO blocks until a reader opens it (fifo(7)). This function raises OSError instead if there
    is no reader after READER_START_S.
    """
    until_s = time.monotonic() + READER_START_S
    while True:
        try:
            handle = os.open(name, flags | os.O_NONBLOCK, dir_fd=directory)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(name, dir_fd=directory).st_mode):
                raise
            if time.monotonic() > until_s:
                raise OSError(errno.ENXIO, FIFO_WITHOUT_READER) from None
            time.sleep(0.02)
        else:
            return handle


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _give(handle: int) -> None:
    """Under sudo, change the owner of an open file to the user who called sudo."""
    ids = invoking_ids()
    if ids is not None and os.geteuid() == 0:
        os.fchown(handle, *ids)


def _status(directory: int, name: str) -> os.stat_result | None:
    """Return lstat(2) of a file in an open directory, or None if there is no such file."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _may_follow(directory: int) -> bool:
    """Return True if links in an open directory may be followed.

    Root follows links only where no other user can write.
    """
    status = os.fstat(directory)
    return os.geteuid() != 0 or (status.st_uid == 0 and not status.st_mode & 0o022)


@contextmanager
def _opened(path: Path, *, make: bool = False) -> Iterator[int]:
    """Yield the descriptor of a directory, opened component by component. `make`: create missing directories.

    Each component is checked and opened relative to its open parent, so that no other user can exchange a
    directory for a link between check and use.
    """
    parts = list(path.parts)
    links_left = LINKS_MAX
    here = os.open(".", PATH_ONLY | os.O_DIRECTORY)
    try:
        while parts:
            name = parts.pop(0)
            status = _status(here, name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                if not _may_follow(here) or links_left == 0:
                    raise OSError(errno.ELOOP, FOREIGN_LINK if links_left else os.strerror(errno.ELOOP))
                links_left -= 1
                parts = [*Path(os.readlink(name, dir_fd=here)).parts, *parts]
                continue
            is_new = status is None and make
            if is_new:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
            parent, here = here, os.open(name, PATH_ONLY | os.O_DIRECTORY, dir_fd=here)
            os.close(parent)
            if is_new:
                _give_directory(here)
        yield here
    finally:
        os.close(here)


def _give_directory(directory: int) -> None:
    """Under sudo, change the owner of an open directory to the user who called sudo."""
    # fchown(2) fails for a descriptor that was opened with O_PATH.
    handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        _give(handle)
    finally:
        os.close(handle)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make each OSError of the body name the path that the caller knows, not a name inside a directory."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


# Another user may have written a file that copyscope reads, so only regular files of limited size are read.

# Size in bytes of the largest file that is read. A record has about 300 KB.
BYTES_MAX = 64 << 20
# Bytes that zlib gets at a time. Chunks are small, because zlib copies the input after a gzip member's end.
INFLATE_CHUNK_BYTES = 4096


def read(path: Path, limit_bytes: int = BYTES_MAX) -> bytes:
    """Return the content of a regular file. Raises OSError also if the file is larger than the limit."""
    # O_NONBLOCK: do not wait for the writer of a FIFO. O_NOCTTY: do not get a controlling terminal.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        if stat.S_ISDIR(kind):
            raise OSError(errno.EISDIR, "is a directory", str(path))
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with os.fdopen(handle, "rb") as stream:
        data = stream.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"larger than {limit_bytes >> 20} MiB", str(path))
    return data


def gunzip(data: bytes, limit_bytes: int = BYTES_MAX) -> bytes:
    """Decompress all members of a gzip file.

    Raises zlib.error for damaged data, EOFError for incomplete data, OverflowError for more than
    `limit_bytes` of content.
    """
    text, offset, view = bytearray(), 0, memoryview(data)
    while offset < len(data):
        member, offset = gunzip_member(view, offset, limit_bytes - len(text))
        text += member
    return bytes(text)


def gunzip_member(data: memoryview, offset: int, limit_bytes: int = BYTES_MAX) -> tuple[bytes, int]:
    """Decompress the gzip member at an offset; return its content and the offset of its end.

    Raises the errors of gunzip().
    """
    inflater, text = zlib.decompressobj(wbits=31), bytearray()  # 31: a gzip header, no zlib header
    while not inflater.eof:
        chunk = data[offset : offset + INFLATE_CHUNK_BYTES]
        if not chunk:
            raise EOFError
        text += inflater.decompress(chunk, limit_bytes + 1 - len(text))
        if len(text) > limit_bytes:
            raise OverflowError
        offset += len(chunk) - len(inflater.unconsumed_tail) - len(inflater.unused_data)
    return bytes(text), offset


# If a measurement cannot be saved under the path of the user, rescue() saves it in another directory.

# Maximum number of characters of the error in the message, which also names the directory of the saved
# measurement.
CAUSE_MAX_CHARACTERS = 120
# Directories on different file systems, because often only one is full. /dev/shm is memory.
RESCUE_DIRECTORIES = ("/var/tmp", "/tmp", "/dev/shm")


def rescue(files: Mapping[str, bytes]) -> str:
    """Save files in a new private directory; return a sentence that names the directory or the failure."""
    for parent in dict.fromkeys((tempfile.gettempdir(), *RESCUE_DIRECTORIES, os.getcwd())):  # noqa: PTH109
        directory = None
        try:
            # mkdtemp() makes a new directory of mode 0700 with a random name.
            directory = Path(tempfile.mkdtemp(prefix="copyscope-kept-", dir=parent))
            for name, data in files.items():
                save(directory / name, data)
            give_directory(directory)
        except OSError:
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
            continue
        return f"the measurement is saved in {directory}"
    tried = ", ".join(RESCUE_DIRECTORIES)
    return f"the measurement could not be saved, not even in {tried}; free some space"


@contextmanager
def rescue_on_failure(name: str, data: Callable[[], bytes]) -> Iterator[None]:
    """If the body fails, save the bytes that `data` returns as the file `name`, and raise RunError.

    The error names the directory.
    """
    try:
        yield
    except Exception as error:
        raise RunError(
            f"{one_line(describe(error), CAUSE_MAX_CHARACTERS)}; {rescue({name: data()})}"
        ) from error
