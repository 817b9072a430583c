# SPDX-License-Identifier: GPL-2.0-only
"""btf.py IMAGE OUT: extract the type information (BTF) of an uncompressed kernel image, such as arm64's.

The image contains it unchanged: a header (struct btf_header, include/uapi/linux/btf.h), then types, then
strings. So programs can be built for an architecture without a running kernel of it.
"""

import struct
import sys
from pathlib import Path

# magic 0xeb9f, version 1, no flags, a header of 24 bytes; then the offsets and lengths of types and strings.
START = struct.pack("<HBBI", 0xEB9F, 1, 0, 24)
HEADER = struct.Struct("<HBBIIIII")
# Minimum size of real BTF: vmlinux has tens of thousands of types, and other bytes may look like a header.
LEAST_BYTES = 1 << 20


def find(image: bytes) -> bytes:
    """Return the BTF in a kernel image. Raises ValueError if there is none."""
    offset = image.find(START)
    while offset >= 0:
        if offset + HEADER.size <= len(image):
            *_, types_offset, types_bytes, strings_offset, strings_bytes = HEADER.unpack_from(image, offset)
            length = HEADER.size + strings_offset + strings_bytes
            fits = types_offset == 0 and strings_offset == types_bytes and offset + length <= len(image)
            if fits and length > LEAST_BYTES and image[offset + HEADER.size + strings_offset] == 0:
                return image[offset : offset + length]
        offset = image.find(START, offset + 1)
    raise ValueError("no BTF in it: compressed, or built without CONFIG_DEBUG_INFO_BTF")


def main(source: str, target: str) -> int:
    try:
        Path(target).write_bytes(find(Path(source).read_bytes()))
    except (OSError, ValueError) as error:
        print(f"btf: {source}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
