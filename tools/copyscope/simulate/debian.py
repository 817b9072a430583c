"""Debian's archive: which package holds a kernel, and what is in one. Pure: bytes in, bytes out."""

import io
import lzma
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

AR_MAGIC = b"!<arch>\n"
AR_HEAD = 60
INDEX = "main/binary-amd64/Packages.xz"
META = "linux-image-amd64"


class ArchiveError(Exception):
    """What was fetched is not what it should be; one line."""


@dataclass(frozen=True)
class Package:
    """One package of an index: where it is, and what it must be."""

    name: str
    version: str
    path: str
    sha256: str
    depends: tuple[str, ...]


def index_hash(release: str) -> str:
    """The hash that a Release file gives the index of amd64 packages."""
    section = release.partition("\nSHA256:\n")[2]
    found = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(INDEX)}$", section, re.MULTILINE)
    if found is None:
        raise ArchiveError(f"the suite's list has no {INDEX}")
    return found[1]


def find_package(index: str, name: str) -> Package:
    """One package of an index (the text of Packages)."""
    begin = index.find(f"\nPackage: {name}\n")
    if begin < 0:
        raise ArchiveError(f"the archive has no {name}")
    paragraph = index[begin + 1 : index.find("\n\n", begin + 1)]
    fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
    depends = tuple(re.split(r"[ (|]", word.strip())[0] for word in fields.get("Depends", "").split(","))
    return Package(name, fields["Version"], fields["Filename"], fields["SHA256"], depends)


def kernel_packages(index: str) -> list[Package]:
    """The packages of the newest kernel: the image, and since 7.x what it was split into."""
    index = "\n" + index
    named = [name for name in find_package(index, META).depends if re.match(r"linux-image-\d", name)]
    if not named:
        raise ArchiveError(f"{META}: names no image")
    image = find_package(index, named[0])
    parts = [name for name in image.depends if re.match(r"linux-(binary|modules)-\d", name)]
    return [find_package(index, name) for name in parts] or [image]


def unpack(deb: bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(path, content) of the wanted regular files of a package."""
    data = _data_member(deb)
    try:
        with tarfile.open(fileobj=data, mode="r|xz") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.isfile() and wanted(name):
                    content = tar.extractfile(member)
                    assert content is not None  # of a regular file
                    yield name, content.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ArchiveError(f"damaged package: {error}") from error


def _data_member(deb: bytes) -> io.BytesIO:
    if not deb.startswith(AR_MAGIC):
        raise ArchiveError("not a package of Debian")
    at = len(AR_MAGIC)
    while at + AR_HEAD <= len(deb):
        name, size = deb[at : at + 16].decode("ascii", "replace").strip(" /"), deb[at + 48 : at + 58]
        begin = at + AR_HEAD
        if name == "data.tar.xz":
            return io.BytesIO(deb[begin : begin + int(size)])
        at = begin + int(size) + int(size) % 2
    raise ArchiveError("a package without data.tar.xz")
