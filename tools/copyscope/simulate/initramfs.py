"""The guest's first and only file system, as bytes: cpio's newc format, which the kernel unpacks. Pure.

Nothing of it depends on the clock or on the machine: the same files are the same bytes.
"""

from collections.abc import Mapping

DIRECTORY = 0o040755
EXECUTABLE = 0o100755


def cpio(files: Mapping[str, bytes]) -> bytes:
    """An archive of executable files (path -> content) and the directories that they lie in."""
    directories = {"dev", "proc", "sys", "tmp"}
    for path in files:
        parts = path.split("/")[:-1]
        directories |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    made = [_member(number, path, DIRECTORY, b"") for number, path in enumerate(sorted(directories), start=1)]
    made += [
        _member(number, path, EXECUTABLE, content)
        for number, (path, content) in enumerate(sorted(files.items()), start=len(directories) + 1)
    ]
    # Documentation/driver-api/early-userspace/buffer-format.rst
    return b"".join([*made, _member(0, "TRAILER!!!", 0, b"")])


def _member(number: int, path: str, mode: int, content: bytes) -> bytes:
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
