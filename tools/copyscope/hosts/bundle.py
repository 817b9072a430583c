"""What is brought to another machine: the static programs that `make bundle` made for its architecture."""

import hashlib
import re
from pathlib import Path

from copyscope.errors import RunError
from copyscope.escaping import visible
from copyscope.files import regular_file


def read(directory: Path, host: str, arch: str) -> bytes:
    """The bundle for a host. Raises RunError where there is none, or it is not what was made."""
    if re.fullmatch(r"[A-Za-z0-9_]{1,32}", arch) is None:
        raise RunError(f"{host}: {visible(arch[:32])}: not an architecture")
    path = directory / f"copyscope-{arch}.tar.gz"
    try:
        return checked(path)
    except OSError:
        raise RunError(
            f"{host}: no bundle for its architecture, {arch}: {path}: `make bundle` on a machine of that kind"
        ) from None


def checked(path: Path) -> bytes:
    """The bundle. Raises RunError if it is not what was made, OSError where it or its hash is missing."""
    data = regular_file.read(path)
    wanted = regular_file.read(path.with_name(f"{path.name}.sha256")).split()[:1]
    if wanted != [hashlib.sha256(data).hexdigest().encode()]:
        raise RunError(f"{path}: its SHA-256 is not that beside it: make bundle again")
    return data


def opening(data: bytes) -> bytes:
    """What a guard reads first: how much, its hash, and the bytes."""
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}\n".encode() + data
