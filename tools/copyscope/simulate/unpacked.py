"""A kernel as QEMU starts it soonest: unpacked once, so that no boot spends time and memory on it."""

import re
import struct

from copyscope.errors import RunError
from copyscope.files import saving
from copyscope.simulate.kernels import Kernel
from copyscope.simulate.packed import unpack

# Documentation/arch/x86/boot.rst: the header's magic, its version, the number of sectors before the kernel's
# own part, where in that the packed one lies, and how long that is: with its unpacked length at the end.
MAGIC, VERSION, SECTORS, PAYLOAD = 0x202, 0x206, 0x1F1, 0x248
PAYLOAD_SINCE = 0x208
LENGTH_BYTES = 4
# XEN_ELFNOTE_PHYS32_ENTRY (include/xen/interface/elfnote.h): where QEMU begins (PVH).
ENTRY = re.compile(rb"\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0")


def startable(kernel: Kernel) -> str:
    """The path of what QEMU is given: kept beside the kernel. Raises RunError."""
    kept = kernel.place / f"vmlinux-{kernel.sha256[:16]}"
    try:
        if not kept.exists():
            saving.save(kept, unpacked(kernel.image) or kernel.image)
    except OSError as error:
        raise RunError(f"{kept}: {error.strerror}: the kernel cannot be kept") from error
    return str(kept)


def unpacked(image: bytes) -> bytes | None:
    """The ELF file in a bzImage; None for one that QEMU could not start so. Raises RunError without zstd."""
    if len(image) < PAYLOAD + 8 or image[MAGIC : MAGIC + 4] != b"HdrS":
        return None
    if struct.unpack_from("<H", image, VERSION)[0] < PAYLOAD_SINCE:
        return None
    offset, length = struct.unpack_from("<II", image, PAYLOAD)
    begin = ((image[SECTORS] or 4) + 1) * 512 + offset
    elf = unpack(image[begin : begin + length - LENGTH_BYTES], "kernel")
    return elf if elf.startswith(b"\x7fELF") and ENTRY.search(elf) else None
