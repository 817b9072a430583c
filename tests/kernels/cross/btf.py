"""btf.py IMAGE OUT: takes the type information (BTF) out of an uncompressed kernel image, such as arm64's.

The kernel keeps it as it is in the file that boots: a header (struct btf_header, include/uapi/linux/btf.h),
then types, then strings. So no running kernel of that architecture is needed to build programs for it.
"""

import struct
import sys
from pathlib import Path

# magic 0xeb9f, version 1, no flags, a header of 24 bytes; then the offsets and lengths of types and strings.
START = struct.pack("<HBBI", 0xEB9F, 1, 0, 24)
HEADER = struct.Struct("<HBBIIIII")
# vmlinux has tens of thousands of types; the few bytes of anything else that looks alike have not.
LEAST_BYTES = 1 << 20


def find(image: bytes) -> bytes:
    at = image.find(START)
    while at >= 0:
        if at + HEADER.size <= len(image):
            *_, types_at, types_bytes, strings_at, strings_bytes = HEADER.unpack_from(image, at)
            length = HEADER.size + strings_at + strings_bytes
            fits = types_at == 0 and strings_at == types_bytes and at + length <= len(image)
            if fits and length > LEAST_BYTES and image[at + HEADER.size + strings_at] == 0:
                return image[at : at + length]
        at = image.find(START, at + 1)
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
