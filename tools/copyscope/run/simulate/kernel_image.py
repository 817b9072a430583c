# SPDX-License-Identifier: GPL-2.0-only
"""A kernel for a simulated machine: its image, unpacked into the form that QEMU starts fastest."""

import lzma
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from copyscope.base import files
from copyscope.base.errors import RunError, how_to_install_for_simulation
from copyscope.base.programs import LimitError, run_program


@dataclass(frozen=True)
class GuestKernel:
    """A kernel, and its modules for network paths that are not built into the kernel."""

    name: str
    release: str
    image: bytes
    modules: dict[str, bytes]
    sha256: str
    directory: Path  # directory for files that are derived from the kernel


# First bytes of compressed kernels and modules. Python cannot read zstd before 3.14.
XZ, ZSTD, GZIP = b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
UNPACK_TIMEOUT_S = 60.0
# Maximum number of bytes of an unpacked file. The largest kernel images of distributions have a quarter of
# this size.
UNPACKED_MAX_BYTES = 256 << 20


def decompress(content: bytes, object_name: str) -> bytes:
    """Decompress content if it is compressed with xz, zstd or gzip, and return it. Raises RunError.

    `object_name`: name of the content in messages.
    """
    if content.startswith(XZ):
        try:
            return lzma.decompress(content)
        except (lzma.LZMAError, EOFError) as error:
            raise RunError(f"{object_name}: cannot be unpacked: {error}") from error
    if content.startswith(GZIP):
        try:
            # 31: a gzip header. Bytes after the compressed content are ignored.
            return zlib.decompressobj(wbits=31).decompress(content, UNPACKED_MAX_BYTES)
        except zlib.error as error:
            raise RunError(f"{object_name}: cannot be unpacked: {error}") from error
    return _by_zstd(content, object_name) if content.startswith(ZSTD) else content


def _by_zstd(packed: bytes, object_name: str) -> bytes:
    """Decompress content with the `zstd` program. Raises RunError."""
    try:
        result = run_program(
            ["zstd", "-dcq"], stdin_data=packed, limit_s=UNPACK_TIMEOUT_S, output_max_bytes=UNPACKED_MAX_BYTES
        )
    except FileNotFoundError:
        raise RunError(f"{object_name}: zstd: not found; {how_to_install_for_simulation('zstd')}") from None
    except LimitError as error:
        raise RunError(f"{object_name}: {error}") from None
    if result.status != 0:
        raise RunError(f"{object_name}: cannot be unpacked: {result.complaint or 'zstd failed'}")
    return result.output


# Offsets in the header (Documentation/arch/x86/boot.rst) of the magic number, the version, the number of
# setup sectors, the offset of the release, and of offset and length of the packed kernel. The last bytes of
# the packed kernel are its unpacked length.
MAGIC_OFFSET, VERSION_OFFSET, SECTORS_OFFSET, PAYLOAD_OFFSET = 0x202, 0x206, 0x1F1, 0x248
RELEASE_OFFSET, RELEASE_BASE, RELEASE_MAX_BYTES = 0x20E, 0x200, 200
PAYLOAD_SINCE_VERSION = 0x208
LENGTH_BYTES = 4
# Pattern of the note XEN_ELFNOTE_PHYS32_ENTRY (include/xen/interface/elfnote.h) with QEMU's entry point
# (PVH).
PVH_ENTRY = re.compile(rb"\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0")


def save_startable(kernel: GuestKernel) -> str:
    """Save a kernel in the form that QEMU starts fastest; return the file's path. Raises RunError."""
    path = kernel.directory / f"vmlinux-{kernel.sha256[:16]}"
    try:
        if not path.exists():
            files.save(path, unpack_bzimage(kernel.image) or kernel.image)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}: cannot save the kernel") from error
    return str(path)


def is_bzimage(image: bytes) -> bool:
    """Return True if the image has the header of a bzImage with a packed kernel."""
    if len(image) < PAYLOAD_OFFSET + 8 or image[MAGIC_OFFSET : MAGIC_OFFSET + 4] != b"HdrS":
        return False
    return bool(struct.unpack_from("<H", image, VERSION_OFFSET)[0] >= PAYLOAD_SINCE_VERSION)


def release_of(image: bytes) -> str:
    """Return the release from a bzImage's header, as `uname -r` prints it."""
    begin = RELEASE_BASE + struct.unpack_from("<H", image, RELEASE_OFFSET)[0]
    text = image[begin : begin + RELEASE_MAX_BYTES].partition(b"\0")[0]
    return text.decode("ascii", "replace").partition(" ")[0]


def unpack_bzimage(image: bytes) -> bytes | None:
    """Return a bzImage's ELF file, or None if QEMU could not start it. Raises RunError if zstd is missing."""
    if not is_bzimage(image):
        return None
    offset, length = struct.unpack_from("<II", image, PAYLOAD_OFFSET)
    begin = ((image[SECTORS_OFFSET] or 4) + 1) * 512 + offset
    elf = decompress(image[begin : begin + length - LENGTH_BYTES], "kernel")
    return elf if elf.startswith(b"\x7fELF") and PVH_ENTRY.search(elf) else None
